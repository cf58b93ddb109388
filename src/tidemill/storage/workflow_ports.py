"""Ports of the workflow engine: runs, leases, owners.

Everything that changes a run goes through `Runs.apply`, one change at a time, all or nothing (see
`workflows.change`). The rest are queries and small tables. Leases expire by the store's own clock: PostgreSQL's, or the
one the store was given.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import msgspec

from tidemill.access.audit import AuditRow
from tidemill.storage.committer import CommitFuture
from tidemill.storage.node_kinds import NodeKind
from tidemill.storage.run_lists import FiredSlot, RunPage, RunQuery, ScheduleName, TaskStateCount, WorkflowActivity
from tidemill.storage.run_overview import FirstFailure, OverviewQuery, RunOverview, WaitingTask
from tidemill.storage.tables.backfills import Backfills
from tidemill.storage.tables.logs import Logs
from tidemill.storage.tables.orders import AttemptOrders, CodeBundles
from tidemill.storage.tables.pools import Pools
from tidemill.storage.tables.schedules import Schedules
from tidemill.storage.tables.steps import Steps
from tidemill.storage.tables.versions import Versions
from tidemill.storage.tables.waits import Waits
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    NumberedEvent,
    OutputRow,
    RunRecord,
    RunRow,
    TaskKey,
    TaskRow,
    VersionKey,
)
from tidemill.workflows.states import RunState, TaskState


class RunNote(msgspec.Struct, frozen=True):
    """A text about a run, or (`task`) about one of its tasks."""

    run: str
    task: str | None
    text: str
    at: datetime


class Notes(Protocol):
    """Notes on runs and tasks, one each."""

    async def upsert(self, note: RunNote) -> None:
        """Write a note in place of the previous one; an empty text deletes it."""

    async def for_run(self, run: str) -> list[RunNote]:
        """Return the notes of a run, its own first, then by task."""

    async def for_runs(self, runs: Collection[str]) -> dict[str, str]:
        """Return the texts of the notes on some runs themselves, by run; those without one are left out."""


class RunRevision(NamedTuple):
    """A run, and the number of its changes."""

    run: str
    revision: int


class VersionTask(NamedTuple):
    """A task of a workflow version."""

    tenant: str
    workflow: str
    version: str
    task: str


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of an owner for task runs."""

    owner: str
    executors: Mapping[str, int]
    """The free slots of the owner, by executor."""
    immediate: Collection[str] = ()
    """The executors whose attempts start with the claim: their task runs become running at once."""
    loaded: Collection[VersionKey]
    excluded: Collection[VersionTask] = ()
    """Tasks of these versions that the owner cannot run: they need a label that it does not have."""
    queues: Collection[str] | None = None
    """The queues that the owner serves; None for all."""
    pools: Mapping[str, int] = {}
    """The size of each pool, the same in every tenant, unless the store has another one.

    Task runs of other pools are not claimed.
    """
    lease: float
    at: datetime


