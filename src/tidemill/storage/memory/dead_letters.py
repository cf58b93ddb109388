"""Dead letters in memory."""

from collections.abc import Sequence

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import in_utc
from tidemill.storage.ports import DeadLetters, PartKind, StoredLetter


class MemoryDeadLetters(DeadLetters):
    """Letters by id."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def put(self, letters: Sequence[StoredLetter]) -> None:
        rows = [replace(letter, at=in_utc(letter.at)) for letter in letters]

        def write(tables: Tables) -> None:
            for letter in rows:
                tables.put(tables.letters, letter.id, letter)

        await self._committer.commit(write)

    async def remove(self, ids: Sequence[str]) -> None:
        def write(tables: Tables) -> None:
            for one in ids:
                tables.drop(tables.letters, one)

        await self._committer.commit(write)

    async def of(self, tenant: str, owner: PartKind, source: str) -> list[StoredLetter]:
        wanted = (tenant, owner, source)
        return [one for one in await self.all_letters() if (one.tenant, one.owner, one.source) == wanted]

    async def all_letters(self) -> list[StoredLetter]:
        return sorted(self._tables.letters.values(), key=lambda letter: letter.id)
