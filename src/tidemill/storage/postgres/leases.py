"""Leases in PostgreSQL: a row decides, by the server's clock; a lock makes a death known sooner.

Whoever is in office holds a lock of the office's name on a session of its own. If the lock is free and that session is
gone, the holder is dead, and nobody has to wait for the row to run out. If the row has run out and the lock is still
held, its holder is frozen or cut off: its session is ended, if the server allows that. If it does not, the server ends
it before long by itself (see `lock_session`), and the office is taken without the lock until then.

None of this keeps the old holder from writing. That does the row: what is written under an epoch locks it, so that the
epoch cannot change in between, and finds another epoch once it has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

import asyncpg

from tidemill.storage.postgres.connection import PostgresUrl
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.errors import translating_errors
from tidemill.storage.postgres.lock_session import LockSession
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.queries import Queries
from tidemill.storage.workflow_ports import Lease, Leases

Result = TypeVar("Result")


class PostgresLeases(Leases):
    """Offices that one holder has at a time, in a table."""

    def __init__(self, address: PostgresUrl, database: Database, queries: Queries, now: LeaseClock) -> None:
        self._title = address.title
        self._database = database
        self._queries = queries
        self._now = now
        self._session = LockSession(address, queries)
        self._session_guard = asyncio.Lock()
        self._held_epochs: dict[str, int] = {}

    def open(self) -> None:
        """Let offices be taken from now on."""
        self._session_guard = asyncio.Lock()
        self._session.open()

    async def close(self) -> None:
        """Let go of all locks. Offices that were not released are free for others at once."""
        await self._session.close()

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        async def take(connection: Any) -> int | None:
            try:
                epoch = await self._try_acquire(connection, name, holder, ttl, dead_holders)
            except asyncpg.PostgresError:
                await self._unlock_unless_held(connection, name)
                raise
            if epoch is None:
                await self._unlock_unless_held(connection, name)
            else:
                self._held_epochs[name] = epoch
                await self._session.extend_idle_timeout(connection, ttl)
            return epoch

        return await self._run_in_session(take)

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        async def renew(connection: Any) -> bool:
            if await connection.fetchval(self._queries.renew_lease, name, epoch, ttl, self._now()) is None:
                await self._forget_lease(connection, name, epoch)
                return False
            self._held_epochs[name] = epoch
            await self._session.extend_idle_timeout(connection, ttl)
            await self._session.lock(connection, name)  # which a lost session has lost; if it lingers, then next time
            return True

        return await self._run_in_session(renew)

    async def release(self, name: str, epoch: int) -> None:
        async def release(connection: Any) -> None:
            await connection.execute(self._queries.release_lease, name, epoch)
            await self._forget_lease(connection, name, epoch)

        await self._run_in_session(release)

    async def current(self, name: str) -> Lease | None:
        rows = await self._database.read(self._queries.current_lease, name)
        return Lease(*rows[0]) if rows else None

    async def _run_in_session(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        async with self._session_guard:
            with translating_errors(self._title):
                return await self._session.run(work)

    async def _try_acquire(
        self, connection: Any, name: str, holder: str, ttl: float, dead_holders: Collection[str]
    ) -> int | None:
        row = await connection.fetchrow(self._queries.lease, name, self._now())
        epoch, has_run_out = (0, False) if row is None else (row["epoch"], row["has_run_out"])
        is_free = row is None or row["holder"] is None or row["holder"] in dead_holders
        if self._held_epochs.get(name) != epoch:
            self._held_epochs.pop(name, None)  # somebody else has it since
        if not is_free and not has_run_out and (self._session.holds(name) or row["is_connected"]):
            return None
        if not await self._acquire_lock(connection, name, epoch, has_expired=is_free or has_run_out):
            return None
        # Without the condition on the time where the holder is known to be gone.
        is_gone = is_free or not has_run_out
        taken = await connection.fetchval(self._queries.acquire_lease, name, holder, ttl, epoch, is_gone, self._now())
        return None if taken is None else int(taken)

    async def _acquire_lock(self, connection: Any, name: str, epoch: int, *, has_expired: bool) -> bool:
        """Get the lock, from a holder whose time is over if need be; return whether the office may be taken."""
        if await self._session.lock(connection, name):
            return True
        if not has_expired:
            return False
        try:
            ended = await connection.fetch(self._queries.terminate_holder, name, epoch)
        except asyncpg.InsufficientPrivilegeError:  # somebody else's session: it ends by itself, and the row decides
            return True
        # If the lock is not the holder's, somebody else is about to take the office.
        return bool(ended) and await self._session.lock(connection, name, wait=True)

    async def _unlock_unless_held(self, connection: Any, name: str) -> None:
        """Drop the lock of an office that was not taken: as long as somebody has the lock, nobody else takes it."""
        if name not in self._held_epochs and not connection.is_closed():
            await self._session.unlock(connection, name)

    async def _forget_lease(self, connection: Any, name: str, epoch: int) -> None:
        if self._held_epochs.get(name) == epoch:
            del self._held_epochs[name]
            await self._session.unlock(connection, name)
