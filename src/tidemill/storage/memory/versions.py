"""Versions of workflows in memory."""

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.run_ports import Version, Versions
from tidemill.workflows.records import VersionKey


class MemoryVersions(Versions):
    """Versions by key."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, version: Version) -> None:
        row = all_in_utc(version)

        def write(tables: Tables) -> None:
            known = tables.versions.get(row.key, row)
            tables.put(tables.versions, row.key, replace(known, seen_at=max(known.seen_at, row.seen_at)))

        await self._committer.commit(write)

    async def get(self, key: VersionKey) -> Version | None:
        return self._tables.versions.get(key)

    async def of(self, tenant: str) -> list[Version]:
        found = [row for row in self._tables.versions.values() if row.key.tenant == tenant]
        return sorted(found, key=lambda row: (row.key.workflow, row.seen_at, row.key.version))
