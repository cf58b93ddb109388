"""Faults of a node that tests inject, and the metrics that report them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

import pytest
from msgspec.structs import replace

import tidemill as tm
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import CommitFuture
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.attempt_results import Lost
from tidemill.workflows.change import Applied, Change, TaskChange
from tidemill.workflows.records import RunRecord, RunRow, TaskRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState, TaskState

CAUSED = (
    "orphan_reaped",
    "orphan_reap_error",
    "orphan_list_error",
    "orphan_panic",
    "dispatch_at_capacity",
    "dispatch_errors_total",
    "dispatch_worker_restarts_total",
    "agent_lost_tasks_total",
    "agent_lost_error",
    "scheduler_phase_errors_total",
    "fenced_writes_total",
    "late_reports_total",
    "run_errors_total",
    "schedule_errors_total",
    "heartbeat_errors_total",
    "trigger_errors_total",
    "subscription_errors_total",
)
"""Metrics of failures: each rises for its own cause, and for no other."""


QUICK = {"unload_timeout": "50ms"}
"""Settings of a node that, when it closes, waits only briefly for code that never ends."""


class Neighbour(tm.testing.TestNode):
    """A node that shares its store with others: it ticks, renews its term and claims, busy or not."""

    __test__ = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"_profile": {"is_single_node": False}})


def troubles(node: tm.testing.TestNode) -> dict[str, float]:
    """Return the metrics of failures that are not 0."""
    metrics = node.metrics()
    return {name: metrics[name] for name in CAUSED if metrics[name]}


def store_of(node: tm.testing.TestNode) -> WorkflowStore:
    """Return the store behind a node."""
    return node.probe.workflows.store


@contextmanager
def breaking(port: Any, name: str, error: Exception | None = None, times: int = 10**6) -> Iterator[list[Any]]:
    """Make the first calls of an awaitable method of a port fail; yield the arguments of all its calls."""
    method, seen = getattr(port, name), []

    async def instead(*args: Any, **options: Any) -> Any:
        seen.append(args)
        if len(seen) <= times:
            raise error or StoreError("failed on purpose")
        return await method(*args, **options)

    def begun(*args: Any, **options: Any) -> CommitFuture[Any]:
        seen.append(args)
        if len(seen) > times:
            return method(*args, **options)
        failed: CommitFuture[Any] = CommitFuture()
        asyncio.get_running_loop().call_soon(failed.set_error, error or StoreError("failed on purpose"))
        return failed

    setattr(port, name, instead if iscoroutinefunction(method) else begun)
    try:
        yield seen
    finally:
        setattr(port, name, method)


@contextmanager
def replacing(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute by one that is made from it."""
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def miss_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the coordinator decide nothing, so that only the run reaper, which plans for itself, ends runs."""
    plan = RunDraft.plan

    def missing(draft: RunDraft, **options: Any) -> None:
        if "kept_deferred" not in options:
            plan(draft)

    monkeypatch.setattr(RunDraft, "plan", missing)


class Blocked:
    """The code of a task that waits for the test, and records how often it started."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = asyncio.Event()

    async def work(self, ctx: tm.Context) -> None:
        self.begun.append(ctx.token)
        await self.go.wait()


def blocked_flow(**options: Any) -> tuple[tm.Workflow, Blocked]:
    """Return workflow `flow` with one task `work` that waits."""
    flow, blocked = tm.Workflow("flow"), Blocked()

    @flow.task(**options)
    async def work(ctx: tm.Context) -> int:
        await blocked.work(ctx)
        return len(blocked.begun)

    return flow, blocked


def plain_flow(name: str = "flow", **options: Any) -> tm.Workflow:
    """Return a workflow whose one task `work` returns 1."""
    flow = tm.Workflow(name, **options)

    @flow.task
    async def work() -> int:
        return 1

    return flow


async def record(node: tm.testing.TestNode, run: str) -> RunRecord:
    """Return a run as it is stored."""
    (stored,) = await store_of(node).runs.load([run])
    return stored


async def only_task(node: tm.testing.TestNode, run: str) -> TaskRow:
    """Return the only task of a run as it is stored."""
    (row,) = (await record(node, run)).tasks
    return row


async def write_orphan(
    node: tm.testing.TestNode, flow: tm.Workflow, id: str, states: dict[str, TaskState], created_at: datetime
) -> None:
    """Write a running run without the engine, with its tasks in given states."""
    spec = flow.wired().spec
    run = RunRow(
        id=id,
        tenant="public",
        workflow=flow.name,
        version=spec.version,
        state=RunState.RUNNING,
        params=b"\x80",
        origin="manual",
        created_at=created_at,
        started_at=created_at,
    )
    rows = [TaskRow(task=name, state=state, executor="in_process", since=created_at) for name, state in states.items()]
    assert isinstance(await store_of(node).runs.apply(Change(run=id, new_run=run, added=rows)), Applied)
    node.probe.workflows.notify_remote_change()


async def overwrite(node: tm.testing.TestNode, run: str, **fields: Any) -> None:
    """Change the only task of a run without the engine."""
    found = await only_task(node, run)
    change = Change(run=run, tasks=[TaskChange(found, replace(found, **fields))])
    assert isinstance(await store_of(node).runs.apply(change), Applied)


async def lose_overdue(node: tm.testing.TestNode) -> None:
    """Recover the only attempt whose lease has expired, as a leader on another node would."""
    ((key, row),) = await store_of(node).runs.list_lease_expired(10)
    await node.probe.workflows.scheduler.task_reaper.mark_lost(key, row, Lost("no heartbeat", row.lease_until))
    await node.advance("1s")


async def until(is_so: Callable[[], Awaitable[bool]], turns: int = 2000) -> None:
    """Give all tasks turns until a condition holds."""
    for _ in range(turns):
        if await is_so():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("the condition never held")
