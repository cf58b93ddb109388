"""Dead letters in PostgreSQL."""

from collections.abc import Sequence

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.ports import PartKind, StoredLetter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries


class PostgresDeadLetters:
    """Events and firings that could not be dealt with, in a table."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def put(self, letters: Sequence[StoredLetter]) -> None:
        """Keep letters, each in place of one with its id."""
        rows = [(one.id, one.tenant, one.owner, one.source, one.at, one.payload) for one in letters]
        await self._committer.commit(Write((Rows(self._queries.put_letters, rows),)))

    async def remove(self, ids: Sequence[str]) -> None:
        """Forget letters; one that is not there is no error."""
        rows = [(letter,) for letter in ids]
        await self._committer.commit(Write((Rows(self._queries.remove_letters, rows, all_at_once=True),)))

    async def of(self, tenant: str, owner: PartKind, source: str) -> list[StoredLetter]:
        """Return the letters of one reactor or accumulator, oldest first."""
        rows = await self._database.read(self._queries.letters, tenant, owner, source)
        return [StoredLetter(**row) for row in rows]

    async def all_letters(self) -> list[StoredLetter]:
        """Return every letter of every tenant, oldest first; for audits."""
        return [StoredLetter(**row) for row in await self._database.read(self._queries.all_letters)]
