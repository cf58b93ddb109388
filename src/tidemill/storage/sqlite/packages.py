"""Packages that are wanted, in SQLite."""

import sqlite3
from typing import Any

from tidemill.storage.package_ports import Packages, Published
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqlitePackages(Packages):
    """The tables `packages` and `package_versions`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def publish(self, package: Published, archive: bytes, found: int) -> bool:
        queries, key = self._queries, (package.tenant, package.name)
        columns = (*key, package.version, package.digest, package.size, to_micros(package.at))

        def write(connection: sqlite3.Connection) -> bool:
            stored = connection.execute(queries.package_revision, key).fetchone()
            if found != (0 if stored is None else stored[0]):
                return False
            (revision,) = connection.execute(queries.record_package, (*key, package.version, 1)).fetchone()
            connection.execute(queries.put_package, (*columns, revision, archive))
            return True

        return await self._database.write(write)

    async def withdraw(self, tenant: str, name: str) -> bool:
        return await self._database.write(
            lambda connection: connection.execute(self._queries.withdraw_package, (tenant, name)).rowcount == 1
        )

    async def published(self) -> list[Published]:
        return [_package(row) for row in await self._database.rows(self._queries.all_packages)]

    async def archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        for (archive,) in await self._database.rows(self._queries.archive_of, (tenant, name, digest)):
            return bytes(archive)
        return None

    async def recorded(self, tenant: str, name: str) -> str | None:
        for (version,) in await self._database.rows(self._queries.recorded_version, (tenant, name)):
            return str(version)
        return None

    async def record(self, tenant: str, name: str, version: str) -> None:
        values = (tenant, name, version, 0)
        await self._database.write(
            lambda connection: connection.execute(self._queries.record_package, values).fetchone()
        )


def _package(row: Any) -> Published:
    tenant, name, version, digest, size, at, revision = row
    return Published(
        tenant=tenant,
        name=name,
        version=version,
        digest=digest,
        size=size,
        at=from_micros(at),
        revision=revision,
    )
