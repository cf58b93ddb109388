"""Every metric of the workflow engine is caused by something."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

import tidemill as tm
from tests.remote.flow import remote
from tests.remote.scripted_units import Cluster, make_node_class
from tests.service.workflows.acting import START
from tests.service.workflows.faults import (
    QUICK,
    blocked_flow,
    breaking,
    lose_overdue,
    miss_ends,
    plain_flow,
    replacing,
    store_of,
    write_orphan,
)
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.metrics import WORKFLOW_METRICS
from tidemill.engine.workflows.process_identity import HostLiveness
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.metrics import shown_names
from tidemill.workflows.states import TaskState

Story = Callable[[pytest.MonkeyPatch], Awaitable[set[str]]]
STORIES: dict[str, Story] = {}


def tells(*names: str) -> Callable[[Story], Story]:
    """Declare a story: which metrics it lets rise."""

    def declare(story: Story) -> Story:
        STORIES.update(dict.fromkeys(names, story))
        return story

    return declare


def risen(node: tm.Node) -> set[str]:
    """Return the metrics that are not 0."""
    return {name for name, value in node.metrics().items() if value}


@tells("scheduler_ticks_total", "scheduler_leader", "claims_total", "runs_total", "tasks_total", "runs_active")
@tells("run_duration_seconds", "run_duration_seconds_count", "run_last_success_timestamp_seconds")
@tells("task_duration_seconds", "task_duration_seconds_count")
async def plain_run(_: pytest.MonkeyPatch) -> set[str]:
    flow, blocked = blocked_flow()
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("2s")
        seen = risen(node)
        blocked.go.set()
        await node.settle()
        return seen | risen(node)


@tells("dispatch_queue_depth", "dispatch_at_capacity", "dispatch_latency_seconds", "dispatch_latency_seconds_count")
async def crowded_queue(_: pytest.MonkeyPatch) -> set[str]:
    flow, _blocked = blocked_flow()
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        node.slow_executor("3s")
        for _number in range(4):
            await node.start("flow")
        await node.advance("5s")
        return risen(node)


def refuse(order: AttemptRequest) -> None:
    raise OperationError(f"no, not {order.key}")


@tells("dispatch_errors_total")
async def refused(_: pytest.MonkeyPatch) -> set[str]:
    async with tm.testing.node(load=[plain_flow()]) as node:
        with replacing(node.probe.workflows.executors["in_process"], "submit_now", lambda _: refuse):
            await node.start("flow")
            await node.advance("1s")
        return risen(node)


@tells("dispatch_worker_restarts_total")
async def crashed_worker(_: pytest.MonkeyPatch) -> set[str]:
    async with tm.testing.node(load=[plain_flow()]) as node:
        node.slow_executor("1ms")
        with breaking(node.probe.workflows.attempts.dispatcher, "_submit", RuntimeError("a bug"), times=1):
            await node.start("flow")
            await node.advance("1s")
        return risen(node)


@tells("orphan_reaped", "orphan_panic", "orphan_reap_error", "orphan_list_error", "scheduler_phase_errors_total")
async def orphans(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    flow = plain_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(load=[flow], start=START) as node:
        await write_orphan(node, flow, "r1", {"work": TaskState.SUCCESS}, START - timedelta(hours=1))
        await node.probe.workflows.coordinator.refresh()
        reaper = node.probe.workflows.scheduler.run_reaper
        with breaking(reaper, "_reap", RuntimeError("a bug")):
            await reaper.reap()
        with breaking(store_of(node).runs, "load"):
            await reaper.reap()
        with breaking(store_of(node).runs, "list_orphans"):
            await node.probe.workflows.scheduler.tick()
        await node.advance("1m")
        return risen(node)


@tells("agent_lost_tasks_total", "agent_lost_error", "run_errors_total")
async def lost(_: pytest.MonkeyPatch) -> set[str]:
    flow, _blocked = blocked_flow()
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        await node.kill_worker()
        node.break_run(run.id)
        await node.advance("95s")
        node.repair_runs()
        await node.advance("2m")
        return risen(node)


@tells("agent_stuck_tasks")
async def stuck(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    flow, _blocked = blocked_flow()
    monkeypatch.setattr(HostLiveness, "is_running", lambda *_: True)
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        await node.kill_worker()
        await node.advance("2m")
        return risen(node)


@tells("late_reports_total", "heartbeat_errors_total")
async def frozen(_: pytest.MonkeyPatch) -> set[str]:
    flow, blocked = blocked_flow()
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        await node.start("flow")
        with breaking(store_of(node).runs, "renew_leases"):
            await node.advance("130s")
            await lose_overdue(node)
        blocked.go.set()
        await node.advance("20s")
        return risen(node)


@tells("answers_total", "steps_total", "steps_reused_total")
async def question(_: pytest.MonkeyPatch) -> set[str]:
    flow = tm.Workflow("flow")

    @flow.task
    def ask(ctx: tm.Context) -> int:
        return ctx.step(abs, -1) + ctx.wait_for("count", int)

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        await run.answer("count", 1)
        await node.settle()
        return risen(node)


@tells("loop_blocked_total", "loop_blocked_seconds_total")
async def blocked_loop(_: pytest.MonkeyPatch) -> set[str]:
    flow, pause = tm.Workflow("greedy"), threading.Event()

    @flow.task
    async def hog() -> None:
        pause.wait(0.2)  # blocks the event loop

    async with tm.Node(load=[flow], settings={"blocked_loop_warning": "20ms"}) as node:
        await (await node.start("greedy")).wait(20)
        return risen(node)


@tells("adopted_attempts_total")
async def killed_with_a_unit(_: pytest.MonkeyPatch) -> set[str]:
    async with make_node_class(Cluster())(load=[remote]) as node:
        await node.start("remote", folder="/nowhere")
        await node.advance("1s")
        successor = await node.crash()
        await successor.advance("5s")
        return risen(successor)


@tells("fenced_writes_total")
async def deposed(_: pytest.MonkeyPatch) -> set[str]:
    flow, blocked = blocked_flow()
    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        await store_of(node).leases.acquire("scheduler", "another", 3.0, [node.probe.workflows.owner.id])
        blocked.go.set()
        await node.advance("1s")
        return risen(node)


@tells("scheduler_tick_lag_seconds", "cron_lateness_seconds", "slots_dropped_total")
async def suspended(_: pytest.MonkeyPatch) -> set[str]:
    cron = plain_flow("cron", schedule=tm.Every("10s", catchup="latest"))
    flow, _blocked = blocked_flow()
    async with tm.testing.node(load=[cron, flow], start=START, settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        node.clock.advance_to(node.clock.monotonic() + 3600.5)
        async with asyncio.timeout(5):
            while "scheduler_tick_lag_seconds" not in risen(node):  # noqa: ASYNC110 - nothing signals a tick
                await asyncio.sleep(0)
        await node.advance("0s")
        return risen(node)


@tells("scheduler_tick_seconds")
async def slow_pass(_: pytest.MonkeyPatch) -> set[str]:
    async with tm.testing.node(load=[plain_flow()]) as node:
        reaper = node.probe.workflows.scheduler.run_reaper

        async def slow() -> None:
            node.clock.advance_to(node.clock.monotonic() + 0.5)

        reaper.reap = slow
        await node.probe.workflows.scheduler.tick()
        return risen(node)


@tells("schedule_errors_total")
async def broken_schedule(_: pytest.MonkeyPatch) -> set[str]:
    async with tm.testing.node(load=[plain_flow("cron", schedule=tm.Every("10s"))], start=START) as node:
        with breaking(node.probe.workflows.starter, "start", ValueError("no")):
            await node.advance("11s")
        return risen(node)


@tells("trigger_polls_total", "trigger_errors_total")
async def broken_trigger(_: pytest.MonkeyPatch) -> set[str]:
    @tm.trigger(every="1s")
    async def look() -> tm.Fire | None:
        raise ConnectionError("away")

    async with tm.testing.node(load=[plain_flow(triggers=[look])]) as node:
        await node.advance("3s")
        return risen(node)


@tells("runs_pruned_total")
async def old_runs(_: pytest.MonkeyPatch) -> set[str]:
    flow = plain_flow("cron", schedule=tm.Every("1h"))
    async with tm.testing.node(load=[flow], settings={"retention": "1d"}, start=START) as node:
        await node.start("cron")
        await node.advance("2d")
        await node.probe.workflows.scheduler.tick()
        return risen(node)


ELSEWHERE = {
    *(name for name in shown_names(WORKFLOW_METRICS) if name.startswith("subscription_")),
    "runs_waiting_for_code",
    *("steps_total", "steps_reused_total"),
}
"""Told by the tests of subscriptions, of older archives of packages, and of steps."""


def test_there_is_a_story_for_every_metric() -> None:
    """Contract 72: a metric that nothing tells is a defect."""
    assert set(STORIES) | ELSEWHERE == set(shown_names(WORKFLOW_METRICS))


@pytest.mark.parametrize("name", sorted(STORIES))
async def test_every_metric_has_its_story(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contracts 64-72."""
    assert name in await STORIES[name](monkeypatch)
