"""What the memory store holds, and how a transaction on it is taken back."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from tidemill.storage.committer import Committed, Transactor
from tidemill.storage.package_ports import LoadedPackage, Published, TrustedKey
from tidemill.storage.ports import JournalEntry, JournalKey, Part, PartKey, StoredLetter, StoredRecovery
from tidemill.storage.run_ports import Backfill, Cursor, LogChunk, Note, Owner, ScheduleKey, Version
from tidemill.workflows.records import AttemptKey, AttemptRow, EventRow, OutputRow, RunRow, TaskKey, TaskRow, VersionKey

Key = TypeVar("Key")
Row = TypeVar("Row")

Payload = tuple[str, str, str, str]
"""Tenant, workflow, key and digest of a fire."""

_ABSENT: Any = object()


class Term(NamedTuple):
    """Who has an office, if anybody, under which epoch, and until when."""

    holder: str | None
    epoch: int
    until: datetime


class Recorded(NamedTuple):
    """The version of a package that was recorded last, and the revision of what was published last."""

    version: str
    revision: int


class Tables(Transactor["Unit"]):
    """Every row of the store. Units of work change them by `put` and `drop` only, so that both can be undone."""

    def __init__(self) -> None:
        self.parts: dict[tuple[PartKey, int], Part] = {}  # by key and slot
        self.journals: dict[JournalKey, dict[int, JournalEntry]] = {}  # by position
        self.letters: dict[str, StoredLetter] = {}
        self.recoveries: dict[str, StoredRecovery] = {}
        self.pauses: dict[tuple[str, str], None] = {}  # a dictionary as a set: it can be changed by `put` and `drop`
        self.runs: dict[str, RunRow] = {}
        self.active: dict[str, None] = {}  # runs that have not ended
        self.tasks: dict[str, dict[TaskKey, TaskRow]] = {}  # by run, as are attempts, outputs, events and notes
        self.scheduled: dict[TaskKey, None] = {}
        self.claimed: dict[TaskKey, None] = {}  # queued or running
        self.attempts: dict[str, dict[AttemptKey, AttemptRow]] = {}
        self.outputs: dict[str, dict[TaskKey, OutputRow]] = {}
        self.events: dict[str, dict[int, EventRow]] = {}
        self.notes: dict[str, dict[str | None, Note]] = {}
        self.logs: dict[str, dict[tuple[AttemptKey, int], LogChunk]] = {}
        self.slots: dict[tuple[str, str, str, datetime], str] = {}  # the run of each slot that was fired
        self.payloads: dict[str, tuple[Payload, ...]] = {}  # what was fired, by run
        self.versions: dict[VersionKey, Version] = {}
        self.cursors: dict[ScheduleKey, Cursor] = {}
        self.paused_workflows: dict[tuple[str, str], None] = {}
        self.leases: dict[str, Term] = {}
        self.owners: dict[str, Owner] = {}
        self.backfills: dict[str, Backfill] = {}
        self.packages: dict[tuple[str, str], Published] = {}  # by tenant and name, as are archives and what is recorded
        self.archives: dict[tuple[str, str], bytes] = {}
        self.recorded: dict[tuple[str, str], Recorded] = {}
        self.trusted_keys: dict[tuple[str, str], TrustedKey] = {}
        self.package_states: dict[tuple[str, str, str], LoadedPackage] = {}  # by tenant, name and owner
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Key, Row], key: Key, row: Row) -> None:
        """Write a row, in place of the one with its key."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = row

    def drop(self, table: dict[Key, Row], key: Key) -> None:
        """Delete a row; one that is not there is no error."""
        self._undo.append((table, key, table.pop(key, _ABSENT)))

    def mark(self) -> int:
        """Return where the transaction stands, for `take_back`."""
        return len(self._undo)

    async def transact(self, units: Sequence["Unit"]) -> Committed:
        try:
            results = [unit(self) for unit in units]
        except BaseException:
            self.take_back()
            raise
        self._undo.clear()
        return Committed(results)

    def take_back(self, to: int = 0) -> None:
        """Undo what was done since a mark."""
        while len(self._undo) > to:
            table, key, before = self._undo.pop()
            table.pop(key, None)
            if before is not _ABSENT:
                table[key] = before

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a transaction in memory is never ambiguous: {token}")


Unit = Callable[[Tables], Any]
