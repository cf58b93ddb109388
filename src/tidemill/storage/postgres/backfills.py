"""Backfills in PostgreSQL."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Backfill, Backfills


class PostgresBackfills(Backfills):
    """Backfills, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, backfill: Backfill) -> None:
        check_times(backfill)
        one = backfill
        row = (one.id, one.tenant, one.workflow, one.limit, one.created_at, one.cancelled_at)
        await self._committer.commit(Write((Rows(self._queries.put_backfill, [row]),)))

    async def get(self, id: str) -> Backfill | None:
        rows = await self._database.read(self._queries.backfill, id)
        return Backfill(**rows[0]) if rows else None
