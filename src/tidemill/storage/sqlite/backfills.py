"""Backfills in SQLite."""

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Backfill, Backfills
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, micros, moment, to_micros


class SqliteBackfills(Backfills):
    """The table `backfills`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, backfill: Backfill) -> None:
        one = backfill
        times = (to_micros(one.created_at), micros(one.cancelled_at))
        row = (one.id, one.tenant, one.workflow, one.limit, *times)
        await self._database.write_many(self._queries.put_backfill, [row])

    async def get(self, id: str) -> Backfill | None:
        for id_, tenant, workflow, limit, created_at, cancelled_at in await self._database.rows(
            self._queries.backfill_of, (id,)
        ):
            return Backfill(
                id=id_,
                tenant=tenant,
                workflow=workflow,
                limit=limit,
                created_at=from_micros(created_at),
                cancelled_at=moment(cancelled_at),
            )
        return None
