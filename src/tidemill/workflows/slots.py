"""Slots of schedules: what became of one, and those of a backfill."""

from datetime import datetime
from typing import Literal

import msgspec

SlotStatus = Literal["started", "late", "dropped", "coming"]
"""A slot has had a run, should have one, gets none on purpose, or is yet to come."""


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a backfill: those that get a run, and those that have had one."""

    id: str | None
    """None for a preview."""
    workflow: str
    slots: tuple[datetime, ...]
    present: tuple[datetime, ...] = ()
    runs: tuple[str, ...] = ()
    future: int = 0
    """The number of slots of the range that are yet to come: these are left to the schedule."""
