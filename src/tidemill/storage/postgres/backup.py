"""Whole tables of a PostgreSQL database, for backups: read as of one moment, or replaced in one transaction."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.backup import INITIAL_TABLES, Replacement, Snapshot, StoredTable, WriteChunk
from tidemill.storage.migrations import load_migrations
from tidemill.storage.postgres.connection import (
    PostgresUrl,
    apply_migrations,
    close_connection,
    connect,
    read_version,
)
from tidemill.storage.postgres.errors import translating_errors
from tidemill.storage.queries import Queries

_PATIENCE = 24 * 3600.0  # seconds for a table
_SETTINGS = {
    "application_name": "tidemill backup",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",  # the file may be on a slow disk
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}


class PostgresSnapshot(Snapshot):
    """The rows of a database, in a transaction that reads as of one moment."""

    kind = "postgresql"

    def __init__(self, connection: Any, address: PostgresUrl, queries: Queries) -> None:
        self._connection, self._queries = connection, queries
        self.title = address.title
        self.schema_version = 0
        self.tables: Sequence[StoredTable] = []
        self.sequences: Mapping[str, int] = {}
        self._protected: list[str] = []

    async def prepare(self) -> None:
        """Find the tables; StoreError if the role of the connection cannot read all of their rows."""
        self.schema_version = await read_version(self._connection, self._queries)
        if not self.schema_version:
            raise RequestError(
                f"{self.title} has no tables of Tidemill: check the address", code="no_store", status=404
            )
        found = await self._connection.fetch(self._queries.list_tables)
        self.tables = [StoredTable(name, tuple(columns)) for name, columns, *_ in found]
        self._protected = [name for name, _, is_protected, _ in found if is_protected]
        hidden = [f"table {name} may not be read" for name, *_, is_readable in found if not is_readable]
        policies = await self._connection.fetch(self._queries.list_strange_policies)
        hidden += [f"policy {policy} may hide rows of table {table}" for table, policy in policies]
        if hidden:
            raise StoreError(
                f"{self.title}: this role cannot read everything ({hidden[0]}): "
                "use the role of the servers, which owns the tables"
            )
        self.sequences = dict(await self._connection.fetch(self._queries.list_sequences))

    async def read_rows(self, table: StoredTable, write: WriteChunk) -> None:
        rest = b""

        async def take(chunk: bytes) -> None:
            nonlocal rest
            lines, newline, rest_of_chunk = chunk.rpartition(b"\n")
            if newline:
                write(rest + lines + newline)
                rest = rest_of_chunk
            else:
                rest += rest_of_chunk

        query = f"SELECT {', '.join(map(_quote, table.columns))} FROM tidemill.{_quote(table.name)}"
        await self._connection.copy_from_query(query, output=take, timeout=_PATIENCE)


class PostgresReplacement(PostgresSnapshot, Replacement):
    """New tables, which others see when the transaction ends."""

    async def prepare(self) -> None:
        await super().prepare()
        for name in self._protected:  # COPY writes to no table whose rows are protected from its owner
            await self._connection.execute(f"ALTER TABLE tidemill.{_quote(name)} NO FORCE ROW LEVEL SECURITY")
        for table in self.tables:
            await self._connection.execute(f"DELETE FROM tidemill.{_quote(table.name)}")  # what migrations have written

    async def write_rows(self, table: StoredTable, chunks: AsyncIterator[bytes]) -> None:
        await self._connection.copy_to_table(
            table.name, schema_name="tidemill", columns=table.columns, source=chunks, timeout=_PATIENCE
        )

    async def set_sequences(self, sequences: Mapping[str, int]) -> None:
        for name, last in sequences.items():
            await self._connection.execute("SELECT setval($1::text::regclass, $2)", f"tidemill.{_quote(name)}", last)

    async def finish(self) -> None:
        """Protect the rows again, bring the schema up to date, and let the planner know the tables."""
        for name in self._protected:
            await self._connection.execute(f"ALTER TABLE tidemill.{_quote(name)} FORCE ROW LEVEL SECURITY")
        await apply_migrations(self._connection, self._queries, load_migrations(__package__)[self.schema_version :])
        for table in await self._connection.fetch(self._queries.list_tables):
            await self._connection.execute(f"ANALYZE tidemill.{_quote(table[0])}")


@asynccontextmanager
async def open_snapshot(address: PostgresUrl, queries: Queries) -> AsyncIterator[PostgresSnapshot]:
    """Open a database to read all of it as of now."""
    connection = await connect(address, _SETTINGS)
    try:
        with translating_errors(address.title):
            await connection.execute(queries.begin_snapshot)
            snapshot = PostgresSnapshot(connection, address, queries)
            await snapshot.prepare()
            yield snapshot
    finally:
        await close_connection(connection)


@asynccontextmanager
async def open_replacement(
    address: PostgresUrl, queries: Queries, version: int, *, replace: bool
) -> AsyncIterator[PostgresReplacement]:
    """Replace all tables by those of a schema version; all of it is undone if the block fails."""
    connection = await connect(address, _SETTINGS, timeout=_PATIENCE)
    try:
        with translating_errors(address.title):
            await connection.execute(queries.begin_migration)
            await _check_replaceable(connection, address, queries, replace=replace)
            await connection.execute(queries.drop_everything)
            await apply_migrations(connection, queries, load_migrations(__package__)[:version])
            target = PostgresReplacement(connection, address, queries)
            await target.prepare()
            yield target
            await target.finish()
            await connection.execute("COMMIT")
    finally:
        await close_connection(connection)


async def _check_replaceable(connection: Any, address: PostgresUrl, queries: Queries, *, replace: bool) -> None:
    """Raise an error if a database has rows that were not given up, or is in use."""
    if await connection.fetchval(queries.has_foreign_tables):
        message = f"{address.title}: its schema 'tidemill' holds tables of another application; use another database"
        raise StoreError(message)
    if others := await connection.fetchval(queries.count_other_sessions):
        sessions = "a connection" if others == 1 else f"{others} connections"
        message = f"{address.title}: {sessions} of Tidemill {'is' if others == 1 else 'are'} open; "
        raise StoreError(f"{message}stop servers, workers and programs on it first")
    if replace or not await read_version(connection, queries):
        return
    for name, *_ in await connection.fetch(queries.list_tables):
        if name not in INITIAL_TABLES and await connection.fetchval(
            f"SELECT EXISTS (SELECT FROM tidemill.{_quote(name)})"
        ):
            message = f"{address.title} is not empty ({name}): name a new database, or add --replace"
            raise RequestError(f"{message}, which deletes what it holds", code="not_empty", status=409)


def _quote(name: str) -> str:
    return f'"{name}"'
