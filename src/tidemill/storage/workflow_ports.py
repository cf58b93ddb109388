"""What the workflow engine asks of a database: runs, leases, owners, schedules, logs.

Everything that changes a run goes through `Runs.apply`, one change at a time, all or nothing (see
`workflows.change`). The rest are questions, and small tables of their own. Where a lease is concerned the store's own
clock counts: PostgreSQL's, or the one it was given.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import msgspec

from tidemill.storage.committer import CommitFuture
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    OutputRow,
    RunRecord,
    RunRow,
    TaskKey,
    TaskRow,
    VersionKey,
)
from tidemill.workflows.states import RunState


class RunRevision(NamedTuple):
    """A run, and how often it was changed."""

    run: str
    revision: int


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's wish for work."""

    owner: str
    executors: Mapping[str, int]
    """How many task runs it could take now, by executor."""
    loaded: Collection[VersionKey]
    queues: Collection[str] | None = None
    """The queues that it serves; None for all."""
    pools: Mapping[str, int] = {}
    """The size of each pool, the same in every tenant; a task run of a pool that is not named is left alone."""
    lease: float
    at: datetime


class ClaimedTask(NamedTuple):
    """A task run that is now queued for whoever asked, and its run."""

    run: RunRow
    task: TaskRow


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are asked for."""

    tenant: str
    workflow: str | None = None
    states: Collection[RunState] = ()
    """Empty for all."""
    backfill: str | None = None
    limit: int = 1000
    """At most so many, the newest."""

    @property
    def is_active_only(self) -> bool:
        """Whether only runs that have not ended are asked for: these are few, however many there are."""
        return bool(self.states) and not any(state.is_terminal for state in self.states)


class Runs(Protocol):
    """Runs with everything that belongs to them."""

    def apply(self, change: Change) -> CommitFuture[Applied | Refused]:
        """Write a change of one run, or nothing at all; the answer comes when that is committed.

        As a future, so that whoever has many on their way needs no task for each.
        """

    async def claim(self, claim: ClaimRequest) -> list[ClaimedTask]:
        """Give scheduled task runs to somebody: highest priority first, then those that have waited longest.

        Each becomes queued, with the next attempt and an event, while pools have room and their workflows are not
        paused; several that ask at once get different ones.
        """

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        """Renew the leases of attempts that live; return those that are still their owner's, queued or running."""

    async def list_active(self) -> list[RunRevision]:
        """Return all runs that have not ended, of all tenants, oldest first."""

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        """Return runs with their task runs; one that is not there is left out."""

    async def find(self, run_filter: RunFilter) -> list[RunRow]:
        """Return runs without their tasks, oldest first."""

    async def list_lease_expired(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        """Return queued and running task runs whose lease has run out, longest first."""

    async def list_claimed_by(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        """Return the queued and running task runs of some owners."""

    async def list_claim_owners(self) -> set[str]:
        """Return the owners of all queued and running task runs."""

    async def list_orphans(self, before: datetime, limit: int) -> list[str]:
        """Return running runs in which nothing is active, and nothing has happened after a moment; oldest first.

        Nothing is active when every task run is terminal or none.
        """

    async def read_outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        """Return what tasks of a run returned, by task and index."""

    async def read_attempts(self, run: str) -> list[AttemptRow]:
        """Return all tries of a run's tasks, by key; also those that have not ended."""

    async def read_events(self, run: str) -> list[EventRow]:
        """Return everything that happened in a run, in order."""

    async def read_fired_slots(
        self, tenant: str, workflow: str, key: str, start: datetime, end: datetime
    ) -> set[datetime]:
        """Return the slots in [start, end] that have had their fire."""

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have runs, in order."""

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        """Delete the oldest runs of a tenant that ended before a moment, at most `limit`, with all that is theirs.

        Only fires of slots stay, for ever: no slot has a second run. Return how many runs they were.
        """


class RunNote(msgspec.Struct, frozen=True):
    """What somebody wrote about a run, or (`task`) about one of its tasks."""

    run: str
    task: str | None
    text: str
    at: datetime


class Notes(Protocol):
    """Notes on runs and tasks, one each."""

    async def upsert(self, note: RunNote) -> None:
        """Write a note in place of the one before; an empty text removes it."""

    async def for_run(self, run: str) -> list[RunNote]:
        """Return the notes of a run, its own first, then by task."""


class WorkflowVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it was loaded: its spec as JSON."""

    key: VersionKey
    spec: bytes
    seen_at: datetime
    """When somebody last loaded it."""


class Versions(Protocol):
    """Every version of a workflow that a run may be pinned to."""

    async def upsert(self, version: WorkflowVersion) -> None:
        """Keep a version; of one that is there already only `seen_at` moves, and never back."""

    async def get(self, key: VersionKey) -> WorkflowVersion | None:
        """Return a version."""

    async def for_tenant(self, tenant: str) -> list[WorkflowVersion]:
        """Return every version of a tenant's workflows, by workflow, the one that was loaded last at the end."""


class ScheduleKey(NamedTuple):
    """Which schedule: of a workflow that may have several."""

    tenant: str
    workflow: str
    key: str


class ScheduleCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a schedule was looked at."""

    tenant: str
    workflow: str
    key: str
    rule: str
    """The schedule's rule when it was last looked at."""
    last: datetime
    dropped: int = 0
    """How many slots got no run on purpose, since ever."""
    armed: bool = True
    """Whether slots get runs: not before everything that they need is loaded."""

    @property
    def schedule(self) -> ScheduleKey:
        """Which schedule was looked at."""
        return ScheduleKey(self.tenant, self.workflow, self.key)


class Schedules(Protocol):
    """How far schedules were looked at, and which workflows are paused."""

    async def insert_missing(self, cursors: Sequence[ScheduleCursor]) -> list[ScheduleKey]:
        """Write cursors of schedules that have none, as they are given; return which these are, sorted.

        Others stay as they are.
        """

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        """Let slots have runs from now on; a schedule that is not there is no error."""

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        """Forget schedules, but neither the fires of their slots nor that their workflows are paused.

        One that is not there is no error.
        """

    async def get_cursor(self, tenant: str, workflow: str, key: str) -> ScheduleCursor | None:
        """Return how far a schedule was looked at; None if never."""

    async def advance_cursor(self, cursor: ScheduleCursor) -> None:
        """Remember how far a schedule was looked at; `last` of the same rule never goes back.

        One that is there stays armed or disarmed as it is; one that is not is written as given.
        """

    async def pause(self, tenant: str, workflow: str) -> None:
        """Remember that a workflow is paused."""

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        """Forget that a workflow is paused, and take its schedules for looked at until then, if it was."""

    async def list_paused_workflows(self) -> set[tuple[str, str]]:
        """Return (tenant, workflow) of every paused workflow."""


class Lease(NamedTuple):
    """Who is in office, under which epoch."""

    holder: str
    epoch: int


class Leases(Protocol):
    """Offices that one holder has at a time. Each change of holder has an epoch of its own."""

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        """Take an office that is free, has run out, or belongs to one of the dead; return the new epoch, or None."""

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        """Stay in office for another while, even if it had run out; False if somebody else has taken over."""

    async def release(self, name: str, epoch: int) -> None:
        """Leave an office, unless somebody else has it already."""

    async def current(self, name: str) -> Lease | None:
        """Return who is in office, whether or not the time has run out; None if nobody is."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process that claims work, and what tells whether it still lives."""

    id: str
    host: str
    """Where the process is counted: a host, and a container on it."""
    boot: str
    """Which boot of the host."""
    pid: int
    started: str
    """When the process began, by the host: another with the same pid has another."""
    at: datetime


class Owners(Protocol):
    """Processes that claim work."""

    async def upsert(self, owner: Owner) -> None:
        """Remember an owner."""

    async def list_all(self) -> list[Owner]:
        """Return all owners, oldest first."""

    async def delete(self, ids: Collection[str]) -> None:
        """Forget owners."""


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some records of an attempt's log, encoded; `number` orders the chunks of an attempt."""

    key: AttemptKey
    number: int
    payload: bytes


class Logs(Protocol):
    """What tasks wrote."""

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        """Append chunks; the same number again changes nothing."""

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        """Return chunks of a task run after (attempt, number), in order."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """Runs for slots of the past, made together."""

    id: str
    tenant: str
    workflow: str
    limit: int
    """How many of its runs may run at a time."""
    created_at: datetime
    cancelled_at: datetime | None = None


class Backfills(Protocol):
    """Backfills."""

    async def upsert(self, backfill: Backfill) -> None:
        """Write a backfill, in place of what is stored under its id."""

    async def get(self, id: str) -> Backfill | None:
        """Return a backfill."""


ChangeTopic = Literal["runs", "packages"]
"""What another process may have changed."""


class WorkflowStore(Protocol):
    """The part of a store that workflows live in."""

    runs: Runs
    notes: Notes
    versions: Versions
    schedules: Schedules
    leases: Leases
    owners: Owners
    logs: Logs
    backfills: Backfills

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Call back when another process changed a run or which packages are wanted; or only `about` one of the two.

        Several may listen, as long as the store is open. It is a hint, never a promise: a store that cannot tell calls
        never.
        """
