"""Leases, and owners of parts, in memory."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.graph_ports import PartFence, PartKey, PartKind, PartOwner, PartOwners
from tidemill.storage.memory.tables import LeaseRow, MemoryTable, MemoryUnit, PartOwnerRow, Tables
from tidemill.storage.workflow_ports import Lease, LeaseRenewal, Leases


class MemoryLeases(MemoryTable, Leases):
    """Leases by name."""

    has_own_clock = False

    def __init__(self, tables: Tables, committer: GroupCommitter[MemoryUnit], now: Callable[[], datetime]) -> None:
        super().__init__(tables, committer)
        self._now = now

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        def write(tables: Tables) -> int | None:
            now, row = self._now(), tables.leases.get(name)
            if row is not None and row.holder is not None and row.until > now and row.holder not in dead_holders:
                return None
            epoch = 1 if row is None else row.epoch + 1
            tables.put(tables.leases, name, LeaseRow(holder, epoch, now + timedelta(seconds=ttl)))
            return epoch

        acquired: int | None = await self._committer.commit(write)
        return acquired

    async def take_over(self, name: str, silent: LeaseRenewal, holder: str, ttl: float) -> int | None:
        def write(tables: Tables) -> int | None:
            row = tables.leases.get(name)
            if row is None or (row.holder, row.epoch, row.until) != silent:
                return None
            until = self._now() + timedelta(seconds=ttl)
            tables.put(tables.leases, name, LeaseRow(holder, row.epoch + 1, until))
            return row.epoch + 1

        acquired: int | None = await self._committer.commit(write)
        return acquired

    async def last_renewal(self, name: str) -> LeaseRenewal | None:
        row = self._tables.leases.get(name)
        return None if row is None or row.holder is None else LeaseRenewal(row.holder, row.epoch, row.until)

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        def write(tables: Tables) -> bool:
            row = tables.leases.get(name)
            if row is None or row.holder is None or row.epoch != epoch:
                return False
            tables.put(tables.leases, name, row._replace(until=self._now() + timedelta(seconds=ttl)))
            return True

        renewed: bool = await self._committer.commit(write)
        return renewed

    async def release(self, name: str, epoch: int) -> None:
        def write(tables: Tables) -> None:
            row = tables.leases.get(name)
            if row is not None and row.epoch == epoch:
                tables.put(tables.leases, name, row._replace(holder=None))

        await self._committer.commit(write)

    async def current(self, name: str) -> Lease | None:
        row = self._tables.leases.get(name)
        return None if row is None or row.holder is None else Lease(row.holder, row.epoch)


class MemoryPartOwners(MemoryTable, PartOwners):
    """Owners by part."""

    async def acquire(
        self, keys: Sequence[PartKey], owner: str, abandoned: Collection[PartOwner] = ()
    ) -> list[PartFence] | PartOwner:
        def write(tables: Tables) -> list[PartFence] | PartOwner:
            for current in _current_owners(tables, keys):
                if current.owner != owner and current not in abandoned:
                    return current
            return [self._put(tables, key, owner) for key in keys]

        acquired: list[PartFence] | PartOwner = await self._committer.commit(write)
        return acquired

    def _put(self, tables: Tables, key: PartKey, owner: str) -> PartFence:
        row = tables.part_owners.get(key, PartOwnerRow(None, 0, 0))
        epoch = row.epoch + (row.owner != owner)
        tables.put(tables.part_owners, key, PartOwnerRow(owner, epoch, row.renewals + 1))
        return PartFence(key, epoch)

    async def renew(self, owner: str) -> set[PartFence]:
        def write(tables: Tables) -> set[PartFence]:
            owned = [key for key, row in tables.part_owners.items() if row.owner == owner]
            return {self._put(tables, key, owner) for key in owned}

        renewed: set[PartFence] = await self._committer.commit(write)
        return renewed

    async def release(self, fences: Sequence[PartFence]) -> None:
        def write(tables: Tables) -> None:
            for key, epoch in fences:
                row = tables.part_owners.get(key)
                if row is not None and row.epoch == epoch:
                    tables.put(tables.part_owners, key, row._replace(owner=None))

        await self._committer.commit(write)

    async def owners_of(self, keys: Sequence[PartKey]) -> list[PartOwner]:
        return _current_owners(self._tables, sorted(set(keys)))

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        owned = (key for key, row in self._tables.part_owners.items() if row.owner is not None)
        return sorted(key.name for key in owned if (key.tenant, key.kind) == (tenant, kind))


def _current_owners(tables: Tables, keys: Sequence[PartKey]) -> list[PartOwner]:
    rows = [(key, tables.part_owners[key]) for key in keys if key in tables.part_owners]
    return [PartOwner(key, row.owner, row.epoch, row.renewals) for key, row in rows if row.owner is not None]
