"""Leases in PostgreSQL: a row decides, by the server's clock; a lock makes a death known sooner.

The holder of a lease also holds an advisory lock of the lease's name, on a separate session. If the lock is free and
that session is gone, the holder is dead, and a candidate need not wait for the row to expire. If the row has expired
and the lock is still held, its holder is frozen or cut off: its session is terminated, if the server allows that. If it
does not, the server soon ends it by itself (see `lock_session`), and the lease is acquired without the lock until then.

None of this keeps the old holder from writing. The row does: a write under an epoch locks the row, so that the epoch
cannot change in between, and finds another epoch once it has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import asyncpg

from tidemill.storage.graph_ports import PartFence, PartKey, PartKind, PartOwner, PartOwners
from tidemill.storage.postgres.connection import PostgresUrl
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import translating_errors
from tidemill.storage.postgres.lock_session import LockSession
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.postgres.writes import StatementRows, to_columns
from tidemill.storage.queries import Queries
from tidemill.storage.workflow_ports import Lease, LeaseRenewal, Leases

Result = TypeVar("Result")


class PostgresLeases(Leases):
    """The table `leases`, and the locks of the leases that this store holds."""

    def __init__(self, address: PostgresUrl, database: Database, queries: Queries, now: LeaseClock) -> None:
        self._title = address.title
        self._database = database
        self._queries = queries
        self._now = now
        self.has_own_clock = now() is None
        self._session = LockSession(address, queries)
        self._session_guard = asyncio.Lock()
        self._held_epochs: dict[str, int] = {}

    def open(self) -> None:
        """Allow leases to be acquired from now on."""
        self._session_guard = asyncio.Lock()
        self._session.open()

    async def close(self) -> None:
        """Release all locks. Other candidates can acquire leases that were not released immediately."""
        await self._session.close()

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        def acquire(connection: Any) -> Awaitable[int | None]:
            return self._try_acquire(connection, name, holder, ttl, dead_holders)

        return await self._run_in_session(lambda connection: self._keep_if_acquired(connection, name, ttl, acquire))

    async def take_over(self, name: str, silent: LeaseRenewal, holder: str, ttl: float) -> int | None:
        def acquire(connection: Any) -> Awaitable[int | None]:
            return self._try_take_over(connection, name, silent, holder, ttl)

        return await self._run_in_session(lambda connection: self._keep_if_acquired(connection, name, ttl, acquire))

    async def last_renewal(self, name: str) -> LeaseRenewal | None:
        rows = await self._database.read(self._queries.last_renewal, name)
        return LeaseRenewal(*rows[0]) if rows else None

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        async def renew(connection: Any) -> bool:
            if await connection.fetchval(self._queries.renew_lease, name, epoch, ttl, self._now()) is None:
                await self._drop_lease(connection, name, epoch)
                return False
            self._held_epochs[name] = epoch
            await self._session.extend_idle_timeout(connection, ttl)
            # The lock is lost with its session. If the old session still holds it, the next renewal acquires it.
            await self._session.lock(connection, name)
            return True

        return await self._run_in_session(renew)

    async def release(self, name: str, epoch: int) -> None:
        async def release(connection: Any) -> None:
            await connection.execute(self._queries.release_lease, name, epoch)
            await self._drop_lease(connection, name, epoch)

        await self._run_in_session(release)

    async def current(self, name: str) -> Lease | None:
        rows = await self._database.read(self._queries.current_lease, name)
        return Lease(*rows[0]) if rows else None

    async def _run_in_session(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        async with self._session_guard:
            with translating_errors(self._title):
                return await self._session.run(work)

    async def _keep_if_acquired(
        self, connection: Any, name: str, ttl: float, acquire: Callable[[Any], Awaitable[int | None]]
    ) -> int | None:
        """Acquire a lease; keep its lock only if that succeeds."""
        try:
            epoch = await acquire(connection)
        except asyncpg.PostgresError:
            await self._unlock_unless_held(connection, name)
            raise
        if epoch is None:
            await self._unlock_unless_held(connection, name)
        else:
            self._held_epochs[name] = epoch
            await self._session.extend_idle_timeout(connection, ttl)
        return epoch

    async def _try_take_over(
        self, connection: Any, name: str, silent: LeaseRenewal, holder: str, ttl: float
    ) -> int | None:
        if self._held_epochs.get(name) != silent.epoch:
            self._held_epochs.pop(name, None)  # another holder has acquired it since
        if not await self._acquire_lock(connection, name, silent.epoch, has_expired=True):
            return None
        values = (name, holder, ttl, silent.epoch, silent.until, self._now())
        acquired = await connection.fetchval(self._queries.take_over_lease, *values)
        return None if acquired is None else int(acquired)

    async def _try_acquire(
        self, connection: Any, name: str, holder: str, ttl: float, dead_holders: Collection[str]
    ) -> int | None:
        row = await connection.fetchrow(self._queries.lease, name, self._now())
        epoch, has_expired = (0, False) if row is None else (row["epoch"], row["has_expired"])
        is_free = row is None or row["holder"] is None or row["holder"] in dead_holders
        if self._held_epochs.get(name) != epoch:
            self._held_epochs.pop(name, None)  # another holder has acquired it since
        if not is_free and not has_expired and (self._session.holds(name) or row["is_connected"]):
            return None
        if not await self._acquire_lock(connection, name, epoch, has_expired=is_free or has_expired):
            return None
        # The condition on the time is skipped where the holder is known to be gone.
        is_gone = is_free or not has_expired
        values = (name, holder, ttl, epoch, is_gone, self._now())
        acquired = await connection.fetchval(self._queries.acquire_lease, *values)
        return None if acquired is None else int(acquired)

    async def _acquire_lock(self, connection: Any, name: str, epoch: int, *, has_expired: bool) -> bool:
        """Acquire the lock, terminating an expired holder's session; return whether the lease may be acquired."""
        if await self._session.lock(connection, name):
            return True
        if not has_expired:
            return False
        try:
            terminated = await connection.fetch(self._queries.terminate_holder, name, epoch)
        except asyncpg.InsufficientPrivilegeError:  # another user's session: it ends by itself, and the row decides
            return True
        # If the lock is not the holder's, another candidate is about to acquire the lease.
        return bool(terminated) and await self._session.lock(connection, name, wait=True)

    async def _unlock_unless_held(self, connection: Any, name: str) -> None:
        """Release the lock of a lease that was not acquired: a held lock keeps other candidates away."""
        if name not in self._held_epochs and not connection.is_closed():
            await self._session.unlock(connection, name)

    async def _drop_lease(self, connection: Any, name: str, epoch: int) -> None:
        if self._held_epochs.get(name) == epoch:
            del self._held_epochs[name]
            await self._session.unlock(connection, name)


