"""Logs of tasks in PostgreSQL."""

from collections.abc import Sequence

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import LogChunk, Logs
from tidemill.workflows.records import AttemptKey, TaskKey


class PostgresLogs(Logs):
    """What tasks wrote, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(*chunk.key, chunk.number, chunk.payload) for chunk in chunks]
        await self._committer.commit(Write((Rows(self._queries.append_logs, rows, all_at_once=True),)))

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        rows = await self._database.read(self._queries.logs, *key, *after, limit)
        return [
            LogChunk(key=AttemptKey(run, task, element, attempt), number=number, payload=payload)
            for run, task, element, attempt, number, payload in rows
        ]
