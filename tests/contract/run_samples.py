"""Runs for the contract suite, with everything filled in that a test does not care about."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tests.contract.samples import NOON
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import ClaimRequest, RunFilter
from tidemill.workflows.change import Applied, Change, TaskChange
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    FireRow,
    OutputRow,
    RunEvent,
    RunEventBatch,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
    VersionKey,
)
from tidemill.workflows.states import RunState, TaskState

LEASE = 90.0
LOADED = [VersionKey("public", "flow", "v1")]


def after(seconds: float) -> datetime:
    """Return a time so long after NOON."""
    return NOON + timedelta(seconds=seconds)


def run_row(id: str = "r1", **values: Any) -> RunRow:
    """Return a running run."""
    given = {
        "tenant": "public",
        "workflow": "flow",
        "version": "v1",
        "state": RunState.RUNNING,
        "params": b"\x80",
        "origin": "manual",
        "created_at": NOON,
        "started_at": NOON,
    }
    return RunRow(id=id, **(given | values))


def task_row(task: str = "a", state: TaskState = TaskState.SCHEDULED, **values: Any) -> TaskRow:
    """Return a task run that waits to be claimed."""
    return TaskRow(task=task, state=state, **({"since": NOON, "executor": "in_process"} | values))


def full_task_row(task: str = "a", index: int = UNMAPPED, zone: Any = None) -> TaskRow:
    """Return a task run in which nothing has its default value."""
    at = NOON if zone is None else NOON.astimezone(zone)
    return TaskRow(
        task=task,
        index=index,
        state=TaskState.RUNNING,
        variant="Big",
        size=3,
        wake_at=at + timedelta(microseconds=1),
        since=at + timedelta(microseconds=2),
        attempt=4,
        tries=3,
        failures=2,
        recoveries=1,
        deferrals=5,
        claimed_by="node-1",
        claimed_at=at + timedelta(microseconds=3),
        started_at=at + timedelta(microseconds=4),
        ended_at=at + timedelta(microseconds=5),
        reason="naïve 名前 🌊",
        pool="gpu",
        priority=-7,
        queue="slow",
        executor="subprocess",
    )


def attempt_row(
    run: str = "r1", task: str = "a", attempt: int = 1, element: int = UNMAPPED, **values: Any
) -> AttemptRow:
    """Return an attempt."""
    given = {"number": attempt, "executor": "in_process", "worker": "node-1", "claimed_at": NOON}
    return AttemptRow(key=AttemptKey(run, task, element, attempt), **(given | values))


def output_row(run: str = "r1", task: str = "a", element: int = UNMAPPED, value: bytes = b"value") -> OutputRow:
    """Return an output."""
    return OutputRow(key=TaskKey(run, task, element), value=value)


def returned(*outputs: OutputRow, attempt: int = 1) -> dict[str, Any]:
    """Return the fields of a change for attempts and their outputs."""
    keys = [AttemptKey(*one.key, attempt) for one in outputs]
    rows = [attempt_row(key.run, key.task, key.attempt, key.element) for key in keys]
    return {"attempts": rows, "outputs": {key: one.value for key, one in zip(keys, outputs, strict=True)}}


def event_row(run: str = "r1", task: str | None = "a", **values: Any) -> EventRow:
    """Return an event."""
    given = {"index": UNMAPPED, "attempt": 0, "before": "none", "after": "scheduled", "at": NOON, "actor": "node-1"}
    return EventRow(run=run, task=task, **(given | values))


def history(*rows: EventRow) -> RunEventBatch:
    """Return events of one time as a batch, from their rows."""
    what = [RunEvent(row.task, row.index, row.attempt, row.before, row.after, row.reason) for row in rows]
    return RunEventBatch(rows[0].at, rows[0].actor, what)


def fire_row(run: str = "r1", **values: Any) -> FireRow:
    """Return a fire."""
    return FireRow(run=run, **({"tenant": "public", "workflow": "flow", "key": "daily", "at": NOON} | values))


def creation(run: RunRow | None = None, *tasks: TaskRow, **values: Any) -> Change:
    """Return the change that creates a run."""
    run = run or run_row()
    begun = history(event_row(run.id, None, before="", after=run.state, at=run.created_at))
    return Change(run=run.id, new_run=run, added=tasks or [task_row()], **({"history": begun} | values))


def move(run: str, found: TaskRow, row: TaskRow, **values: Any) -> Change:
    """Return a change that replaces one task run by another."""
    return Change(run=run, tasks=[TaskChange(found, row)], **({"lease": LEASE} | values))


def queued(row: TaskRow, owner: str = "node-1") -> TaskRow:
    """Return a task run after a claim."""
    return replace(row, state=TaskState.QUEUED, attempt=row.attempt + 1, tries=row.tries + 1, claimed_by=owner)


def running(row: TaskRow) -> TaskRow:
    """Return a claimed task run after its start."""
    return replace(row, state=TaskState.RUNNING, started_at=NOON)


def succeeded(row: TaskRow) -> TaskRow:
    """Return a task run after its success."""
    return replace(row, state=TaskState.SUCCESS, claimed_by=None, lease_until=None, ended_at=NOON)


def ending(run: str, found: TaskRow, *, at: datetime = NOON) -> Change:
    """Return the change that is written when a running task has succeeded."""
    return move(
        run,
        found,
        succeeded(found),
        attempts=[attempt_row(run, found.task, found.attempt, found.index, ended_at=at, outcome="success")],
        outputs={AttemptKey(run, found.task, found.index, found.attempt): b"value"},
        history=history(event_row(run, found.task, index=found.index, before=found.state, after="success", at=at)),
    )


def claim(executors: Mapping[str, int] | int = 10, owner: str = "node-1", **values: Any) -> ClaimRequest:
    """Return a claim request."""
    limits = {"in_process": executors} if isinstance(executors, int) else executors
    return ClaimRequest(owner=owner, executors=limits, **({"loaded": LOADED, "lease": LEASE, "at": NOON} | values))


async def make(store: Store, *changes: Change) -> None:
    """Apply changes that must not be refused."""
    for change in changes:
        assert isinstance(await store.runs.apply(change), Applied)


async def task_of(store: Store, run: str = "r1", task: str = "a", index: int = UNMAPPED) -> TaskRow:
    """Return a task run as it is stored."""
    (record,) = await store.runs.load([run])
    (found,) = [one for one in record.tasks if (one.task, one.index) == (task, index)]
    return found


async def run_of(store: Store, run: str = "r1") -> RunRow:
    """Return a run as it is stored."""
    (record,) = await store.runs.load([run])
    return record.run


async def everything(store: Store, runs: Sequence[str], tasks: Sequence[str] = ("a", "b", "m")) -> list[Any]:
    """Return everything stored of runs, to compare before and after."""
    known: list[Any] = []
    for run in runs:
        for record in await store.runs.load([run]):
            known += [record.run, sorted(record.tasks, key=lambda row: (row.task, row.index))]
        known += [
            await store.runs.read_attempts(run),
            await store.runs.read_events(run),
            await store.runs.read_outputs(run, tasks),
        ]
    slots = [
        await store.runs.read_fired_slots("public", "flow", key, after(-1e6), after(1e6)) for key in ("daily", "t")
    ]
    listed = [one.id for one in await store.runs.find(RunFilter(tenant="public"))]
    return [*known, slots, listed, sorted(await store.runs.list_active()), sorted(await store.runs.count_claims())]


ERROR = TaskError("ValueError", "naïve 名前 🌊", "Traceback\n  line 1")
