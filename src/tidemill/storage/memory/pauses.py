"""Pauses in memory."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.ports import Pauses


class MemoryPauses(Pauses):
    """A set of (tenant, reactor)."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def set(self, tenant: str, reactor: str, *, paused: bool) -> None:
        def write(tables: Tables) -> None:
            if paused:
                tables.put(tables.pauses, (tenant, reactor), None)
            else:
                tables.drop(tables.pauses, (tenant, reactor))

        await self._committer.commit(write)

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        return (tenant, reactor) in self._tables.pauses

    async def all_paused(self) -> list[tuple[str, str]]:
        return sorted(self._tables.pauses)
