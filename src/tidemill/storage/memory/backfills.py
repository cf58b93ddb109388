"""Backfills in memory."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.run_ports import Backfill, Backfills


class MemoryBackfills(Backfills):
    """Backfills by id."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, backfill: Backfill) -> None:
        row = all_in_utc(backfill)
        await self._committer.commit(lambda tables: tables.put(tables.backfills, row.id, row))

    async def get(self, id: str) -> Backfill | None:
        return self._tables.backfills.get(id)
