"""Owners in SQLite."""

from collections.abc import Collection

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Owner, Owners
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteOwners(Owners):
    """The table `owners`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, owner: Owner) -> None:
        row = (owner.id, owner.host, owner.boot, owner.pid, owner.started, to_micros(owner.at))
        await self._database.write_many(self._queries.put_owner, [row])

    async def all(self) -> list[Owner]:
        rows = await self._database.rows(self._queries.all_owners)
        return [
            Owner(id=id_, host=host, boot=boot, pid=pid, started=started, at=from_micros(at))
            for id_, host, boot, pid, started, at in rows
        ]

    async def forget(self, ids: Collection[str]) -> None:
        await self._database.write_many(self._queries.forget_owner, [(one,) for one in ids])