class ClaimedTask(NamedTuple):
    """A task run that is now queued for the owner, and its run."""

    run: RunRow
    task: TaskRow


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects runs."""

    tenant: str
    workflow: str | None = None
    states: Collection[RunState] = ()
    """Empty for all."""
    backfill: str | None = None
    limit: int = 1000
    """The maximum number of runs, newest first."""

    @property
    def is_active_only(self) -> bool:
        """Whether only active runs are selected: these are few, however many runs there are."""
        return bool(self.states) and not any(state.is_terminal for state in self.states)


class Runs(Protocol):
    """Runs with everything that belongs to them."""

    def apply(self, change: Change, audit: AuditRow | None = None) -> CommitFuture[Applied | Refused]:
        """Write a change of one run, or nothing at all; the future has the result when it is committed.

        The entry of the audit log on the change, if there is one, is written with it.
        A future, so that a caller with many changes in flight needs no task for each.
        """

    async def claim(self, claim: ClaimRequest) -> list[ClaimedTask]:
        """Claim scheduled task runs for an owner: highest priority first, then longest waiting.

        Each becomes queued, or running at an immediate executor, with the next attempt and its events, while its pool
        has a free slot and its workflow is not paused. Concurrent claims get different task runs.
        """

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        """Renew the leases of running attempts; return those that are still queued or running for their owner."""

    async def list_active(self) -> list[RunRevision]:
        """Return all active runs of all tenants, oldest first."""

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        """Return runs with their task runs; unknown ids are left out."""

    async def find_run(self, run: str) -> RunRow | None:
        """Return a run without its task runs; None if there is no such run."""

    async def find_task(self, key: TaskKey) -> TaskRow | None:
        """Return one task run; None if there is no such task run."""

    async def list_elements(self, first: TaskKey, states: Collection[TaskState], limit: int) -> list[TaskRow]:
        """Return elements of a mapped task in order, from one on: those in some states, or without states all."""

    async def find(self, run_filter: RunFilter) -> list[RunRow]:
        """Return runs without their tasks, oldest first."""

    async def list_page(self, query: RunQuery) -> RunPage:
        """Return a page of a list of runs, newest first, and the number of all that match.

        Pages that follow one another have every run of the list once, although runs are created meanwhile.
        """

    async def read_activity(
        self, tenant: str, workflows: Collection[str], *, recent: int = 1
    ) -> dict[str, WorkflowActivity]:
        """Return what each of some workflows does, with its newest runs; those without runs included."""

    async def read_overview(self, query: OverviewQuery) -> RunOverview:
        """Return what the runs of a tenant do, and which failed ones need a person."""

    async def read_first_failures(self, runs: Collection[str]) -> dict[str, FirstFailure]:
        """Return which task of each of some runs failed first; runs without a failed task are left out."""

    async def list_started_by(self, tenant: str, ids: Collection[str]) -> list[tuple[str, str]]:
        """Return which runs some firings, or tasks of some runs, have started: each with the id of what did."""

    async def list_waiting(self, tenant: str, scheduled: datetime, deferred: datetime, limit: int) -> list[WaitingTask]:
        """Return task runs that are scheduled since before a time, or deferred, without a time to come, since another.

        At most `limit` of each.
        """

    async def count_task_states(self, runs: Collection[str]) -> list[TaskStateCount]:
        """Return how many task runs of each task of some runs are in each state, by run, task and state."""

    async def count_backfill_states(self, backfills: Collection[str]) -> dict[str, dict[RunState, int]]:
        """Return how many runs of each backfill are in each state; backfills without runs are left out."""

    async def list_lease_expired(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        """Return queued and running task runs whose lease has expired, longest first."""

    async def list_claimed_by(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        """Return the queued and running task runs of some owners."""

    async def count_claims(self) -> dict[str, int]:
        """Return the number of queued and running task runs of each owner that has any."""

    async def list_orphans(self, before: datetime, limit: int) -> list[str]:
        """Return running runs without an active task run and without an event after a time; oldest first.

        No task run is active when each is terminal or in state "none".
        """

    async def read_outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        """Return the outputs of tasks of a run, by task and index."""

    async def read_attempts(self, run: str) -> list[AttemptRow]:
        """Return all attempts of a run's tasks, by key; including those that have not ended."""

    async def read_events(self, run: str) -> list[EventRow]:
        """Return the history of a run, in order."""

    async def read_events_after(self, number: int, limit: int) -> list[NumberedEvent]:
        """Return events of all runs with a higher number, in order, of at most `limit` changes; empty if there is none.

        A reader that continues after the last number that was returned misses none: none with a lower number is
        committed later. Events of deleted runs are gone.
        """

    async def last_event_number(self) -> int:
        """Return a number such that all events up to it have been committed, and all later ones are higher."""

    async def read_fired_slots(
        self, tenant: str, workflow: str, key: str, start: datetime, end: datetime
    ) -> set[datetime]:
        """Return the slots in [start, end] that have been fired."""

    async def list_fired_slots(
        self, tenant: str, schedules: Collection[ScheduleName], start: datetime, end: datetime, limit: int
    ) -> dict[ScheduleName, list[FiredSlot]]:
        """Return the slots in [start, end] that each schedule has fired, with their runs, in order; `limit` of each."""

    async def find_fired(self, tenant: str, workflow: str, key: str, slot: datetime) -> str | None:
        """Return the run that the fire of a slot has started; None if the slot has not been fired."""

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have runs, in order."""

    async def dismiss(self, tenant: str, runs: Collection[str], at: datetime) -> int:
        """Dismiss the failures of some runs of a tenant, and return how many; a run that has not failed is left."""

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        """Delete the oldest runs of a tenant that ended before a time, at most `limit`, with everything of theirs.

        Only fires of slots stay, permanently: no slot gets a second run. Return the number of deleted runs.
        """


class Lease(NamedTuple):
    """The holder of a lease, and its epoch."""

    holder: str
    epoch: int


class LeaseRenewal(NamedTuple):
    """The last acquisition or renewal of a lease: another one has another `until`."""

    holder: str
    epoch: int
    until: datetime


class Leases(Protocol):
    """Leases with one holder at a time. Each change of holder has a new epoch."""

    has_own_clock: bool
    """Whether leases expire by a clock of the database, which no step of this host's wall clock moves."""

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        """Acquire a lease that is free, expired, or held by a dead holder; return the new epoch, or None."""

    async def take_over(self, name: str, silent: LeaseRenewal, holder: str, ttl: float) -> int | None:
        """Acquire a lease from a holder that has fallen silent; None if it has been renewed, acquired or released.

        `silent` is its last renewal. The caller has seen no other one for as long as the lease lasts.
        """

    async def last_renewal(self, name: str) -> LeaseRenewal | None:
        """Return the last renewal of a lease, even of an expired one; None if it has no holder."""

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        """Extend a lease, even an expired one; return False if another holder has acquired it."""

    async def release(self, name: str, epoch: int) -> None:
        """Release a lease, unless another holder has acquired it."""

    async def current(self, name: str) -> Lease | None:
        """Return the holder of a lease, even of an expired one; None if it has none."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that claims work, with what identifies it on its host."""

    id: str
    host: str
    """The namespace of the pid: a host, and a container on it."""
    boot: str
    """The boot of the host."""
    pid: int
    started: str
    """The start time of the process, by the host: it tells apart processes with the same pid."""
    at: datetime
    kind: NodeKind = "embedded"
    name: str = ""
    """The name that people know it by; several may have the same."""
    labels: tuple[str, ...] = ()
    """What a worker offers: it runs only tasks that ask for no other label."""
    concurrency: int = 0
    """The number of attempts that it runs at a time, at most."""

    @property
    def plans(self) -> bool:
        """Whether it plans runs: neither workers nor hosts do."""
        return self.kind not in ("worker", "host")

    @property
    def is_worker(self) -> bool:
        """Whether it only runs attempts: it neither plans runs nor runs reactors."""
        return self.kind == "worker"


