"""Rows of runs, task runs and attempts, column by column, as every database stores them.

The planner sees fewer fields (`plan.PlannedRun`, `plan.TaskRun`). Rows cannot be part of a reference cycle, so the
garbage collector does not track them (`gc=False`): there are many.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from tidemill.workflows.plan import UNMAPPED, TaskRun
from tidemill.workflows.states import RunState, TaskState

FailureOutcome = Literal["failed", "timeout", "dispatch_failed", "oom", "not_started"]
"""How an attempt may fail.

Its code raised or its process exited, it timed out, its executor rejected it, it was out of memory, or its cluster
could not start it.
"""
LossOutcome = Literal["lost", "evicted", "node_lost"]
"""How an attempt may be lost: it fell silent, its cluster evicted it, or the machine that ran it was lost."""
AttemptOutcome = FailureOutcome | LossOutcome | Literal["", "success", "skipped", "deferred", "cancelled", "returned"]
"""How an attempt may end, as stored; empty while it is active."""
MISSING_TIME = datetime.min.replace(tzinfo=UTC)
"""Replaces a required time that a row lacks."""


class TaskKey(NamedTuple):
    """Identifies a task run: one task of one run, or one element of a mapped task."""

    run: str
    task: str
    element: int = UNMAPPED

    @property
    def label(self) -> str:
        """The name within its run: "clean", or "clean[7]" for an element."""
        return self.task if self.element == UNMAPPED else f"{self.task}[{self.element}]"


class AttemptKey(NamedTuple):
    """Identifies one attempt of a task run. Keys are never reused, so an executor can accept each one once."""

    run: str
    task: str
    element: int
    attempt: int

    @property
    def task_key(self) -> TaskKey:
        """The task run of this attempt."""
        return TaskKey(self.run, self.task, self.element)

    def __str__(self) -> str:
        element = "" if self.element == UNMAPPED else f"[{self.element}]"
        return f"{self.run}/{self.task}{element}#{self.attempt}"


class VersionKey(NamedTuple):
    """Identifies a version of a workflow."""

    tenant: str
    workflow: str
    version: str


DEFERRED_UNTIL_TIME = "until a time"
"""The reason of a deferral that ends when the wall clock shows a time, however the clock gets there."""
WAITING_FOR_ANSWER = "for an answer"
"""The reason of a deferral that ends when one of its waits does."""


class TaskRow(TaskRun, frozen=True, kw_only=True, gc=False):
    """A task run with all stored fields."""

    since: datetime | None = None
    """When it entered its state."""
    attempt: int = 0
    """The number of claims. Reports name it; a report of an older attempt is refused."""
    tries: int = 0
    """The claims that count as tries: a deferral and its end are one try, an attempt that was handed back is none."""
    failures: int = 0
    """Failed tries since the last clear; retries are limited by this number."""
    recoveries: int = 0
    """Attempts lost without a report since the last clear."""
    deferrals: int = 0
    """Deferrals that have ended: as many calls of `ctx.defer` return immediately."""
    claimed_by: str | None = None
    claimed_at: datetime | None = None
    """When it was last claimed."""
    lease_until: datetime | None = None
    """When the claim expires, by the store's clock. The store sets and renews it."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    pool: str | None = None
    priority: int = 0
    queue: str = "default"
    executor: str = ""

    @property
    def is_counting_down(self) -> bool:
        """Whether it waits for some seconds to pass: a retry, or a deferral that names no time of the wall clock."""
        is_asleep = self.state in (TaskState.UP_FOR_RETRY, TaskState.DEFERRED) and self.wake_at is not None
        return is_asleep and self.reason != DEFERRED_UNTIL_TIME

    @property
    def guard(self) -> tuple[TaskState, int, str | None]:
        """The fields that must be unchanged in the store for a change of this task run to be written."""
        return self.state, self.attempt, self.claimed_by


