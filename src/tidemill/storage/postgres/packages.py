"""Packages that are wanted, in PostgreSQL."""

from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.package_ports import Packages, Published
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Unit
from tidemill.storage.queries import Queries


class PostgresPackages(Packages):
    """The registry of packages that are wanted, in tables. Who changes it is heard by the other stores."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries, sender: str) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries
        self._sender = sender

    async def publish(self, package: Published, archive: bytes, found: int) -> bool:
        check_times(package)
        queries, key = self._queries, (package.tenant, package.name)
        columns = (*key, package.version, package.digest, package.size, package.at)

        async def write(connection: Any) -> bool:
            await connection.execute(queries.lock_packages)
            if found != (await connection.fetchval(queries.package_revision, *key) or 0):
                return False
            revision = await connection.fetchval(queries.record_package, *key, package.version, 1)
            await connection.execute(queries.put_package, *columns, revision, archive, self._sender)
            return True

        is_published: bool = await self._committer.commit(write)
        return is_published

    async def withdraw(self, tenant: str, name: str) -> bool:
        async def write(connection: Any) -> bool:
            await connection.execute(self._queries.lock_packages)
            return bool(await connection.fetch(self._queries.withdraw_package, tenant, name, self._sender))

        was_wanted: bool = await self._committer.commit(write)
        return was_wanted

    async def published(self) -> list[Published]:
        return [Published(**row) for row in await self._database.read(self._queries.all_packages)]

    async def archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        rows = await self._database.read(self._queries.archive, tenant, name, digest)
        return bytes(rows[0]["archive"]) if rows else None

    async def recorded(self, tenant: str, name: str) -> str | None:
        rows = await self._database.read(self._queries.recorded_version, tenant, name)
        return str(rows[0]["version"]) if rows else None

    async def record(self, tenant: str, name: str, version: str) -> None:
        async def write(connection: Any) -> None:
            await connection.execute(self._queries.lock_packages)
            await connection.execute(self._queries.record_package, tenant, name, version, 0)

        await self._committer.commit(write)
