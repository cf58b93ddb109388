"""Dead letters in SQLite."""

from collections.abc import Sequence
from typing import Any

from tidemill.storage.ports import DeadLetters, PartKind, StoredLetter
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteDeadLetters(DeadLetters):
    """The table `dead_letters`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def put(self, letters: Sequence[StoredLetter]) -> None:
        rows = [(one.id, one.tenant, one.owner, one.source, to_micros(one.at), one.payload) for one in letters]
        await self._database.write_many(self._queries.put_letter, rows)

    async def remove(self, ids: Sequence[str]) -> None:
        await self._database.write_many(self._queries.remove_letter, [(one,) for one in ids])

    async def of(self, tenant: str, owner: PartKind, source: str) -> list[StoredLetter]:
        rows = await self._database.rows(self._queries.letters_of, (tenant, owner, source))
        return [_letter(row) for row in rows]

    async def all_letters(self) -> list[StoredLetter]:
        return [_letter(row) for row in await self._database.rows(self._queries.all_letters)]


def _letter(row: Any) -> StoredLetter:
    id_, tenant, owner, source, at, payload = row
    return StoredLetter(id=id_, tenant=tenant, owner=owner, source=source, at=from_micros(at), payload=payload)
