"""The plain tables of a SQLite database: how it runs their statements."""

import json
import sqlite3
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.sqlite.database import Database, SqliteUnit
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.tables.database import Columns, Dialect, PlainDatabase, Statement, Transaction, Unit, Values

T = TypeVar("T")

SQLITE = Dialect(
    {
        "schema": "",
        "greatest": "max",
        "in": "IN (SELECT value FROM json_each(:*))",
        "bytes_of": "length(CAST(* AS BLOB))",
        "by_index": "INDEXED BY *",
        "for_update": "",
        "lock": "1",
        "notify": "1",
        **STATE_FRAGMENTS,
    },
    lambda name, _: f":{name}",
)


def encode(values: Values) -> dict[str, Any]:
    """Return values as SQLite stores them: times and durations as microseconds, lists as JSON."""
    return {name: _encode(value) for name, value in values.items()}


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return json.dumps(value) if isinstance(value, list) else value


class PlainTables(PlainDatabase):
    """Runs statements of plain tables: queries as reads, everything else through the committer."""

    read_time = staticmethod(from_micros)
    read_texts = staticmethod(json.loads)

    def __init__(self, database: Database, committer: GroupCommitter[SqliteUnit]) -> None:
        self._database = database
        self._committer = committer

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        sql, encoded = SQLITE.prepare(statement).sql, encode(values)
        return await self._database.read(lambda connection: connection.execute(sql, encoded).fetchall())

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        sql, encoded = SQLITE.prepare(statement).sql, [encode(values) for values in rows]
        await self._committer.submit(lambda connection: connection.executemany(sql, encoded))

    async def transact(self, unit: Unit[T]) -> T:
        def write(connection: sqlite3.Connection) -> T:
            return finish(unit(Inside(connection)))

        result: T = await self._committer.submit(write)
        return result


class Inside(Transaction):
    """A transaction on the connection that writes: its statements are over when they return."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        return self._connection.execute(SQLITE.prepare(statement).sql, encode(values)).fetchall()

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        self._connection.executemany(SQLITE.prepare(statement).sql, [encode(values) for values in rows])


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a unit of work to its end: it awaits nothing but its transaction, which never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a unit of work has awaited something else than its transaction")
