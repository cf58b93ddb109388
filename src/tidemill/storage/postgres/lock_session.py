"""A separate session for the locks that show that the holder of a lease is alive.

It is never shared with reads and writes, and never recycled. The server ends it when it is idle for as long as a lease
lasts: so a process that is frozen, or cut off, soon loses its locks.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from tidemill.kernel.errors import StoreError
from tidemill.kernel.ids import new_instance_id
from tidemill.storage.postgres.connection import PostgresUrl, close_connection, connect
from tidemill.storage.postgres.errors import CONNECTION_LOST_ERRORS
from tidemill.storage.queries import Queries

Result = TypeVar("Result")

SESSION_ATTEMPT_LIMIT = 3  # of work whose session is lost meanwhile
LOCK_STATEMENT_TIMEOUT = 2.5  # seconds for any statement: a lease lasts hardly longer
IDLE_TIMEOUT = 3.0  # seconds after which the server ends an idle session
IDLE_TIMEOUT_LIMIT = 86400.0
SESSION_SETTINGS = {
    "idle_session_timeout": f"{IDLE_TIMEOUT:.0f}s",
    "lock_timeout": "2s",
    "statement_timeout": "2300ms",
}
_SESSION_LOST_ERRORS = (
    *CONNECTION_LOST_ERRORS,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
)


class LockSession:
    """A connection that holds locks by name, until it is lost."""

    def __init__(self, address: PostgresUrl, queries: Queries) -> None:
        self._address = address
        self._queries = queries
        self._connection: Any = None
        self._locks: set[str] = set()
        self._idle_timeout = IDLE_TIMEOUT
        self._is_checked = self._is_open = False

    def open(self) -> None:
        """Allow connections from now on."""
        self._is_open = True

    async def close(self) -> None:
        """Close the connection, which releases all locks, and open no other."""
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)

    async def run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Run work on the connection; again if that was lost meanwhile, and all locks with it."""
        for _ in range(SESSION_ATTEMPT_LIMIT - 1):
            try:
                return await self._run(work)
            except TimeoutError:  # there is no time for another attempt
                raise
            except _SESSION_LOST_ERRORS:
                continue
        return await self._run(work)

    def holds(self, name: str) -> bool:
        """Return whether a lock is held."""
        return name in self._locks

    async def lock(self, connection: Any, name: str, *, wait: bool = False) -> bool:
        """Acquire a lock if it is free, or wait a moment for it; return whether it is held."""
        if name not in self._locks:
            try:
                is_free = await connection.fetchval(self._queries.await_lock if wait else self._queries.try_lock, name)
            except asyncpg.LockNotAvailableError:
                return False
            if is_free is False:  # a lock that was waited for returns nothing
                return False
            self._locks.add(name)
        return True

    async def extend_idle_timeout(self, connection: Any, seconds: float) -> None:
        """Raise the idle timeout for a lease that lasts longer than others: it is renewed less often."""
        timeout = min(seconds, IDLE_TIMEOUT_LIMIT)
        if timeout > self._idle_timeout:
            await connection.execute(self._queries.set_idle_timeout, f"{1000 * timeout:.0f}ms")
            self._idle_timeout = timeout

    async def unlock(self, connection: Any, name: str) -> None:
        """Release a lock, if it is held."""
        if name in self._locks:
            await connection.execute(self._queries.unlock, name)
            self._locks.discard(name)

    async def _run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        try:
            return await work(await self._ensure_connected())
        except asyncpg.PostgresError as error:
            if isinstance(error, _SESSION_LOST_ERRORS):
                self._terminate()
            raise
        except BaseException:  # also a cancelled caller: the connection is in the middle of a statement
            self._terminate()
            raise

    async def _ensure_connected(self) -> Any:
        if not self._is_open:
            raise StoreError("the store is not open")
        if self._connection is None or self._connection.is_closed():
            self._locks, self._idle_timeout = set(), IDLE_TIMEOUT
            self._connection = await connect(self._address, SESSION_SETTINGS, LOCK_STATEMENT_TIMEOUT)
            if not self._is_open:  # closed meanwhile
                self._terminate()
                raise StoreError("the store is not open")
        if not self._is_checked:
            await self._check_no_pooler()
            self._is_checked = True
        return self._connection

    def _terminate(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _check_no_pooler(self) -> None:
        """Raise StoreError if a pooler shares sessions: a lock would then say nothing about its holder."""
        ours, name = self._connection, f"check {new_instance_id()}"
        before = await ours.fetchval(self._queries.backend_pid)
        await ours.fetchval(self._queries.try_lock, name)
        other = await connect(self._address, SESSION_SETTINGS, LOCK_STATEMENT_TIMEOUT)
        try:
            is_shared = await other.fetchval(self._queries.try_lock, name)
            if is_shared:
                await other.execute(self._queries.unlock, name)
        finally:
            await close_connection(other)
        async with ours.transaction():
            within = await ours.fetchval(self._queries.backend_pid)
        is_kept = await ours.fetchval(self._queries.unlock, name)
        after = await ours.fetchval(self._queries.backend_pid)
        if is_shared or not is_kept or not before == within == after:
            raise StoreError(
                f"{self._address.title}: a pooler in between gives one session to several clients, so that locks of a "
                "session mean nothing; connect to the server itself, or configure the pooler to keep a session for "
                "each client (pool_mode = session)"
            )
