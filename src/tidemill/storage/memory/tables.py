"""What the memory store holds, and how a transaction on it is taken back."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.storage.committer import Committed, Transactor
from tidemill.storage.ports import JournalEntry, JournalKey, Part, PartKey, StoredLetter, StoredRecovery

Key = TypeVar("Key")
Row = TypeVar("Row")

_ABSENT: Any = object()


class Tables(Transactor["Unit"]):
    """Every row of the store. Units of work change them by `put` and `drop` only, so that both can be undone."""

    def __init__(self) -> None:
        self.parts: dict[tuple[PartKey, int], Part] = {}  # by key and slot
        self.journals: dict[JournalKey, dict[int, JournalEntry]] = {}  # by position
        self.letters: dict[str, StoredLetter] = {}
        self.recoveries: dict[str, StoredRecovery] = {}
        self.pauses: dict[tuple[str, str], None] = {}  # a dictionary as a set: it can be changed by `put` and `drop`
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Key, Row], key: Key, row: Row) -> None:
        """Write a row, in place of the one with its key."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = row

    def drop(self, table: dict[Key, Row], key: Key) -> None:
        """Delete a row; one that is not there is no error."""
        self._undo.append((table, key, table.pop(key, _ABSENT)))

    async def transact(self, units: Sequence["Unit"]) -> Committed:
        try:
            results = [unit(self) for unit in units]
        except BaseException:
            self._take_back()
            raise
        self._undo.clear()
        return Committed(results)

    def _take_back(self) -> None:
        while self._undo:
            table, key, before = self._undo.pop()
            table.pop(key, None)
            if before is not _ABSENT:
                table[key] = before

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a transaction in memory is never ambiguous: {token}")


Unit = Callable[[Tables], Any]
