"""Checkpoints and journals in memory."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import in_utc
from tidemill.storage.ports import Checkpoints, Covered, JournalEntry, JournalKey, Newest, Part, PartKey


class MemoryCheckpoints(Checkpoints):
    """Snapshots by key and slot, journals by position."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def save(self, parts: Sequence[Part], covered: Sequence[Covered] = ()) -> None:
        rows = [replace(part, taken_at=in_utc(part.taken_at)) for part in parts]

        def write(tables: Tables) -> None:
            for part in rows:
                tables.put(tables.parts, (part.key, part.generation % 2), part)
            for key, position in covered:
                journal = tables.journals.get(key, {})
                for old in [one for one in journal if one <= position]:
                    tables.drop(journal, old)

        await self._committer.commit(write)

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        def write(tables: Tables) -> None:
            for entry in entries:
                journal = tables.journals.setdefault(entry.key, {})
                if entry.position in journal:
                    raise _TakenError(entry)
                tables.put(journal, entry.position, entry)

        try:
            await self._committer.commit(write)
        except _TakenError as error:
            raise StoreError(f"memory: {error}; nothing was written") from error

    async def parts(self, keys: Sequence[PartKey]) -> list[Part]:
        wanted = set(keys)
        return sorted(self._parts_of(wanted), key=lambda part: (-part.moment, part.key))

    def _parts_of(self, wanted: set[PartKey]) -> Iterable[Part]:
        slots = ((key, slot) for key in wanted for slot in (0, 1))
        return (self._tables.parts[one] for one in slots if one in self._tables.parts)

    async def entries(self, journals: Sequence[JournalKey]) -> list[JournalEntry]:
        found = [entry for key in set(journals) for entry in self._tables.journals.get(key, {}).values()]
        return sorted(found, key=lambda entry: entry.position)

    async def newest(self) -> Newest:
        moments = (part.moment for part in self._tables.parts.values())
        positions = (position for journal in self._tables.journals.values() for position in journal)
        return Newest(max(moments, default=0), max(positions, default=0))

    async def all_parts(self) -> list[Part]:
        return sorted(self._tables.parts.values(), key=lambda part: (part.key, -part.moment))

    async def all_entries(self) -> list[JournalEntry]:
        found = [entry for journal in self._tables.journals.values() for entry in journal.values()]
        return sorted(found, key=lambda entry: (entry.key, entry.position))


class _TakenError(Exception):
    """A unit's own error: its entry's position is in use."""

    def __init__(self, entry: JournalEntry) -> None:
        super().__init__(f"the journal of '{entry.key.accumulator}' already has an entry at {entry.position}")
