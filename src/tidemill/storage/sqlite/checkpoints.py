"""Checkpoints and journals in SQLite."""

import sqlite3
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from tidemill.storage.ports import Checkpoints, Covered, JournalEntry, JournalKey, Newest, Part, PartKey
from tidemill.storage.queries import Queries
from tidemill.storage.rows import entry_of, part_of
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteCheckpoints(Checkpoints):
    """The tables `parts` and `journal`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def save(self, parts: Sequence[Part], covered: Sequence[Covered] = ()) -> None:
        rows = [_part_row(part) for part in parts]
        pruned = [(*key, position) for key, position in covered]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(self._queries.save_part, rows)
            connection.executemany(self._queries.prune_journal, pruned)

        await self._database.write(write)

    async def append(self, entries: Sequence[JournalEntry]) -> None:
        rows = [(*entry.key, entry.position, entry.checksum, entry.payload) for entry in entries]
        await self._database.write_many(self._queries.append_entry, rows)

    async def parts(self, keys: Sequence[PartKey]) -> list[Part]:
        def ask(connection: sqlite3.Connection) -> list[Any]:
            return [row for key in set(keys) for row in connection.execute(self._queries.parts_of, key)]

        found = map(_part, await self._database.read(ask))
        return sorted(found, key=lambda part: (-part.moment, part.key))

    async def entries(self, journals: Sequence[JournalKey]) -> list[JournalEntry]:
        def ask(connection: sqlite3.Connection) -> list[Any]:
            return [row for key in set(journals) for row in connection.execute(self._queries.entries_of, key)]

        found = starmap(entry_of, await self._database.read(ask))
        return sorted(found, key=lambda entry: entry.position)

    async def newest(self) -> Newest:
        (row,) = await self._database.rows(self._queries.newest_numbers)
        return Newest(*row)

    async def all_parts(self) -> list[Part]:
        return [_part(row) for row in await self._database.rows(self._queries.all_parts)]

    async def all_entries(self) -> list[JournalEntry]:
        return list(starmap(entry_of, await self._database.rows(self._queries.all_entries)))


def _part_row(part: Part) -> tuple[Any, ...]:
    slot, taken_at = part.generation % 2, to_micros(part.taken_at)
    return (*part.key, slot, part.generation, part.moment, taken_at, part.digest, part.checksum, part.payload)


def _part(row: Any) -> Part:
    tenant, kind, name, generation, moment, taken_at, *rest = row
    return part_of(tenant, kind, name, generation, moment, from_micros(taken_at), *rest)
