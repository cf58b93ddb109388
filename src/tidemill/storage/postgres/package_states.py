"""What the nodes have loaded of packages, in PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.package_ports import LoadedPackage, PackageStates
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries


class PostgresPackageStates(PackageStates):
    """What the nodes of a store have loaded, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, rows: Sequence[LoadedPackage]) -> None:
        check_times(*rows)
        written = [_row(one) for one in rows]
        await self._committer.commit(Write((Rows(self._queries.put_package_state, written),)))

    async def remove(self, rows: Sequence[tuple[str, str, str]]) -> None:
        await self._committer.commit(Write((Rows(self._queries.remove_package_state, rows),)))

    async def all(self) -> list[LoadedPackage]:
        return [LoadedPackage(**row) for row in await self._database.read(self._queries.all_package_states)]


def _row(one: LoadedPackage) -> tuple[Any, ...]:
    return (one.tenant, one.name, one.owner, one.phase, one.version, one.digest, one.at, one.state)
