"""Leases in SQLite."""

import json
import sqlite3
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from tidemill.storage.committer import GroupCommitter
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
