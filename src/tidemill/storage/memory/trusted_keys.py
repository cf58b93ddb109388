"""Keys that may sign packages, in memory."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.package_ports import TrustedKey, TrustedKeys


class MemoryTrustedKeys(TrustedKeys):
    """Keys by tenant and id."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, key: TrustedKey) -> None:
        row = all_in_utc(key)

        def write(tables: Tables) -> None:
            if (row.tenant, row.id) not in tables.trusted_keys:
                tables.put(tables.trusted_keys, (row.tenant, row.id), row)

        await self._committer.commit(write)

    async def remove(self, tenant: str, id: str) -> bool:
        def write(tables: Tables) -> bool:
            was_trusted = (tenant, id) in tables.trusted_keys
            tables.drop(tables.trusted_keys, (tenant, id))
            return was_trusted

        was_trusted: bool = await self._committer.commit(write)
        return was_trusted

    async def of(self, tenant: str) -> list[TrustedKey]:
        found = [key for key in self._tables.trusted_keys.values() if key.tenant == tenant]
        return sorted(found, key=lambda key: (key.at, key.id))
