"""Tables of the packages in SQLite: published packages, trusted keys, loaded packages."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from tidemill.storage.package_ports import (
    LoadedPackage,
    Packages,
    PackageStates,
    PublishedPackage,
    TrustedKey,
    TrustedKeys,
)
from tidemill.storage.sqlite.database import SqliteTable
from tidemill.storage.sqlite.run_rows import from_micros, to_micros


class SqlitePackages(SqliteTable, Packages):
    """The tables `packages` and `package_versions`."""

    async def publish(self, package: PublishedPackage, archive: bytes, expected_revision: int) -> bool:
        queries, key = self._queries, (package.tenant, package.name)
        columns = (*key, package.version, package.digest, package.size, to_micros(package.at))

        def write(connection: sqlite3.Connection) -> bool:
            stored = connection.execute(queries.package_revision, key).fetchone()
            if expected_revision != (0 if stored is None else stored[0]):
                return False
            (revision,) = connection.execute(queries.record_package, (*key, package.version, 1)).fetchone()
            connection.execute(queries.upsert_package, (*columns, revision, archive))
            return True

        return await self._write(write)

    async def withdraw(self, tenant: str, name: str) -> bool:
        return await self._write(
            lambda connection: connection.execute(self._queries.withdraw_package, (tenant, name)).rowcount == 1
        )

    async def list_published(self) -> list[PublishedPackage]:
        return [_decode_package(row) for row in await self._fetch_all(self._queries.all_packages)]

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        for (archive,) in await self._fetch_all(self._queries.archive_of, (tenant, name, digest)):
            return bytes(archive)
        return None

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        for (version,) in await self._fetch_all(self._queries.recorded_version, (tenant, name)):
            return str(version)
        return None

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        values = (tenant, name, version, 0)
        await self._write(lambda connection: connection.execute(self._queries.record_package, values).fetchone())


def _decode_package(row: Any) -> PublishedPackage:
    tenant, name, version, digest, size, at, revision = row
    return PublishedPackage(
        tenant=tenant,
        name=name,
        version=version,
        digest=digest,
        size=size,
        at=from_micros(at),
        revision=revision,
    )


class SqlitePackageStates(SqliteTable, PackageStates):
    """The table `package_states`."""

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        await self._execute_many(self._queries.upsert_package_state, [_encode_package_state(one) for one in rows])

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        await self._execute_many(self._queries.delete_package_state, rows)

    async def list_all(self) -> list[LoadedPackage]:
        return [_decode_package_state(row) for row in await self._fetch_all(self._queries.all_package_states)]


def _encode_package_state(one: LoadedPackage) -> tuple[Any, ...]:
    return (one.tenant, one.name, one.owner, one.phase, one.version, one.digest, to_micros(one.at), one.state)


def _decode_package_state(row: Any) -> LoadedPackage:
    tenant, name, owner, phase, version, digest, at, state = row
    return LoadedPackage(
        tenant=tenant,
        name=name,
        owner=owner,
        phase=phase,
        version=version,
        digest=digest,
        state=state,
        at=from_micros(at),
    )


class SqliteTrustedKeys(SqliteTable, TrustedKeys):
    """The table `trusted_keys`."""

    async def add(self, key: TrustedKey) -> None:
        row = (key.tenant, key.id, key.text, to_micros(key.at))
        await self._execute_many(self._queries.add_trusted_key, [row])

    async def delete(self, tenant: str, id: str) -> bool:
        return await self._write(
            lambda connection: connection.execute(self._queries.delete_trusted_key, (tenant, id)).rowcount == 1
        )

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        rows = await self._fetch_all(self._queries.trusted_keys_of, (tenant,))
        return [TrustedKey(tenant=tenant, id=id_, text=text, at=from_micros(at)) for _, id_, text, at in rows]
