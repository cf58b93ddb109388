"""Pauses in PostgreSQL."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.ports import Pauses
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries


class PostgresPauses(Pauses):
    """Reactors that an operator has paused, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def set(self, tenant: str, reactor: str, *, paused: bool) -> None:
        statement = self._queries.pause if paused else self._queries.resume
        await self._committer.commit(Write((Rows(statement, [(tenant, reactor)]),)))

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        return bool(await self._database.read(self._queries.is_paused, tenant, reactor))

    async def all_paused(self) -> list[tuple[str, str]]:
        return [(tenant, reactor) for tenant, reactor in await self._database.read(self._queries.all_paused)]
