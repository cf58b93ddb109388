"""Tables of the graph engine in memory: checkpoints, journals, producers, dead letters, recoveries, pauses."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import (
    Checkpoints,
    DeadLetters,
    HighWaterMarks,
    JournalBlock,
    JournalKey,
    JournalTrim,
    KeySnapshot,
    PartFence,
    PartKey,
    PartKind,
    Pauses,
    Producers,
    Recoveries,
    SnapshotPart,
    StoredDeadLetter,
    StoredPush,
    StoredRecovery,
    fenced_error,
)
from tidemill.storage.memory.tables import MemoryTable, Tables, to_utc
from tidemill.storage.queries import check_timezone


class MemoryCheckpoints(MemoryTable, Checkpoints):
    """Snapshots by key and slot, journals by position."""

    async def save(
        self,
        parts: Sequence[SnapshotPart],
        trims: Sequence[JournalTrim] = (),
        fences: Collection[PartFence] = (),
        keys: Sequence[KeySnapshot] = (),
    ) -> None:
        rows = [replace(part, taken_at=to_utc(part.taken_at)) for part in parts]

        def write(tables: Tables) -> bool:
            if not _owns_parts(tables, fences):
                return False
            for part in rows:
                tables.put(tables.parts, (part.key, part.generation % 2), part)
            for row in keys:
                tables.put(tables.key_snapshots, (row.reactor, row.key, row.slot), row)
            for key, position in trims:
                journal = tables.journals.get(key, {})
                for old in [one for one in journal if one <= position]:
                    tables.delete(journal, old)
            return True

        if not await self._committer.commit(write):
            raise fenced_error()

    async def append(
        self,
        blocks: Sequence[JournalBlock],
        fences: Collection[PartFence] = (),
        pushes: Sequence[StoredPush] = (),
    ) -> None:
        stored = [replace(push, at=to_utc(push.at)) for push in pushes]

        def write(tables: Tables) -> bool:
            if not _owns_parts(tables, fences):
                return False
            for block in blocks:
                journal = tables.journals.setdefault(block.key, {})
                if block.position in journal:
                    raise _PositionTakenError(block)
                tables.put(journal, block.position, block)
            for push in stored:
                tables.put(tables.pushes, (push.key, push.client), push)
            return True

        try:
            is_written = await self._committer.commit(write)
        except _PositionTakenError as error:
            raise StoreError(f"memory: {error}; nothing was written") from error
        if not is_written:
            raise fenced_error()

    async def read_parts(self, keys: Sequence[PartKey]) -> list[SnapshotPart]:
        return sorted(self._stored_parts(set(keys)), key=lambda part: (-part.moment, part.key))

    def _stored_parts(self, keys: set[PartKey]) -> Iterable[SnapshotPart]:
        slots = ((key, slot) for key in keys for slot in (0, 1))
        return (self._tables.parts[one] for one in slots if one in self._tables.parts)

    async def read_blocks(self, journals: Sequence[JournalKey]) -> list[JournalBlock]:
        blocks = [block for key in set(journals) for block in self._tables.journals.get(key, {}).values()]
        return sorted(blocks, key=lambda block: block.position)

    async def read_high_water_marks(self) -> HighWaterMarks:
        moments = (part.moment for part in self._tables.parts.values())
        positions = (position for journal in self._tables.journals.values() for position in journal)
        return HighWaterMarks(max(moments, default=0), max(positions, default=0))

    async def read_all_parts(self) -> list[SnapshotPart]:
        return sorted(self._tables.parts.values(), key=lambda part: (part.key, -part.moment))

    async def read_all_blocks(self) -> list[JournalBlock]:
        blocks = [block for journal in self._tables.journals.values() for block in journal.values()]
        return sorted(blocks, key=lambda block: (block.key, block.position))


def _owns_parts(tables: Tables, fences: Collection[PartFence]) -> bool:
    rows = ((tables.part_owners.get(key), epoch) for key, epoch in fences)
    return all(row is not None and row.owner is not None and row.epoch == epoch for row, epoch in rows)


class _PositionTakenError(Exception):
    """A unit's own error: the position of a block is taken."""

    def __init__(self, block: JournalBlock) -> None:
        super().__init__(f"the journal of '{block.key.accumulator}' already has an entry at {block.position}")


class MemoryProducers(MemoryTable, Producers):
    """Pushes by accumulator and client."""

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        return self._tables.pushes.get((key, client))

    async def delete_before(self, before: datetime, kept: str) -> None:
        check_timezone(before)

        def write(tables: Tables) -> None:
            for push in [one for one in tables.pushes.values() if one.at < before and one.client != kept]:
                tables.delete(tables.pushes, (push.key, push.client))

        await self._committer.commit(write)


class MemoryDeadLetters(MemoryTable, DeadLetters):
    """Dead letters by id."""

    async def upsert(self, letters: Sequence[StoredDeadLetter]) -> None:
        rows = [replace(letter, at=to_utc(letter.at)) for letter in letters]

        def write(tables: Tables) -> None:
            for row in rows:
                tables.put(tables.dead_letters, row.id, row)

        await self._committer.commit(write)

    async def delete(self, ids: Sequence[str]) -> None:
        def write(tables: Tables) -> None:
            for one in ids:
                tables.delete(tables.dead_letters, one)

        await self._committer.commit(write)

    async def for_source(self, tenant: str, owner: PartKind, source: str) -> list[StoredDeadLetter]:
        key = (tenant, owner, source)
        return [row for row in await self.list_all() if (row.tenant, row.owner, row.source) == key]

    async def list_all(self) -> list[StoredDeadLetter]:
        return sorted(self._tables.dead_letters.values(), key=lambda letter: letter.id)


class MemoryPauses(MemoryTable, Pauses):
    """A set of (tenant, reactor)."""

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        def write(tables: Tables) -> None:
            if paused:
                tables.put(tables.pauses, (tenant, reactor), None)
            else:
                tables.delete(tables.pauses, (tenant, reactor))

        await self._committer.commit(write)

    async def is_paused(self, tenant: str, reactor: str) -> bool:
        return (tenant, reactor) in self._tables.pauses

    async def list_paused(self) -> list[tuple[str, str]]:
        return sorted(self._tables.pauses)


class MemoryRecoveries(MemoryTable, Recoveries):
    """Recoveries by id."""

    async def add(self, recoveries: Sequence[StoredRecovery]) -> None:
        rows = [replace(recovery, at=to_utc(recovery.at)) for recovery in recoveries]

        def write(tables: Tables) -> None:
            for recovery in rows:
                if recovery.id not in tables.recoveries:
                    tables.put(tables.recoveries, recovery.id, recovery)

        await self._committer.commit(write)

    async def list_newest(self, tenant: str, limit: int) -> list[StoredRecovery]:
        rows = (row for row in self._tables.recoveries.values() if row.tenant == tenant)
        newest_first = sorted(rows, key=lambda recovery: recovery.id, reverse=True)
        return newest_first[:limit][::-1]

    async def list_by_action(self, action: str) -> list[StoredRecovery]:
        rows = (row for row in self._tables.recoveries.values() if row.action == action)
        return sorted(rows, key=lambda recovery: recovery.id)

    async def delete_before(self, before: datetime) -> None:
        check_timezone(before)

        def write(tables: Tables) -> None:
            for recovery in [one for one in tables.recoveries.values() if one.at < before]:
                tables.delete(tables.recoveries, recovery.id)

        await self._committer.commit(write)
