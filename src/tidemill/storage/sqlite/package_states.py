"""What the nodes have loaded of packages, in SQLite."""

from collections.abc import Sequence
from typing import Any

from tidemill.storage.package_ports import LoadedPackage, PackageStates
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqlitePackageStates(PackageStates):
    """The table `package_states`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, rows: Sequence[LoadedPackage]) -> None:
        await self._database.write_many(self._queries.put_package_state, [_row(one) for one in rows])

    async def remove(self, rows: Sequence[tuple[str, str, str]]) -> None:
        await self._database.write_many(self._queries.remove_package_state, rows)

    async def all(self) -> list[LoadedPackage]:
        return [_loaded(row) for row in await self._database.rows(self._queries.all_package_states)]


def _row(one: LoadedPackage) -> tuple[Any, ...]:
    return (one.tenant, one.name, one.owner, one.phase, one.version, one.digest, to_micros(one.at), one.state)


def _loaded(row: Any) -> LoadedPackage:
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
