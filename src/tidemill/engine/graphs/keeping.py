"""What may be asked of whoever keeps state beyond the process, and the answer where there is no store."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.dead_letters import Archive
from tidemill.engine.graphs.step import Step, Stepping
from tidemill.graphs.definition import Durability, Reactor
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.graphs.state import Recovery
from tidemill.storage.ports import PartKind

CodecFor = Callable[[str], Codec | None]
"""How boundaries of a source are stored, by its name; None if they cannot be."""


class Keeper(Protocol):
    """Keeps reactors, accumulators and what happened to them, for their next life."""

    def durability(self, reactor: Reactor) -> Durability:
        """Return how a reactor is kept: as declared, by default at intervals, and not at all without a store."""

    def note(self, reactor: Any) -> None:
        """Include a reactor and its accumulators in the next checkpoint."""

    def hurry(self) -> None:
        """Write the next checkpoint now, not when the interval is over."""

    def after_write(self, call: Callable[[], None]) -> None:
        """Call this when the next checkpoint is written, or could not be."""

    async def write(self) -> None:
        """Write what is noted now; what cannot be written stays noted."""

    async def close(self) -> None:
        """Write what is noted a last time, before everything ends; a store that fails now is not asked again."""

    async def part_with(self, reactor: Any) -> None:
        """Write the last checkpoint of a reactor that has ended."""

    def append(self, stepping: Stepping, step: Step, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append what happens to an accumulator to the journal; when that is committed it happens, in this order."""

    async def keep_letters(self) -> None:
        """Return when the letters by now are stored, or could not be for the moment."""

    async def all_committed(self) -> None:
        """Return when everything appended by now has been answered."""

    def go_on_from(self, position: int) -> None:
        """Give positions in the journal beyond this one, which a snapshot has reached."""

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        """Remember that a reactor is paused, or that it is not."""

    def archive(self, tenant: str, owner: PartKind, source: str, codec_for: CodecFor | None = None) -> Archive:
        """Return where the letters of a reactor or accumulator are kept; a reactor says how its inputs are stored."""

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        """Record something that the supervisor did."""


class NoArchive(Archive):
    """Letters end with the process."""

    def put(self, letter: DeadLetter, detail: Any) -> None:
        pass

    def remove(self, letter_id: str) -> None:
        pass


class NoKeeper(Keeper):
    """Without a store everything works, and starts fresh."""

    def durability(self, reactor: Reactor) -> Durability:
        return "none"

    def note(self, reactor: Any) -> None:
        pass

    def hurry(self) -> None:
        pass

    def after_write(self, call: Callable[[], None]) -> None:
        call()

    async def write(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def part_with(self, reactor: Any) -> None:
        pass

    def append(self, stepping: Stepping, step: Step, payload: bytes) -> "asyncio.Future[Receipt]":
        raise AssertionError("without a store nothing is committed, so nobody asks for a journal")

    async def keep_letters(self) -> None:
        pass

    async def all_committed(self) -> None:
        pass

    def go_on_from(self, position: int) -> None:
        pass

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        pass

    def archive(self, tenant: str, owner: PartKind, source: str, codec_for: CodecFor | None = None) -> Archive:
        return NoArchive()

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        pass
