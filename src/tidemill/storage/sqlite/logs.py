"""Logs in SQLite."""

from collections.abc import Sequence

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import LogChunk, Logs
from tidemill.storage.sqlite.database import Database
from tidemill.workflows.records import AttemptKey, TaskKey


class SqliteLogs(Logs):
    """The table `logs`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(*chunk.key, chunk.number, chunk.payload) for chunk in chunks]
        await self._database.write_many(self._queries.add_chunk, rows)

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        rows = await self._database.rows(self._queries.chunks_of, (*key, *after, limit))
        return [LogChunk(key=AttemptKey(*of), number=number, payload=payload) for *of, number, payload in rows]
