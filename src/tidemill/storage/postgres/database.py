"""Transactions on PostgreSQL whose outcome is always known.

One connection writes, one reads, and one reads for requests. They are opened when they are needed, and again after they
were lost, so no node has to be restarted when the server was. Everything has a deadline, on the server and here: a
connection that swallows what it is sent becomes an error, never a wait.

When a connection is lost during a COMMIT, only the server knows whether that happened. Its transaction numbers do not
tell for sure: after a crash the server gives the number of a lost transaction to another one. So each transaction also
writes its turn into the row of its writer, together with BEGIN. A committer that finds the turn there knows that the
transaction was committed, and reading it waits for a transaction that is still open.

A transaction that needs to know nothing before it writes is one statement, without BEGIN and COMMIT. It may reach the
server after the committer has asked: so a committer that does not find the turn gives it up, and the statement, which
locks the row of its writer first, writes nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tidemill.kernel.errors import StoreError
from tidemill.kernel.ids import new_instance_id
from tidemill.storage.acting_tenant import EVERY_TENANT, acting_tenant
from tidemill.storage.committer import Ambiguous, CommitFuture, Committed, GroupCommitter, Transactor
from tidemill.storage.postgres.connection import PostgresUrl, ReconnectingConnection
from tidemill.storage.postgres.errors import (
    DRIVER_ERRORS,
    RETRYABLE_ERRORS,
    describe_error,
    translating_errors,
    was_rolled_back,
)
from tidemill.storage.postgres.writes import (
    AtOnce,
    FoldableWrite,
    PostgresUnit,
    StatementRows,
    find_at_once,
    run_units,
)
from tidemill.storage.queries import Queries

TRANSACTION_ATTEMPT_LIMIT = 5  # of a transaction that conflicts with another one
READ_PAGE_SIZE = 5000  # rows that a read fetches at a time


class Database(Transactor[PostgresUnit]):
    """A PostgreSQL database: the transactor of the group committer, and a way to read."""

    def __init__(self, address: PostgresUrl, queries: Queries) -> None:
        self._title = address.title
        self._queries = queries
        self._write_connection = ReconnectingConnection(address)
        self._reader = _Reader(address)
        self._request_reader = _Reader(address)
        self._writer_id = new_instance_id()
        self._transaction_number = 0
        self._begin = queries.begin.replace(":writer", self._writer_id)

    def open(self) -> None:
        """Allow connections from now on."""
        self._write_connection.open()
        self._reader.open()
        self._request_reader.open()

    async def open_read_only(self) -> None:
        """Connect to read as of this moment: all reads from now on share one transaction."""
        self._reader.open()
        with translating_errors(self._title):
            connection = await self._reader.ensure_connected()
            await connection.transaction(isolation="repeatable_read", readonly=True).start()

    async def close(self) -> None:
        """Close all connections."""
        await self._write_connection.close()
        await self._reader.close()
        await self._request_reader.close()

    async def read(self, statement: str, *arguments: Any) -> list[Any]:
        """Return the rows of a query."""
        (rows,) = await self._read(None, [(statement, *arguments)])
        return rows

    async def read_in_snapshot(self, *statements: tuple[Any, ...]) -> list[list[Any]]:
        """Return the rows of several queries, each with its arguments, as of one moment."""
        return await self._read("repeatable_read", statements)

    async def read_value(self, statement: str, *arguments: Any) -> Any:
        """Return the one value of a query, in one round trip."""
        async with self._reading() as connection:
            return await connection.fetchval(statement, *arguments)

    async def _read(self, isolation: str | None, statements: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        """Return the rows of queries, fetched in pages: so the deadline holds for any number of rows."""
        async with self._reading() as connection:
            transaction = connection.transaction(isolation=isolation, readonly=True)
            await transaction.start()
            results = [
                [row async for row in connection.cursor(statement, *arguments, prefetch=READ_PAGE_SIZE)]
                for statement, *arguments in statements
            ]
            await transaction.commit()
            return results

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Any]:
        """Lend a connection to read with; requests have their own, which shows the rows of their tenant only."""
        tenant = acting_tenant()
        reader = self._reader if tenant is None else self._request_reader
        async with reader.lock:
            with translating_errors(self._title):
                connection = await reader.ensure_connected(tenant or EVERY_TENANT)
                try:
                    yield connection
                except BaseException:
                    reader.terminate()
                    raise

    async def transact(self, units: Sequence[PostgresUnit]) -> Committed | Ambiguous:
        """Run units in one transaction; retry if it conflicts with another one."""
        with translating_errors(self._title, len(units)):
            for _ in range(TRANSACTION_ATTEMPT_LIMIT - 1):
                try:
                    return await self._transact(units)
                except RETRYABLE_ERRORS:
                    continue
            return await self._transact(units)

    async def was_committed(self, token: int) -> bool:
        """Return whether the transaction of a turn was committed; StoreError while it is open, or nothing answers."""
        with translating_errors(self._title):
            connection = await self._write_connection.ensure_connected()
            try:
                turn = await connection.fetchval(self._queries.give_up_turn, self._writer_id, token)
                return bool(turn == token)
            except BaseException:
                self._write_connection.terminate()
                raise

    async def _transact(self, units: Sequence[PostgresUnit]) -> Committed | Ambiguous:
        self._transaction_number += 1
        connection = await self._write_connection.ensure_connected()
        if (at_once := find_at_once(units)) is not None:
            outcome = await self._transact_at_once(connection, at_once)
            if outcome is not None:
                return outcome
        try:
            # In the text, not as arguments: these would cost another round trip.
            await connection.execute(self._begin.replace(":turn", str(self._transaction_number)))
            results = await run_units(units, connection)
        except asyncpg.PostgresError:
            await self._roll_back(connection)
            raise
        except BaseException:
            self._write_connection.terminate()
            raise
        return await self._commit(connection, results)

    async def _transact_at_once(self, connection: Any, at_once: AtOnce) -> Committed | Ambiguous | None:
        """Run one statement, which is a transaction; None if it does not find what it expects.

        A row that was to be new and is there already is not expected either: the second attempt says whose fault it is.
        """
        turn = (self._writer_id, self._transaction_number)
        statement, arguments = at_once.to_statement(self._queries.take_turn, turn)
        try:
            is_expected, rows = await connection.fetchrow(statement, *arguments)
        except asyncpg.IntegrityConstraintViolationError:
            return None
        except DRIVER_ERRORS as error:
            return self._end_unknown(error, at_once.read_results([]))
        except BaseException:
            self._write_connection.terminate()
            raise
        return Committed(at_once.read_results(rows or [])) if is_expected else None

    async def _commit(self, connection: Any, results: list[Any]) -> Committed | Ambiguous:
        try:
            status = await connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            return self._end_unknown(error, results)
        except BaseException:
            self._write_connection.terminate()
            raise
        if status != "COMMIT":
            raise StoreError(f"{self._title}: the transaction was rolled back")
        return Committed(results)

    def _end_unknown(self, error: Exception, results: list[Any]) -> Ambiguous:
        """Return the outcome of a transaction whose end the server has not told; raise if it was rolled back."""
        if was_rolled_back(error):
            raise error
        self._write_connection.terminate()
        return Ambiguous(self._transaction_number, results, f"{self._title}: {describe_error(error)}")

    async def _roll_back(self, connection: Any) -> None:
        try:
            await connection.execute("ROLLBACK")
        except DRIVER_ERRORS:
            self._write_connection.terminate()


class _Reader(ReconnectingConnection):
    """A connection to read with, which sees the rows of one tenant, or of all."""

    def __init__(self, address: PostgresUrl) -> None:
        super().__init__(address)
        self.lock = asyncio.Lock()
        self._acting = EVERY_TENANT
        self._acting_on: Any = None

    async def ensure_connected(self, tenant: str = EVERY_TENANT) -> Any:
        """Return a connection that acts for a tenant."""
        connection = await super().ensure_connected()
        if self._acting_on is not connection:
            self._acting, self._acting_on = EVERY_TENANT, connection
        if self._acting != tenant:
            await connection.execute("SELECT set_config('tidemill.tenant', $1, false)", tenant)
            self._acting = tenant
        return connection


class PostgresTable:
    """What every port of this store is built on: reads go to the database, writes through the committer."""

    def __init__(self, database: Database, committer: GroupCommitter[PostgresUnit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    def _read(self, statement: str, *arguments: Any) -> Awaitable[list[Any]]:
        """Return the rows of a query."""
        return self._database.read(statement, *arguments)

    def _write(self, *steps: StatementRows) -> CommitFuture[None]:
        """Write rows in the next transaction, folded with the same writes of others."""
        return self._committer.submit(FoldableWrite(steps))

    async def _write_returning(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement in the next transaction, and return its rows."""

        async def write(connection: Any) -> list[Any]:
            return list(await connection.fetch(statement, *arguments))

        rows: list[Any] = await self._committer.commit(write)
        return rows


class NotifyingTable(PostgresTable):
    """A table whose changes other stores are notified of; its statements name this store as the sender."""

    def __init__(
        self, database: Database, committer: GroupCommitter[PostgresUnit], queries: Queries, sender_id: str
    ) -> None:
        super().__init__(database, committer, queries)
        self._sender_id = sender_id
