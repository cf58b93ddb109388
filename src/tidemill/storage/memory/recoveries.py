"""Recoveries in memory."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import in_utc
from tidemill.storage.ports import Recoveries, StoredRecovery
from tidemill.storage.times import check_zone


class MemoryRecoveries(Recoveries):
    """Recoveries by id."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        rows = [replace(recovery, at=in_utc(recovery.at)) for recovery in recoveries]

        def write(tables: Tables) -> None:
            for recovery in rows:
                if recovery.id not in tables.recoveries:
                    tables.put(tables.recoveries, recovery.id, recovery)

        await self._committer.commit(write)

    async def newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        found = (one for one in self._tables.recoveries.values() if one.tenant == tenant)
        newest_first = sorted(found, key=lambda recovery: recovery.id, reverse=True)
        return newest_first[:limit][::-1]

    async def forget(self, before: datetime) -> None:
        check_zone(before)

        def write(tables: Tables) -> None:
            for recovery in [one for one in tables.recoveries.values() if one.at < before]:
                tables.drop(tables.recoveries, recovery.id)

        await self._committer.commit(write)
