"""Tables of the packages in PostgreSQL: published packages, trusted keys, loaded packages."""

from collections.abc import Sequence
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.package_ports import (
    LoadedPackage,
    Packages,
    PackageStates,
    PublishedPackage,
    TrustedKey,
    TrustedKeys,
)
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.writes import PostgresUnit, StatementRows
from tidemill.storage.queries import Queries


class PostgresPackages(PostgresTable, Packages):
    """The tables `packages` and `package_versions`. Other stores are notified of their changes."""

    def __init__(
        self, database: Database, committer: GroupCommitter[PostgresUnit], queries: Queries, sender_id: str
    ) -> None:
        super().__init__(database, committer, queries)
        self._sender_id = sender_id

    async def publish(self, package: PublishedPackage, archive: bytes, expected_revision: int) -> bool:
        check_timezones(package)
        queries, key = self._queries, (package.tenant, package.name)
        columns = (*key, package.version, package.digest, package.size, package.at)

        async def write(connection: Any) -> bool:
            await connection.execute(queries.lock_packages)
            if expected_revision != (await connection.fetchval(queries.package_revision, *key) or 0):
                return False
            revision = await connection.fetchval(queries.record_package, *key, package.version, 1)
            await connection.execute(queries.upsert_package, *columns, revision, archive, self._sender_id)
            return True

        is_published: bool = await self._committer.commit(write)
        return is_published

    async def withdraw(self, tenant: str, name: str) -> bool:
        async def write(connection: Any) -> bool:
            await connection.execute(self._queries.lock_packages)
            return bool(await connection.fetch(self._queries.withdraw_package, tenant, name, self._sender_id))

        was_published: bool = await self._committer.commit(write)
        return was_published

    async def list_published(self) -> list[PublishedPackage]:
        return [PublishedPackage(**row) for row in await self._read(self._queries.all_packages)]

    async def read_archive(self, tenant: str, name: str, digest: str) -> bytes | None:
        rows = await self._read(self._queries.archive, tenant, name, digest)
        return bytes(rows[0]["archive"]) if rows else None

    async def recorded_version(self, tenant: str, name: str) -> str | None:
        rows = await self._read(self._queries.recorded_version, tenant, name)
        return str(rows[0]["version"]) if rows else None

    async def record_version(self, tenant: str, name: str, version: str) -> None:
        async def write(connection: Any) -> None:
            await connection.execute(self._queries.lock_packages)
            await connection.execute(self._queries.record_package, tenant, name, version, 0)

        await self._committer.commit(write)


class PostgresPackageStates(PostgresTable, PackageStates):
    """The table `package_states`."""

    async def upsert(self, rows: Sequence[LoadedPackage]) -> None:
        check_timezones(*rows)
        encoded = [_encode_package_state(row) for row in rows]
        await self._write(StatementRows(self._queries.upsert_package_state, encoded))

    async def delete(self, rows: Sequence[tuple[str, str, str]]) -> None:
        await self._write(StatementRows(self._queries.delete_package_state, rows))

    async def list_all(self) -> list[LoadedPackage]:
        return [LoadedPackage(**row) for row in await self._read(self._queries.all_package_states)]


def _encode_package_state(one: LoadedPackage) -> tuple[Any, ...]:
    return (one.tenant, one.name, one.owner, one.phase, one.version, one.digest, one.at, one.state)


class PostgresTrustedKeys(PostgresTable, TrustedKeys):
    """The table `trusted_keys`."""

    async def add(self, key: TrustedKey) -> None:
        check_timezones(key)
        row = (key.tenant, key.id, key.text, key.at)
        await self._write(StatementRows(self._queries.add_trusted_key, [row]))

    async def delete(self, tenant: str, id: str) -> bool:
        async def delete(connection: Any) -> bool:
            return bool(await connection.fetch(self._queries.delete_trusted_key, tenant, id))

        was_trusted: bool = await self._committer.commit(delete)
        return was_trusted

    async def for_tenant(self, tenant: str) -> list[TrustedKey]:
        return [TrustedKey(**row) for row in await self._read(self._queries.trusted_keys, tenant)]
