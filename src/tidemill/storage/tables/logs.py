"""The table of logs of tasks."""

from collections.abc import Sequence

import msgspec

from tidemill.storage.tables.database import Statement, Table
from tidemill.storage.tables.declared import of_run
from tidemill.workflows.records import AttemptKey, TaskKey


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Encoded records of an attempt's log; `number` orders the chunks of an attempt."""

    key: AttemptKey
    number: int
    payload: bytes


_APPEND = Statement("""
    INSERT INTO {schema}logs (run, task, element, attempt, number, payload)
    VALUES (:run, :task, :element, :attempt, :number, :payload)
    ON CONFLICT (run, task, element, attempt, number) DO NOTHING
""")
_CHUNKS_OF = Statement("""
    SELECT run, task, element, attempt, number, payload FROM {schema}logs
    WHERE run = :run AND task = :task AND element = :element AND (attempt, number) > (:attempt, :number)
    ORDER BY attempt, number LIMIT :limit
""")


class Logs(Table):
    """Logs of tasks."""

    tables = of_run("logs")

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        """Append chunks; a number that exists is ignored."""
        rows = [{**one.key._asdict(), "number": one.number, "payload": one.payload} for one in chunks]
        await self._database.execute_many(_APPEND, rows)

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        """Return chunks of a task run after (attempt, number), in order."""
        attempt, number = after
        values = {**key._asdict(), "attempt": attempt, "number": number, "limit": limit}
        return [
            LogChunk(key=AttemptKey(*attempt_key), number=number, payload=payload)
            for *attempt_key, number, payload in await self._database.fetch(_CHUNKS_OF, **values)
        ]
