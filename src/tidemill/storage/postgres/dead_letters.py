"""Dead letters in PostgreSQL."""

from collections.abc import Sequence

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.ports import DeadLetters, PartKind, StoredLetter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries


class PostgresDeadLetters(DeadLetters):
    """Events and firings that could not be dealt with, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, letters: Sequence[StoredLetter]) -> None:
        check_times(*letters)
        rows = [(one.id, one.tenant, one.owner, one.source, one.at, one.payload) for one in letters]
        await self._committer.commit(Write((Rows(self._queries.put_letters, rows),)))

    async def remove(self, ids: Sequence[str]) -> None:
        rows = [(letter,) for letter in ids]
        await self._committer.commit(Write((Rows(self._queries.remove_letters, rows, all_at_once=True),)))

    async def of(self, tenant: str, owner: PartKind, source: str) -> list[StoredLetter]:
        rows = await self._database.read(self._queries.letters, tenant, owner, source)
        return [StoredLetter(**row) for row in rows]

    async def all_letters(self) -> list[StoredLetter]:
        return [StoredLetter(**row) for row in await self._database.read(self._queries.all_letters)]
