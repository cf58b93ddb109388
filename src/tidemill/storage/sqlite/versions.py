"""Versions of workflows in SQLite."""

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Version, Versions
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros
from tidemill.workflows.records import VersionKey


class SqliteVersions(Versions):
    """The table `workflow_versions`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, version: Version) -> None:
        row = (*version.key, version.spec, to_micros(version.seen_at))
        await self._database.write_many(self._queries.put_version, [row])

    async def get(self, key: VersionKey) -> Version | None:
        for spec, seen_at in await self._database.rows(self._queries.version_of, tuple(key)):
            return Version(key=key, spec=spec, seen_at=from_micros(seen_at))
        return None

    async def of(self, tenant: str) -> list[Version]:
        rows = await self._database.rows(self._queries.versions_of, (tenant,))
        return [
            Version(key=VersionKey(tenant, workflow, version), spec=spec, seen_at=from_micros(seen_at))
            for workflow, version, spec, seen_at in rows
        ]
