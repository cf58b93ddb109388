"""Checkpoints in PostgreSQL: parts, two generations each, and the journal."""

from collections.abc import Sequence
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.ports import Checkpoints, Covered, JournalEntry, JournalKey, Newest, Part, PartKey
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.rows import entry_of, part_of


class PostgresCheckpoints(Checkpoints):
    """Snapshots and journals in tables."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def save(self, parts: Sequence[Part], covered: Sequence[Covered] = ()) -> None:
        check_times(*parts)
        saved = Rows(self._queries.save_parts, [_part_row(part) for part in parts])
        forgotten = Rows(self._queries.forget_entries, [(*one.key, one.position) for one in covered])
        await self._committer.commit(Write((saved, forgotten)))

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        rows = [(*entry.key, entry.position, entry.checksum, entry.payload) for entry in entries]
        await self._committer.commit(Write((Rows(self._queries.append_entries, rows, all_at_once=True),)))

    async def parts(self, keys: Sequence[PartKey]) -> list[Part]:
        columns = [[key[index] for key in keys] for index in range(len(PartKey._fields))]
        return [part_of(*row) for row in await self._database.read(self._queries.parts, *columns)]

    async def entries(self, journals: Sequence[JournalKey]) -> list[JournalEntry]:
        columns = [[key[index] for key in journals] for index in range(len(JournalKey._fields))]
        return [entry_of(*row) for row in await self._database.read(self._queries.entries, *columns)]

    async def newest(self) -> Newest:
        [row] = await self._database.read(self._queries.newest)
        return Newest(row["moment"], row["position"])

    async def all_parts(self) -> list[Part]:
        return [part_of(*row) for row in await self._database.read(self._queries.all_parts)]

    async def all_entries(self) -> list[JournalEntry]:
        return [entry_of(*row) for row in await self._database.read(self._queries.all_entries)]


def _part_row(part: Part) -> tuple[Any, ...]:
    slot = part.generation % 2
    return *part.key, slot, part.generation, part.moment, part.taken_at, part.digest, part.checksum, part.payload
