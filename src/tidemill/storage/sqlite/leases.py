"""Leases, and owners of parts, in SQLite."""

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.graph_ports import PartFence, PartKey, PartKind, PartOwner, PartOwners
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteTable, SqliteUnit
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.storage.workflow_ports import Lease, LeaseRenewal, Leases


class SqliteLeases(SqliteTable, Leases):
    """The table `leases`."""

    has_own_clock = False

    def __init__(
        self,
        database: Database,
        committer: GroupCommitter[SqliteUnit],
        queries: Queries,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(database, committer, queries)
        self._now = now

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        now = self._now()
        values = {
            "name": name,
            "holder": holder,
            "now": to_micros(now),
            "until": to_micros(now + timedelta(seconds=ttl)),
            "dead": json.dumps(list(dead_holders)),
        }

        def write(connection: sqlite3.Connection) -> int | None:
            acquired = connection.execute(self._queries.acquire_lease, values).fetchone()
            return None if acquired is None else int(acquired[0])

        return await self._write(write)

    async def take_over(self, name: str, silent: LeaseRenewal, holder: str, ttl: float) -> int | None:
        until = to_micros(self._now() + timedelta(seconds=ttl))
        values = (holder, until, name, silent.holder, silent.epoch, to_micros(silent.until))

        def write(connection: sqlite3.Connection) -> int | None:
            acquired = connection.execute(self._queries.take_over_lease, values).fetchone()
            return None if acquired is None else int(acquired[0])

        return await self._write(write)

    async def last_renewal(self, name: str) -> LeaseRenewal | None:
        rows = await self._fetch_all(self._queries.last_renewal, (name,))
        return next((LeaseRenewal(holder, epoch, from_micros(until)) for holder, epoch, until in rows), None)

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        values = (to_micros(self._now() + timedelta(seconds=ttl)), name, epoch)
        return await self._write(lambda connection: connection.execute(self._queries.renew_lease, values).rowcount == 1)

    async def release(self, name: str, epoch: int) -> None:
        await self._execute_many(self._queries.release_lease, [(name, epoch)])

    async def current(self, name: str) -> Lease | None:
        rows = await self._fetch_all(self._queries.current_lease, (name,))
        return Lease(*rows[0]) if rows else None


class SqlitePartOwners(SqliteTable, PartOwners):
    """The table `part_owners`."""

    async def acquire(
        self, keys: Sequence[PartKey], owner: str, abandoned: Collection[PartOwner] = ()
    ) -> list[PartFence] | PartOwner:
        def write(connection: sqlite3.Connection) -> list[PartFence] | PartOwner:
            for key in keys:
                for row in connection.execute(self._queries.part_owner, key):
                    current = PartOwner(key, *row)
                    if current.owner != owner and current not in abandoned:
                        return current
            values = [{**key._asdict(), "owner": owner} for key in keys]
            epochs = [connection.execute(self._queries.acquire_part, one).fetchone()[0] for one in values]
            return [PartFence(key, epoch) for key, epoch in zip(keys, epochs, strict=True)]

        return await self._write(write)

    async def renew(self, owner: str) -> set[PartFence]:
        rows = await self._write(lambda connection: connection.execute(self._queries.renew_parts, (owner,)).fetchall())
        return {PartFence(PartKey(*key), epoch) for *key, epoch in rows}

    async def release(self, fences: Sequence[PartFence]) -> None:
        await self._execute_many(self._queries.release_part, [(*key, epoch) for key, epoch in fences])

    async def owners_of(self, keys: Sequence[PartKey]) -> list[PartOwner]:
        found = [(key, await self._fetch_all(self._queries.part_owner, key)) for key in sorted(set(keys))]
        return [PartOwner(key, *row) for key, rows in found for row in rows]

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        return [name for (name,) in await self._fetch_all(self._queries.owned_part_names, (tenant, kind))]
