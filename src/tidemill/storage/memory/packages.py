"""Packages that are wanted, in memory."""

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Recorded, Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.package_ports import Packages, Published


class MemoryPackages(Packages):
    """Packages, their archives and what is recorded of them, by tenant and name."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def publish(self, package: Published, archive: bytes, found: int) -> bool:
        row, key = all_in_utc(package), (package.tenant, package.name)

        def write(tables: Tables) -> bool:
            stored = tables.packages.get(key)
            if found != (0 if stored is None else stored.revision):
                return False
            known = tables.recorded.get(key)
            revision = 1 if known is None else known.revision + 1
            tables.put(tables.recorded, key, Recorded(row.version, revision))
            tables.put(tables.packages, key, replace(row, revision=revision))
            tables.put(tables.archives, key, archive)
            return True

        is_published: bool = await self._committer.commit(write)
        return is_published

    async def withdraw(self, tenant: str, name: str) -> bool:
        key = (tenant, name)

        def write(tables: Tables) -> bool:
            was_wanted = key in tables.packages
            tables.drop(tables.packages, key)
            tables.drop(tables.archives, key)
            return was_wanted

        was_wanted: bool = await self._committer.commit(write)
        return was_wanted

    async def published(self) -> list[Published]:
        return [self._tables.packages[key] for key in sorted(self._tables.packages)]

    async def archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        package = self._tables.packages.get((tenant, name))
        if package is None or package.digest != digest:
            return None
        return self._tables.archives[tenant, name]

    async def recorded(self, tenant: str, name: str) -> str | None:
        known = self._tables.recorded.get((tenant, name))
        return None if known is None else known.version

    async def record(self, tenant: str, name: str, version: str) -> None:
        key = (tenant, name)

        def write(tables: Tables) -> None:
            known = tables.recorded.get(key)
            tables.put(tables.recorded, key, Recorded(version, 0 if known is None else known.revision))

        await self._committer.commit(write)