class PostgresPartOwners(PostgresTable, PartOwners):
    """The table `part_owners`. Rows are always locked in the order of their keys."""

    async def acquire(
        self, keys: Sequence[PartKey], owner: str, abandoned: Collection[PartOwner] = ()
    ) -> list[PartFence] | PartOwner:
        columns = to_columns(sorted(keys))

        async def write(connection: Any) -> list[PartFence] | PartOwner:
            await connection.execute(self._queries.insert_part_owners, *columns)
            for current in map(_decode_owner, await connection.fetch(self._queries.lock_part_owners, *columns)):
                if current.owner not in (None, owner) and current not in abandoned:
                    return current
            acquired = await connection.fetch(self._queries.acquire_parts, *columns, owner)
            return [PartFence(PartKey(*key), epoch) for *key, epoch in acquired]

        result: list[PartFence] | PartOwner = await self._committer.commit(write) if keys else []
        return result

    async def renew(self, owner: str) -> set[PartFence]:
        async def write(connection: Any) -> set[PartFence]:
            rows = await connection.fetch(self._queries.renew_parts, owner)
            return {PartFence(PartKey(*key), epoch) for *key, epoch in rows}

        renewed: set[PartFence] = await self._committer.commit(write)
        return renewed

    async def release(self, fences: Sequence[PartFence]) -> None:
        rows = [(*key, epoch) for key, epoch in sorted(fences)]
        await self._write(StatementRows(self._queries.release_part, rows))

    async def owners_of(self, keys: Sequence[PartKey]) -> list[PartOwner]:
        if not keys:
            return []
        return [_decode_owner(row) for row in await self._read(self._queries.owners_of_parts, *to_columns(list(keys)))]

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        return [name for (name,) in await self._read(self._queries.owned_part_names, tenant, kind)]


def _decode_owner(row: Any) -> PartOwner:
    *key, owner, epoch, renewals = row
    return PartOwner(PartKey(*key), owner, epoch, renewals)