class NodeBeat(NamedTuple):
    """An owner, and when it was last written."""

    owner: NodeRow
    at: datetime
    """By the store's clock."""
    age: float
    """Seconds since then, by the store's clock."""


class Owners(Protocol):
    """Processes that claim work."""

    async def upsert(self, owner: NodeRow) -> None:
        """Write an owner, in place of the one with its id, with the store's time as its last beat."""

    async def list_all(self) -> list[NodeRow]:
        """Return all owners, oldest first."""

    async def list_beats(self) -> list[NodeBeat]:
        """Return all owners with their last beats, oldest owner first."""

    async def delete(self, ids: Collection[str]) -> None:
        """Delete owners."""


ChangeTopic = Literal["runs", "packages", "access", "mail"]
"""The kind of data that another process has changed."""


class WorkflowStore(Protocol):
    """The ports of a store that the workflow engine uses."""

    runs: Runs
    notes: Notes
    versions: Versions
    schedules: Schedules
    leases: Leases
    owners: Owners
    logs: Logs
    steps: Steps
    waits: Waits
    backfills: Backfills
    pools: Pools
    attempt_orders: AttemptOrders
    code_bundles: CodeBundles

    async def find_write_blocker(self) -> str | None:
        """Return in a sentence which process keeps all others from writing at the moment; None if none is known to."""

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Call `on_change` when another process changes what is stored, except mail, or only something of `topic`.

        There may be several listeners, until the store is closed. A call is a hint, never guaranteed: some stores never
        call.
        """
