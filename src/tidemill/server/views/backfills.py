"""Backfills as the API shows them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from tidemill.storage.backfill_ports import Backfill
from tidemill.workflows.states import RunState


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill, and how far it is."""

    id: str
    workflow: str
    from_: datetime | None = msgspec.field(name="from")
    to: datetime | None
    limit: int
    """The maximum number of its runs that run at a time."""
    state: Literal["running", "ended", "cancelled"]
    created_at: datetime
    cancelled_at: datetime | None
    runs: dict[RunState, int]
    """The number of its runs in each state."""


def to_backfill(backfill: Backfill, states: Mapping[RunState, int]) -> BackfillView:
    """Return a backfill with the states of its runs."""
    is_running = any(not state.is_terminal for state in states)
    return BackfillView(
        id=backfill.id,
        workflow=backfill.workflow,
        from_=backfill.range_start,
        to=backfill.range_end,
        limit=backfill.limit,
        state="cancelled" if backfill.cancelled_at is not None else "running" if is_running else "ended",
        created_at=backfill.created_at,
        cancelled_at=backfill.cancelled_at,
        runs=dict(states),
    )
