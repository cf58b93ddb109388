"""The port of backfills."""

from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """Runs for slots of the past, created together."""

    id: str
    tenant: str
    workflow: str
    limit: int
    """The maximum number of its runs that run at a time."""
    created_at: datetime
    cancelled_at: datetime | None = None
    range_start: datetime | None = None
    range_end: datetime | None = None
    """The range of slots that was asked for; None for backfills of before it was stored."""


class BackfillPage(NamedTuple):
    """A part of the list of a tenant's backfills."""

    backfills: list[Backfill]
    """Newest first."""
    total: int


class Backfills(Protocol):
    """Backfills."""

    async def upsert(self, backfill: Backfill) -> None:
        """Write a backfill, in place of the one with its id."""

    async def get(self, id: str) -> Backfill | None:
        """Return a backfill."""

    async def list_page(self, tenant: str, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        """Return the backfills of a tenant after one of them, by id, newest first, and the number of all.

        Ids sort by creation.
        """
