"""The port of notes: texts of operators about runs and tasks."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

import msgspec


class RunNote(msgspec.Struct, frozen=True):
    """A text about a run, or (`task`) about one of its tasks."""

    run: str
    task: str | None
    text: str
    at: datetime


class Notes(Protocol):
    """Notes on runs and tasks, one each."""

    async def upsert(self, note: RunNote) -> None:
        """Write a note in place of the previous one; an empty text deletes it."""

    async def for_run(self, run: str) -> list[RunNote]:
        """Return the notes of a run, its own first, then by task."""

    async def for_runs(self, runs: Collection[str]) -> dict[str, str]:
        """Return the texts of the notes on some runs themselves, by run; those without one are left out."""
