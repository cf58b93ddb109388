"""Logs in memory."""

from collections.abc import Sequence
from itertools import islice

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.run_ports import LogChunk, Logs
from tidemill.workflows.records import TaskKey


class MemoryLogs(Logs):
    """Chunks by run, attempt and number."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        def write(tables: Tables) -> None:
            for chunk in chunks:
                log = tables.logs.setdefault(chunk.key.run, {})
                if (chunk.key, chunk.number) not in log:
                    tables.put(log, (chunk.key, chunk.number), chunk)

        await self._committer.commit(write)

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        log = self._tables.logs.get(key.run, {})
        places = sorted(place for place in log if place[0].task_key == key and (place[0].attempt, place[1]) > after)
        return [log[place] for place in islice(places, limit)]
