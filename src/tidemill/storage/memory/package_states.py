"""What the nodes have loaded of packages, in memory."""

from collections.abc import Sequence

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.package_ports import LoadedPackage, PackageStates


class MemoryPackageStates(PackageStates):
    """What is loaded by tenant, name and owner."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, rows: Sequence[LoadedPackage]) -> None:
        loaded = [all_in_utc(row) for row in rows]

        def write(tables: Tables) -> None:
            for row in loaded:
                tables.put(tables.package_states, (row.tenant, row.name, row.owner), row)

        await self._committer.commit(write)

    async def remove(self, rows: Sequence[tuple[str, str, str]]) -> None:
        def write(tables: Tables) -> None:
            for key in rows:
                tables.drop(tables.package_states, key)

        await self._committer.commit(write)

    async def all(self) -> list[LoadedPackage]:
        return sorted(self._tables.package_states.values(), key=lambda row: (row.tenant, row.name, row.at, row.owner))
