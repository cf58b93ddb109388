"""Recoveries in SQLite."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.ports import Recoveries, StoredRecovery
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteRecoveries(Recoveries):
    """The table `recoveries`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        await self._database.write_many(self._queries.add_recovery, [_row(one) for one in recoveries])

    async def newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        newest_first = await self._database.rows(self._queries.newest_recoveries, (tenant, limit))
        return [_recovery(row) for row in reversed(newest_first)]

    async def forget(self, before: datetime) -> None:
        await self._database.write_many(self._queries.forget_recoveries, [(to_micros(before),)])


def _row(one: StoredRecovery) -> tuple[Any, ...]:
    return (one.id, one.tenant, one.component, one.name, to_micros(one.at), one.action, one.reason, one.failures)


def _recovery(row: Any) -> StoredRecovery:
    id_, tenant, component, name, at, action, reason, failures = row
    return StoredRecovery(
        id=id_,
        tenant=tenant,
        component=component,
        name=name,
        at=from_micros(at),
        action=action,
        reason=reason,
        failures=failures,
    )
