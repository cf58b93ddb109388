"""Runs, task runs and attempts as they are stored: what a database keeps of them, column by column.

The planner sees less of them (`plan.Run`, `plan.TaskRun`), and nothing here knows where they are kept.

Rows hold nothing that could hold them, so the garbage collector need not look at them (`gc=False`): there are many.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from tidemill.workflows.plan import UNMAPPED, TaskRun
from tidemill.workflows.states import RunState, TaskState

FailureOutcome = Literal["failed", "timeout", "dispatch_failed"]
"""How a try may fail: its code raised or its process ended, it took too long, or its executor did not take it."""
AttemptOutcome = FailureOutcome | Literal["", "success", "skipped", "lost", "deferred", "cancelled", "returned"]
"""How a try may end, in the words that are stored; empty for one that has not."""
MISSING_TIME = datetime.min.replace(tzinfo=UTC)
"""Stands for a time that ought to be there, and is not."""


class TaskKey(NamedTuple):
    """One task of one run, or one element of a mapped one."""

    run: str
    task: str
    element: int = UNMAPPED

    @property
    def label(self) -> str:
        """What it is called within its run: "clean", or "clean[7]" for an element."""
        return self.task if self.element == UNMAPPED else f"{self.task}[{self.element}]"


class AttemptKey(NamedTuple):
    """One try of a task run. Nothing else ever has the same, so whatever is done under it can be done once."""

    run: str
    task: str
    element: int
    attempt: int

    @property
    def task_key(self) -> TaskKey:
        """The task run that is tried."""
        return TaskKey(self.run, self.task, self.element)

    def __str__(self) -> str:
        element = "" if self.element == UNMAPPED else f"[{self.element}]"
        return f"{self.run}/{self.task}{element}#{self.attempt}"


class VersionKey(NamedTuple):
    """A version of a workflow that somebody could run."""

    tenant: str
    workflow: str
    version: str


class TaskRow(TaskRun, frozen=True, kw_only=True, gc=False):
    """A task run with everything that is kept of it."""

    since: datetime | None = None
    """When it came into its state."""
    attempt: int = 0
    """How often it was claimed. Whoever reports on it must name the number: an older one is refused."""
    tries: int = 0
    """How many of these count as tries: a deferral and its end are one try, what was handed back is none."""
    failures: int = 0
    """How many tries failed since it was last cleared: its retries are counted by these."""
    recoveries: int = 0
    """How many tries vanished without a report since it was last cleared."""
    deferrals: int = 0
    """How many of its deferrals are over: as many calls of `ctx.defer` return at once."""
    claimed_by: str | None = None
    claimed_at: datetime | None = None
    """When it was last claimed."""
    lease_until: datetime | None = None
    """When whoever claimed it counts as gone, by the store's clock. The store sets it, and renews it."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    pool: str | None = None
    priority: int = 0
    queue: str = "default"
    executor: str = ""

    @property
    def guard(self) -> tuple[TaskState, int, str | None]:
        """The fields that must be unchanged in the store for a change of this task run to be written."""
        return self.state, self.attempt, self.claimed_by


MUTABLE_RUN_FIELDS = ("version", "state", "started_at", "ended_at", "reason")
"""The fields of a run that a change may replace. The others are set at creation, or counted by the store."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run with everything that is kept of it, but its tasks."""

    id: str
    tenant: str
    workflow: str
    version: str
    state: RunState
    params: bytes
    """The params as msgpack: a map by name."""
    origin: str
    """What started it: "manual", "schedule", "trigger", "firing" or "backfill"."""
    created_at: datetime
    slot: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    max_active: int = 16
    """How many runs of the workflow may run at a time, as it was when the run was made."""
    backfill: str | None = None
    """The backfill that it belongs to."""
    revision: int = 0
    """How often anything of the run was changed. The store counts."""
    clears: int = 0
    """How often somebody intervened, so that what was decided before may no longer hold. The store counts."""

    @property
    def version_key(self) -> VersionKey:
        """The version of its workflow that it is pinned to."""
        return VersionKey(self.tenant, self.workflow, self.version)

    def with_update(self, row: "RunRow") -> "RunRow":
        """Return this run with the mutable fields of another row."""
        return msgspec.structs.replace(self, **{name: getattr(row, name) for name in MUTABLE_RUN_FIELDS})


class RunRecord(NamedTuple):
    """A run and its task runs, as of one moment."""

    run: RunRow
    tasks: list[TaskRow]

    def by_task(self) -> dict[str, list[TaskRow]]:
        """Return the task runs of each task: one, or its elements."""
        found: dict[str, list[TaskRow]] = {}
        for row in self.tasks:
            found.setdefault(row.task, []).append(row)
        return found


class TaskError(msgspec.Struct, frozen=True):
    """Why a try failed: the class of the error, what it said, and where it came from."""

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def place(self) -> str:
        """Where in the author's code it was raised, as file:line; "" if it was not raised there."""
        frames = _TRACEBACK_FRAME.findall(self.traceback)
        return ":".join(frames[-1]) if frames else ""


_TRACEBACK_FRAME = re.compile(r'^[ |+-]*File "([^"\n]+)", line (\d+)', re.MULTILINE)


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One try of a task run. It is written down when it ends: until then its task run tells all of it."""

    key: AttemptKey
    number: int
    """Which try it is, for people: 1 for the first."""
    executor: str
    worker: str
    claimed_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: AttemptOutcome = ""
    """How it ended; empty until it has."""
    exit: int | None = None
    """The exit code of the process that it ran in; negative for the signal that ended that."""
    error: TaskError | None = None


def current_attempt_key(run: str, row: TaskRow) -> AttemptKey:
    """Return the key of the try that a claimed task run is at."""
    return AttemptKey(run, row.task, row.index, row.attempt)


def current_attempt_row(run: str, row: TaskRow, **result_fields: Any) -> AttemptRow:
    """Return the try that a claimed task run is at; with how it ended, if it has."""
    return AttemptRow(
        key=AttemptKey(run, row.task, row.index, row.attempt),
        number=row.tries,
        executor=row.executor,
        worker=row.claimed_by or "",
        claimed_at=row.claimed_at or MISSING_TIME,
        started_at=row.started_at,
        **result_fields,
    )


class OutputRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a task run returned, encoded."""

    key: TaskKey
    value: bytes


class RunEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One move of a run (`task` is None) or a task run."""

    task: str | None
    index: int
    attempt: int
    before: str
    after: str
    reason: str = ""


class RunEventBatch(msgspec.Struct, frozen=True):
    """What happened in a run at one time, in order, and who did it. There is something."""

    at: datetime
    actor: str
    events: Sequence[RunEvent]

    def to_rows(self, run: str) -> "Iterator[EventRow]":
        """Yield the events, each with all that is known of it."""
        for event in self.events:
            yield EventRow(run=run, at=self.at, actor=self.actor, **msgspec.structs.asdict(event))


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of a run, as it is told later."""

    run: str
    task: str | None
    index: int
    attempt: int
    before: str
    after: str
    at: datetime
    actor: str
    reason: str = ""


class FireRow(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to start a run that nobody asked for by hand. At most one run comes of it."""

    tenant: str
    workflow: str
    key: str
    """Which schedule, trigger or backfill of the workflow."""
    run: str
    at: datetime
    slot: datetime | None = None
    """The slot: a second fire of the same workflow, key and slot is refused, for ever."""
    digest: str | None = None
    """The payload: a second fire of the same workflow, key and digest is refused while a run of it is active."""
