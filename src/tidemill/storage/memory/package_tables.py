"""Tables of the packages in memory: published packages, trusted keys, loaded packages."""

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.storage.memory.tables import MemoryTable, RecordedVersion, Tables, times_to_utc
from tidemill.storage.package_ports import (
    LoadedPackage,
    Packages,
    PackageStates,
    PublishedPackage,
    TrustedKey,
    TrustedKeys,
)


class MemoryPackages(MemoryTable, Packages):
    """Packages, their archives and recorded versions, by tenant and name."""

    async def publish(self, package: PublishedPackage, archive: bytes, expected_revision: int) -> bool:
        row, key = times_to_utc(package), (package.tenant, package.name)

        def write(tables: Tables) -> bool:
            stored = tables.packages.get(key)
            if expected_revision != (0 if stored is None else stored.revision):
                return False
            known = tables.recorded_versions.get(key)
            revision = 1 if known is None else known.revision + 1
            tables.put(tables.recorded_versions, key, RecordedVersion(row.version, revision))
            tables.put(tables.packages, key, replace(row, revision=revision))
            tables.put(tables.archives, key, archive)
            return True

        is_published: bool = await self._committer.commit(write)
        return is_published

    async def withdraw(self, tenant: str, name: str) -> bool:
        key = (tenant, name)

        def write(tables: Tables) -> bool:
            was_published = key in tables.packages
            tables.delete(tables.packages, key)
            tables.delete(tables.archives, key)
            return was_published

        was_published: bool = await self._committer.commit(write)
        return was_published

    async def list_published(self) -> list[PublishedPackage]:
        return [self._tables.packages[key] for key in sorted(self._tables.packages)]

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        package = self._tables.packages.get((tenant, name))
        if package is None or package.digest != digest:
            return None
        return self._tables.archives[tenant, name]

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        known = self._tables.recorded_versions.get((tenant, name))
        return None if known is None else known.version

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        key = (tenant, name)

        def write(tables: Tables) -> None:
            known = tables.recorded_versions.get(key)
            tables.put(tables.recorded_versions, key, RecordedVersion(version, 0 if known is None else known.revision))

        await self._committer.commit(write)


class MemoryPackageStates(MemoryTable, PackageStates):
    """Loaded packages by tenant, name and owner."""

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        utc_rows = [times_to_utc(row) for row in rows]

        def write(tables: Tables) -> None:
            for row in utc_rows:
                tables.put(tables.package_states, (row.tenant, row.name, row.owner), row)

        await self._committer.commit(write)

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        def write(tables: Tables) -> None:
            for key in rows:
                tables.delete(tables.package_states, key)

        await self._committer.commit(write)

    async def list_all(self) -> list[LoadedPackage]:
        return sorted(self._tables.package_states.values(), key=lambda row: (row.tenant, row.name, row.at, row.owner))


class MemoryTrustedKeys(MemoryTable, TrustedKeys):
    """Keys by tenant and id."""

    async def add(self, key: TrustedKey) -> None:
        row = times_to_utc(key)

        def write(tables: Tables) -> None:
            if (row.tenant, row.id) not in tables.trusted_keys:
                tables.put(tables.trusted_keys, (row.tenant, row.id), row)

        await self._committer.commit(write)

    async def delete(self, tenant: str, id: str) -> bool:
        def write(tables: Tables) -> bool:
            was_trusted = (tenant, id) in tables.trusted_keys
            tables.delete(tables.trusted_keys, (tenant, id))
            return was_trusted

        was_trusted: bool = await self._committer.commit(write)
        return was_trusted

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        keys = [key for key in self._tables.trusted_keys.values() if key.tenant == tenant]
        return sorted(keys, key=lambda key: (key.at, key.id))
