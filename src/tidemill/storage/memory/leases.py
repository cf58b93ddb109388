"""Leases in memory."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import LeaseRow, MemoryTable, MemoryUnit, Tables
from tidemill.storage.workflow_ports import Lease, Leases


class MemoryLeases(MemoryTable, Leases):
    """Terms by name of the office."""

    def __init__(self, tables: Tables, committer: GroupCommitter[MemoryUnit], now: Callable[[], datetime]) -> None:
        super().__init__(tables, committer)
        self._now = now

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        def write(tables: Tables) -> int | None:
            now, term = self._now(), tables.leases.get(name)
            if term is not None and term.holder is not None and term.until > now and term.holder not in dead_holders:
                return None
            epoch = 1 if term is None else term.epoch + 1
            tables.put(tables.leases, name, LeaseRow(holder, epoch, now + timedelta(seconds=ttl)))
            return epoch

        taken: int | None = await self._committer.commit(write)
        return taken

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        def write(tables: Tables) -> bool:
            term = tables.leases.get(name)
            if term is None or term.holder is None or term.epoch != epoch:
                return False
            tables.put(tables.leases, name, term._replace(until=self._now() + timedelta(seconds=ttl)))
            return True

        stays: bool = await self._committer.commit(write)
        return stays

    async def release(self, name: str, epoch: int) -> None:
        def write(tables: Tables) -> None:
            term = tables.leases.get(name)
            if term is not None and term.epoch == epoch:
                tables.put(tables.leases, name, term._replace(holder=None))

        await self._committer.commit(write)

    async def current(self, name: str) -> Lease | None:
        term = self._tables.leases.get(name)
        return None if term is None or term.holder is None else Lease(term.holder, term.epoch)
