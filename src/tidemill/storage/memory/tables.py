"""The tables of the memory store, and transactions on them that can be rolled back."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.access.sessions import Session, Ticket
from tidemill.access.tenants import TenantRow
from tidemill.storage.access_ports import StoredKey
from tidemill.storage.backfill_ports import Backfill
from tidemill.storage.committer import Committed, GroupCommitter, Transactor
from tidemill.storage.graph_ports import (
    JournalBlock,
    JournalKey,
    KeySnapshot,
    PartKey,
    SnapshotPart,
    StoredDeadLetter,
    StoredPush,
    StoredRecovery,
)
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.note_ports import RunNote
from tidemill.storage.order_ports import AttemptOrder
from tidemill.storage.package_ports import LoadedPackage, PublishedPackage, TrustedKey
from tidemill.storage.queries import check_timezone
from tidemill.storage.request_ports import RequestRecord
from tidemill.storage.session_ports import StoredAccount
from tidemill.storage.variable_ports import StoredSecret, VariableRow
from tidemill.storage.workflow_ports import LogChunk, Owner, ScheduleCursor, ScheduleKey, WorkflowVersion
from tidemill.workflows.records import AttemptKey, AttemptRow, EventRow, OutputRow, RunRow, TaskKey, TaskRow, VersionKey

Key = TypeVar("Key")
Row = TypeVar("Row")

FireDigestKey = tuple[str, str, str, str]
"""Tenant, workflow, key and digest of a fire."""
DedupKey = tuple[str, str, str]
"""Tenant, workflow and `dedup` of a fire."""

_ABSENT: Any = object()


class LeaseRow(NamedTuple):
    """The holder of a lease, if it has one, its epoch and its end."""

    holder: str | None
    epoch: int
    until: datetime


class PartOwnerRow(NamedTuple):
    """The owner of a part, if it has one, its epoch, and how often owners have renewed their ownership."""

    owner: str | None
    epoch: int
    renewals: int


class RecordedVersion(NamedTuple):
    """The last recorded version of a package, and the revision of its last publication."""

    version: str
    revision: int


class Tables(Transactor["MemoryUnit"]):
    """Every row of the store. Units of work change rows by `put` and `delete` only, which record how to undo them."""

    # long: one line for each table
    def __init__(self) -> None:
        self.parts: dict[tuple[PartKey, int], SnapshotPart] = {}  # by key and slot
        self.journals: dict[JournalKey, dict[int, JournalBlock]] = {}  # by position
        self.key_snapshots: dict[tuple[PartKey, bytes, int], KeySnapshot] = {}  # by reactor, key and slot
        self.pushes: dict[tuple[JournalKey, str], StoredPush] = {}  # by accumulator and client
        self.mail: dict[str, StoredRequest] = {}
        self.mail_answers: dict[str, bytes] = {}  # by request
        self.mail_listeners: list[Callable[[], None]] = []  # of all stores that share these tables
        self.part_owners: dict[PartKey, PartOwnerRow] = {}
        self.dead_letters: dict[str, StoredDeadLetter] = {}
        self.recoveries: dict[str, StoredRecovery] = {}
        self.pauses: dict[tuple[str, str], None] = {}  # a dictionary as a set, for `put` and `delete`
        self.runs: dict[str, RunRow] = {}
        self.active_runs: dict[str, None] = {}  # a set as well
        self.run_sequence = 0  # of the last run that was created; a number that was not used leaves a gap
        self.tasks: dict[str, dict[TaskKey, TaskRow]] = {}  # by run, as are attempts, outputs, events and notes
        self.scheduled_tasks: dict[TaskKey, None] = {}
        self.claimed_tasks: dict[TaskKey, None] = {}  # queued or running
        self.attempts: dict[str, dict[AttemptKey, AttemptRow]] = {}
        self.outputs: dict[str, dict[TaskKey, OutputRow]] = {}
        self.events: dict[str, dict[int, EventRow]] = {}  # of each run by their numbers, which all runs share
        self.runs_of_events: dict[int, str] = {}  # by the number of the event
        self.event_number = 0  # of the newest event; a number that was not used leaves a gap
        self.notes: dict[str, dict[str | None, RunNote]] = {}
        self.logs: dict[str, dict[tuple[AttemptKey, int], LogChunk]] = {}
        self.fired_slots: dict[tuple[str, str, str, datetime], str] = {}  # the run of each fired slot
        self.fire_digests: dict[str, tuple[FireDigestKey, ...]] = {}  # by run
        self.fire_dedups: dict[str, DedupKey] = {}  # by run
        self.fire_times: dict[DedupKey, tuple[datetime, ...]] = {}  # the last ones that were recorded
        self.versions: dict[VersionKey, WorkflowVersion] = {}
        self.loaded_versions: dict[tuple[str, VersionKey], bool] = {}  # by owner and key: whether it is current there
        self.cursors: dict[ScheduleKey, ScheduleCursor] = {}
        self.paused_workflows: dict[tuple[str, str], None] = {}
        self.paused_triggers: dict[tuple[str, str], None] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.owners: dict[str, tuple[Owner, datetime]] = {}
        self.backfills: dict[str, Backfill] = {}
        self.pools: dict[str, int] = {}  # slots by name
        self.packages: dict[tuple[str, str], PublishedPackage] = {}  # by tenant and name, as are the next two
        self.archives: dict[tuple[str, str], bytes] = {}
        self.recorded_versions: dict[tuple[str, str], RecordedVersion] = {}
        self.trusted_keys: dict[tuple[str, str], TrustedKey] = {}
        self.package_states: dict[tuple[str, str, str], LoadedPackage] = {}  # by tenant, name and owner
        self.tenants: dict[str, TenantRow] = {}
        self.api_keys: dict[str, StoredKey] = {}
        self.audit_entries: dict[str, AuditRow] = {}
        self.accounts: dict[tuple[str, str], StoredAccount] = {}  # by tenant and name
        self.sessions: dict[str, tuple[Session, bytes]] = {}  # with the digest of the token
        self.tickets: dict[bytes, Ticket] = {}  # by the digest of the token
        self.variables: dict[tuple[str, str], VariableRow] = {}  # by tenant and name, as are secrets
        self.secrets: dict[tuple[str, str], StoredSecret] = {}
        self.requests: dict[tuple[str, str], RequestRecord] = {}  # by tenant and key
        self.orders: dict[AttemptKey, AttemptOrder] = {}
        self.code_bundles: dict[
            tuple[str, str], tuple[bytes, datetime]
        ] = {}  # by tenant and digest, with the last order
        self.instance: dict[str, str] = {}  # its id, once it has one
        self._undo_log: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Key, Row], key: Key, row: Row) -> None:
        """Write a row, in place of the one with its key."""
        self._undo_log.append((table, key, table.get(key, _ABSENT)))
        table[key] = row

    def delete(self, table: dict[Key, Row], key: Key) -> None:
        """Delete a row; an unknown key is ignored."""
        self._undo_log.append((table, key, table.pop(key, _ABSENT)))

    def savepoint(self) -> int:
        """Return the current position of the transaction, for `roll_back_to`."""
        return len(self._undo_log)

    async def transact(self, units: Sequence["MemoryUnit"]) -> Committed:
        try:
            results = [unit(self) for unit in units]
        except BaseException:
            self.roll_back_to()
            raise
        self._undo_log.clear()
        return Committed(results)

    def roll_back_to(self, savepoint: int = 0) -> None:
        """Undo everything since a savepoint; by default, the whole transaction."""
        while len(self._undo_log) > savepoint:
            table, key, before = self._undo_log.pop()
            table.pop(key, None)
            if before is not _ABSENT:
                table[key] = before

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a transaction in memory is never ambiguous: {token}")


MemoryUnit = Callable[[Tables], Any]
"""A unit of work: what the group committer runs as part of a transaction."""


class MemoryTable:
    """What every port of this store is built on: reads go to the tables, writes through the committer."""

    def __init__(self, tables: Tables, committer: GroupCommitter[MemoryUnit]) -> None:
        self._tables = tables
        self._committer = committer


TimedRow = TypeVar("TimedRow", bound=msgspec.Struct)


def to_utc(time: datetime) -> datetime:
    """Return the same time in UTC; ValueError for a naive time."""
    check_timezone(time)
    return time.astimezone(UTC)


def times_to_utc(row: TimedRow) -> TimedRow:
    """Return a row with all its times in UTC."""
    values = ((name, getattr(row, name)) for name in row.__struct_fields__)
    times = ((name, value) for name, value in values if isinstance(value, datetime))
    elsewhere = {name: to_utc(time) for name, time in times if time.tzinfo is not UTC}
    return replace(row, **elsewhere) if elsewhere else row
