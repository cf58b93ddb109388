"""The table of backfills."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from tidemill.storage.tables.database import RowCodec, Statement, Table
from tidemill.storage.tables.declared import of_tenant


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


_BACKFILL = RowCodec(Backfill, limit="run_limit")
_PUT = Statement(
    "INSERT INTO {schema}backfills ({columns}) VALUES ({parameters}) ON CONFLICT (id) DO UPDATE SET {updates}",
    _BACKFILL,
)
_FIND = Statement("SELECT {columns} FROM {schema}backfills WHERE id = :id", _BACKFILL)
_PAGE = Statement(
    """
    SELECT {columns} FROM {schema}backfills
    WHERE tenant = :tenant AND (CAST(:after AS text) IS NULL OR id < :after) ORDER BY id DESC LIMIT :limit
    """,
    _BACKFILL,
)
_COUNT = Statement("SELECT count(*) FROM {schema}backfills WHERE tenant = :tenant")


class Backfills(Table):
    """Backfills."""

    tables = of_tenant("backfills")

    async def upsert(self, backfill: Backfill) -> None:
        """Write a backfill, in place of the one with its id."""
        await self._put(_PUT, **_BACKFILL.values(backfill))

    async def get(self, id: str) -> Backfill | None:
        """Return a backfill."""
        return await self._first(_BACKFILL, _FIND, id=id)

    async def list_page(self, tenant: str, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        """Return the backfills of a tenant after one of them, by id, newest first, and the number of all.

        Ids sort by creation.
        """
        backfills = await self._list(_BACKFILL, _PAGE, tenant=tenant, after=after, limit=limit)
        [(total,)] = await self._database.fetch(_COUNT, tenant=tenant)
        return BackfillPage(backfills, total)
