"""The plain tables of a PostgreSQL database: how it runs their statements."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.writes import FoldableWrite, PostgresUnit, StatementRows
from tidemill.storage.queries import check_timezone
from tidemill.storage.state_sets import STATE_FRAGMENTS
from tidemill.storage.tables.database import Columns, Dialect, PlainDatabase, Statement, Transaction, Unit, Values

T = TypeVar("T")

POSTGRES = Dialect(
    {
        "schema": "tidemill.",
        "greatest": "greatest",
        "in": "= ANY(:*)",
        "bytes_of": "octet_length(*)",
        "by_index": "",
        "for_update": "FOR UPDATE",
        "lock": "pg_advisory_xact_lock(hashtext('tidemill'), hashtext('*'))",
        "notify": "pg_notify('tidemill_*', :sender)",
        **STATE_FRAGMENTS,
    },
    lambda _, number: f"${number + 1}",
)


class PlainTables(PlainDatabase):
    """Runs statements of plain tables: queries as reads, everything else through the committer.

    Other stores are notified of changes by `sender`, which the statements that notify them name.
    """

    def __init__(self, database: Database, committer: GroupCommitter[PostgresUnit], sender: str) -> None:
        self._database = database
        self._committer = committer
        self._sender = sender

    def read_time(self, time: datetime) -> datetime:
        """Return a time as it is."""
        return time

    def read_texts(self, texts: list[str]) -> list[str]:
        """Return a list as it is."""
        return texts

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        rows = await self._database.read(*_arrange(statement, values, self._sender))
        return [tuple(row) for row in rows]

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        arranged = [tuple(_arrange(statement, values, self._sender)[1:]) for values in rows]
        await self._committer.submit(FoldableWrite((StatementRows(POSTGRES.prepare(statement).sql, arranged),)))

    async def transact(self, unit: Unit[T]) -> T:
        async def write(connection: Any) -> T:
            return await unit(Inside(connection, self._sender))

        result: T = await self._committer.commit(write)
        return result


class Inside(Transaction):
    """A transaction on the connection that writes."""

    def __init__(self, connection: Any, sender: str) -> None:
        self._connection = connection
        self._sender = sender

    async def fetch(self, statement: Statement, **values: Any) -> list[Columns]:
        rows = await self._connection.fetch(*_arrange(statement, values, self._sender))
        return [tuple(row) for row in rows]

    async def execute_many(self, statement: Statement, rows: Sequence[Values]) -> None:
        arranged = [tuple(_arrange(statement, values, self._sender)[1:]) for values in rows]
        await self._connection.executemany(POSTGRES.prepare(statement).sql, arranged)


def _arrange(statement: Statement, values: Values, sender: str) -> list[Any]:
    """Return a statement as PostgreSQL spells it, and behind it the values of its parameters in their order."""
    prepared = POSTGRES.prepare(statement)
    for value in values.values():
        if isinstance(value, datetime):
            check_timezone(value)
    known = {"sender": sender, **values}
    return [prepared.sql, *(known[name] for name in prepared.names)]
