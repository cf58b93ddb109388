"""Owners in memory."""

from collections.abc import Collection

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.run_ports import Owner, Owners


class MemoryOwners(Owners):
    """Owners by id."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, owner: Owner) -> None:
        row = all_in_utc(owner)
        await self._committer.commit(lambda tables: tables.put(tables.owners, row.id, row))

    async def all(self) -> list[Owner]:
        return sorted(self._tables.owners.values(), key=lambda owner: (owner.at, owner.id))

    async def forget(self, ids: Collection[str]) -> None:
        def write(tables: Tables) -> None:
            for one in ids:
                tables.drop(tables.owners, one)

        await self._committer.commit(write)
