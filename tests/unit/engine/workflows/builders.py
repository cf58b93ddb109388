"""Rows, runs and a fake of the node's attempts, for tests of the leader's parts without a node."""

from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from tidemill.engine.workflows.executors.interface import COMMON_SLOTS
from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import RunRecord, RunRow, TaskRow, VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

START = datetime(2026, 1, 1, tzinfo=UTC)
VERSION = VersionKey("public", "flow", "v1")


def run_row(id: str = "r1", state: RunState = RunState.RUNNING, **fields: Any) -> RunRow:
    """Return a run of workflow `flow`."""
    defaults: dict[str, Any] = {
        "tenant": "public",
        "workflow": "flow",
        "version": "v1",
        "params": b"\x80",
        "origin": "manual",
        "created_at": START,
    }
    return RunRow(id=id, state=state, **(defaults | fields))


def task_row(task: str = "work", state: TaskState = TaskState.SCHEDULED, **fields: Any) -> TaskRow:
    """Return a task at executor `fast`, scheduled since the start."""
    defaults: dict[str, Any] = {"index": UNMAPPED, "since": START, "executor": "fast"}
    return TaskRow(task=task, state=state, **(defaults | fields))


def later(seconds: float) -> datetime:
    """Return a time after the start."""
    return START + timedelta(seconds=seconds)


def active_run(run: RunRow, *rows: TaskRow) -> ActiveRun:
    """Return a cached run with these tasks."""
    spec = WorkflowSpec(name="flow", tasks=tuple(TaskSpec(name=row.task, pool=row.pool) for row in rows))
    return ActiveRun(RunRecord(run, list(rows)), VERSION, spec)


def attempts_with(cold: Collection[VersionKey] = (), coroutines: int | None = None, **slots: int) -> LocalAttempts:
    """Return a fake of the node's attempts: executors by name, each with so many free slots.

    Each starts attempts of every version at once, except of the `cold` versions: the dispatch queue has room for one.
    With a number of `coroutines`, tasks whose names begin with "async" have so many slots of their own.
    """

    def starts_now(version: VersionKey) -> bool:
        return version not in cold

    def slot_class(_: VersionKey, task: str) -> str:
        return "coroutines" if coroutines is not None and task.startswith("async") else COMMON_SLOTS

    def free_slots(executor: str, slot_class: str | None = None, version: VersionKey | None = None) -> int:
        free = coroutines if slot_class == "coroutines" and coroutines is not None else slots[executor]
        return min(free, 1) if version in cold else free

    executor = SimpleNamespace(
        is_immediate=False, starts_now=starts_now, blocked_tenants=frozenset, slot_class=slot_class
    )
    executors = dict.fromkeys(slots, executor)
    dispatcher = SimpleNamespace(pending=Counter(), free_queue_slots=1)
    fake = SimpleNamespace(executors=executors, dispatcher=dispatcher, free_slots=free_slots, claimed={})
    return cast(LocalAttempts, fake)
