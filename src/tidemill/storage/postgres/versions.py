"""Versions of workflows in PostgreSQL."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Version, Versions
from tidemill.workflows.records import VersionKey


class PostgresVersions(Versions):
    """Every version of a workflow that a run may be pinned to, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, version: Version) -> None:
        check_times(version)
        row = (*version.key, version.spec, version.seen_at)
        await self._committer.commit(Write((Rows(self._queries.put_version, [row]),)))

    async def get(self, key: VersionKey) -> Version | None:
        rows = await self._database.read(self._queries.version, *key)
        return Version(key=key, **rows[0]) if rows else None

    async def of(self, tenant: str) -> list[Version]:
        rows = await self._database.read(self._queries.versions, tenant)
        return [
            Version(key=VersionKey(tenant, row["workflow"], row["version"]), spec=row["spec"], seen_at=row["seen_at"])
            for row in rows
        ]