MUTABLE_RUN_FIELDS = ("version", "state", "started_at", "ended_at", "reason")
"""The fields of a run that a change may replace. The others are set at creation, or counted by the store."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run with all stored fields, without its task runs."""

    id: str
    tenant: str
    workflow: str
    version: str
    state: RunState
    params: bytes
    """The params as msgpack: a map by name."""
    origin: str
    """What started it: "manual", "schedule", "trigger", "firing", "backfill" or "task"."""
    created_at: datetime
    slot: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    max_active: int = 16
    """The limit of concurrent runs of the workflow when the run was created."""
    backfill: str | None = None
    """The id of its backfill."""
    cause: str | None = None
    """The name of what started it: of a trigger, a reactor, or the workflow of a task; None if it has none."""
    about: str | None = None
    """What it is about, so that it starts once: the key of its schedule, or what `dedup` of a subscription says."""
    caused_by: str | None = None
    """The id of what started it: of a firing, of the run of a task, or the actor of a manual start."""
    cause_key: str | None = None
    """Of a run that a keyed reactor started: the key of the firing, as `format_key` writes it."""
    dismissed_at: datetime | None = None
    """When an operator last dismissed its failure; see `storage.unresolved`."""
    trace: str | None = None
    """The span of the run and its parent, as `telemetry.tracing.StoredTrace` encodes them; None if it is not traced."""
    revision: int = 0
    """The number of changes of the run, counted by the store."""
    clears: int = 0
    """The number of clears, counted by the store. A plan made before a clear no longer applies."""
    sequence: int = 0
    """The number of its creation, given by the store: a later run has a higher one. 0 until it is stored."""

    @property
    def version_key(self) -> VersionKey:
        """The workflow version that the run is pinned to."""
        return VersionKey(self.tenant, self.workflow, self.version)

    def with_update(self, row: "RunRow") -> "RunRow":
        """Return this run with the mutable fields of another row."""
        return msgspec.structs.replace(self, **{name: getattr(row, name) for name in MUTABLE_RUN_FIELDS})


class RunRecord(NamedTuple):
    """A run and its task runs at one moment."""

    run: RunRow
    tasks: list[TaskRow]

    def by_task(self) -> dict[str, list[TaskRow]]:
        """Return the task runs by task: one each, or all elements of a mapped task."""
        found: dict[str, list[TaskRow]] = {}
        for row in self.tasks:
            found.setdefault(row.task, []).append(row)
        return found


class TaskError(msgspec.Struct, frozen=True):
    """Why an attempt failed: the error's class, message and traceback."""

    type: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def place(self) -> str:
        """The line of author code that raised, as file:line; "" if none did."""
        frames = _TRACEBACK_FRAME.findall(self.traceback)
        return ":".join(frames[-1]) if frames else ""


_TRACEBACK_FRAME = re.compile(r'^[ |+-]*File "([^"\n]+)", line (\d+)', re.MULTILINE)


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a task run. It is stored when it ends; until then the task run's row describes it."""

    key: AttemptKey
    number: int
    """The try that it belongs to, counted from 1."""
    executor: str
    worker: str
    claimed_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: AttemptOutcome = ""
    """How it ended; empty while it is active."""
    exit: int | None = None
    """The exit code of its process; negative if a signal ended it."""
    error: TaskError | None = None


def current_attempt_key(run: str, row: TaskRow) -> AttemptKey:
    """Return the key of a claimed task run's current attempt."""
    return AttemptKey(run, row.task, row.index, row.attempt)


class OutputRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The encoded return value of a task run."""

    key: TaskKey
    value: bytes


class RunEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One transition of a run (`task` is None) or of a task run."""

    task: str | None
    index: int
    attempt: int
    before: str
    after: str
    reason: str = ""


class RunEventBatch(msgspec.Struct, frozen=True):
    """The events of one change of a run, in order, with time and actor. It is never empty."""

    at: datetime
    actor: str
    events: Sequence[RunEvent]

    def to_rows(self, run: str) -> "Iterator[EventRow]":
        """Yield the events as rows."""
        for event in self.events:
            yield EventRow(run=run, at=self.at, actor=self.actor, **msgspec.structs.asdict(event))


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of a run, as stored."""

    run: str
    task: str | None
    index: int
    attempt: int
    before: str
    after: str
    at: datetime
    actor: str
    reason: str = ""


class NumberedEvent(NamedTuple):
    """An event of a run with its number in the sequence of all runs' events, and whose run it is."""

    number: int
    tenant: str
    workflow: str
    event: EventRow


class FireRow(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded decision of a schedule, trigger or backfill to start a run. It starts at most one."""

    tenant: str
    workflow: str
    key: str
    """The key of the schedule, trigger or backfill."""
    run: str
    at: datetime
    slot: datetime | None = None
    """The slot: the store refuses every further fire of the same workflow, key and slot."""
    digest: str | None = None
    """The payload's digest: the store refuses the same workflow, key and digest while a run of it is active."""
    dedup: str | None = None
    """What the fire is about: the store suppresses further fires of the same workflow about it, whatever their key.

    They are suppressed while a run of one is active, or, with a cooldown, if the `at` of one is nearer than that.
    """
    cooldown: timedelta | None = None
    """How long fires are suppressed after this one's predecessor. It is not stored."""
