"""Pauses in SQLite."""

from tidemill.storage.ports import Pauses
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database


class SqlitePauses(Pauses):
    """The table `pauses`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def set(self, tenant: str, reactor: str, *, paused: bool) -> None:
        statement = self._queries.pause if paused else self._queries.resume
        await self._database.write_many(statement, [(tenant, reactor)])

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        ((found,),) = await self._database.rows(self._queries.is_paused, (tenant, reactor))
        return bool(found)

    async def all_paused(self) -> list[tuple[str, str]]:
        return await self._database.rows(self._queries.all_paused)
