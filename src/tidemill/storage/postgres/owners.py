"""Owners in PostgreSQL."""

from collections.abc import Collection

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Owner, Owners


class PostgresOwners(Owners):
    """Processes that claim work, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, owner: Owner) -> None:
        check_times(owner)
        row = (owner.id, owner.host, owner.boot, owner.pid, owner.started, owner.at)
        await self._committer.commit(Write((Rows(self._queries.put_owner, [row]),)))

    async def all(self) -> list[Owner]:
        return [Owner(**row) for row in await self._database.read(self._queries.owners)]

    async def forget(self, ids: Collection[str]) -> None:
        await self._committer.commit(Write((Rows(self._queries.forget_owners, [(list(ids),)]),)))
