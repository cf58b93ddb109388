"""Connections to PostgreSQL, and transactions whose end is always known.

One connection writes and one reads. Both are opened when they are needed, and again after they were lost, so nothing
has to be restarted when the server was. Everything has a deadline, on the server and here: a connection that swallows
what it is sent becomes an error, never a wait.

When a connection goes during a COMMIT, only the server knows whether that happened. Its transaction numbers do not tell
for sure: after a crash the server gives the number of a lost transaction to another one. So each transaction also
writes its turn into the row of its writer, together with BEGIN. Whoever finds the turn there knows that it was
committed, and asking for it waits for a transaction that is still open.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import asyncpg

from tidemill.kernel.errors import StoreError
from tidemill.kernel.ids import incarnation
from tidemill.storage.committer import Ambiguous, Committed, Transactor
from tidemill.storage.postgres.address import Address
from tidemill.storage.postgres.faults import DRIVER_ERRORS, REPEATABLE, explain, refused, told_as_store_error
from tidemill.storage.postgres.writes import Unit, run
from tidemill.storage.queries import Queries

CONNECT_PATIENCE = 1.0  # seconds
ANSWER_PATIENCE = 5.0  # seconds for any statement; the server gives up a little earlier, and then says why
ATTEMPTS = 5  # at a transaction that ran into another one
PAGE = 5000  # rows that a read fetches at a time

_SESSION = {
    "application_name": "tidemill",
    "statement_timeout": "4s",
    "lock_timeout": "1200ms",  # a little longer than the server's deadlock_timeout: a circle is noticed first
    "idle_in_transaction_session_timeout": "3s",  # what a vanished node left open; its successor waits for that
    "tcp_user_timeout": "3s",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "jit": "off",  # costs more than any statement here
}


async def connect(
    address: Address, settings: Mapping[str, str] = MappingProxyType({}), patience: float = ANSWER_PATIENCE
) -> Any:
    """Open a connection, with settings of its own if need be; StoreError says what stands against it."""
    with told_as_store_error(address.title):
        try:
            return await asyncpg.connect(
                address.url,
                timeout=CONNECT_PATIENCE,
                command_timeout=patience,
                server_settings={**_SESSION, **settings},
            )
        except ValueError as error:  # of the URL's options; what it says might repeat a password
            raise StoreError(f"{address.title}: the options in its URL cannot be read; correct the URL") from error


async def hang_up(connection: Any) -> None:
    """Close a connection in good order, or at once if that takes long."""
    try:
        await connection.close(timeout=CONNECT_PATIENCE)
    except DRIVER_ERRORS:
        connection.terminate()


class Link:
    """One connection that is opened when it is needed, and again after it was lost, until the link is closed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._is_open = False

    def open(self) -> None:
        """Let connections be made from now on."""
        self._is_open = True

    async def connection(self) -> Any:
        """Return a connection that seems to work; StoreError if there is none to be had."""
        if self._connection is None or self._connection.is_closed():
            self._check_open()
            self._connection = await connect(self._address)
            if not self._is_open:  # closed meanwhile
                self.drop()
        self._check_open()
        return self._connection

    def drop(self) -> None:
        """Give the connection up, in whatever state it is; the server rolls back what was open."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Close the connection in good order, and make no other."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            await hang_up(connection)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreError("the store is not open")


class Database(Transactor[Unit]):
    """A PostgreSQL database: the transactor of the group committer, and a way to read."""

    def __init__(self, address: Address, queries: Queries) -> None:
        self._title = address.title
        self._queries = queries
        self._writing = Link(address)
        self._reading = Link(address)
        self._read_lock = asyncio.Lock()
        self._writer = incarnation()
        self._turn = 0

    def open(self) -> None:
        """Let connections be made from now on."""
        self._writing.open()
        self._reading.open()

    async def look(self) -> None:
        """Connect to read as of this moment: every read from now on is part of one transaction."""
        self._reading.open()
        with told_as_store_error(self._title):
            connection = await self._reading.connection()
            await connection.transaction(isolation="repeatable_read", readonly=True).start()

    async def close(self) -> None:
        """Close both connections."""
        await self._writing.close()
        await self._reading.close()

    async def read(self, statement: str, *arguments: Any) -> list[Any]:
        """Return the rows of a query."""
        (rows,) = await self._read(None, [(statement, *arguments)])
        return rows

    async def read_together(self, *questions: tuple[Any, ...]) -> list[list[Any]]:
        """Return the rows of several queries, each with its arguments, as of one moment."""
        return await self._read("repeatable_read", questions)

    async def _read(self, isolation: str | None, questions: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        """Return the rows of queries. They come in pages, so that the deadline holds for any number of them."""
        async with self._read_lock:
            with told_as_store_error(self._title):
                connection = await self._reading.connection()
                try:
                    transaction = connection.transaction(isolation=isolation, readonly=True)
                    await transaction.start()
                    answers = [
                        [row async for row in connection.cursor(statement, *arguments, prefetch=PAGE)]
                        for statement, *arguments in questions
                    ]
                    await transaction.commit()
                except BaseException:
                    self._reading.drop()
                    raise
                return answers

    async def transact(self, units: Sequence[Unit]) -> Committed | Ambiguous:
        """Run units in one transaction; again if it ran into another one."""
        with told_as_store_error(self._title, len(units)):
            for _ in range(ATTEMPTS - 1):
                try:
                    return await self._transact(units)
                except REPEATABLE:
                    continue
            return await self._transact(units)

    async def was_committed(self, token: int) -> bool:
        """Tell whether the transaction of a turn was committed; StoreError while it is open or nobody answers."""
        with told_as_store_error(self._title):
            connection = await self._writing.connection()
            try:
                return bool(await connection.fetchval(self._queries.last_turn, self._writer) == token)
            except BaseException:
                self._writing.drop()
                raise

    async def _transact(self, units: Sequence[Unit]) -> Committed | Ambiguous:
        self._turn += 1
        connection = await self._writing.connection()
        try:
            # In the text, not as arguments: these would cost a round trip of their own.
            await connection.execute(self._queries.begin.format(writer=self._writer, turn=self._turn))
            results = await run(units, connection)
        except asyncpg.PostgresError:
            await self._roll_back(connection)
            raise
        except BaseException:
            self._writing.drop()
            raise
        return await self._commit(connection, results)

    async def _commit(self, connection: Any, results: list[Any]) -> Committed | Ambiguous:
        try:
            status = await connection.execute("COMMIT")
        except DRIVER_ERRORS as error:
            if refused(error):
                raise
            self._writing.drop()
            return Ambiguous(self._turn, results, f"{self._title}: {explain(error)}")
        except BaseException:
            self._writing.drop()
            raise
        if status != "COMMIT":
            raise StoreError(f"{self._title}: the transaction was rolled back")
        return Committed(results)

    async def _roll_back(self, connection: Any) -> None:
        try:
            await connection.execute("ROLLBACK")
        except DRIVER_ERRORS:
            self._writing.drop()
