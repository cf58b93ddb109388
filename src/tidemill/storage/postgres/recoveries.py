"""Recoveries in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

from tidemill.kernel.storable import storable
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.ports import Recoveries, StoredRecovery
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.times import check_zone


class PostgresRecoveries(Recoveries):
    """What was restarted, restored or given up, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        check_times(*recoveries)
        rows = [
            (one.id, one.tenant, one.component, one.name, one.at, one.action, storable(one.reason), one.failures)
            for one in recoveries
        ]
        await self._committer.commit(Write((Rows(self._queries.add_recoveries, rows, all_at_once=True),)))

    async def newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        rows = await self._database.read(self._queries.newest_recoveries, tenant, limit)
        return [StoredRecovery(**row) for row in rows]

    async def forget(self, before: datetime) -> None:
        check_zone(before)
        await self._committer.commit(Write((Rows(self._queries.forget_recoveries, [(before,)]),)))
