"""Every row of the failure matrix: the loop never dies, nothing is lost, each row tells its own story in metrics."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, start_and_pause
from tests.service.workflows.faults import (
    CAUSED,
    blocked_flow,
    breaking,
    miss_ends,
    plain_flow,
    replacing,
    store_of,
    troubles,
    write_orphan,
)
from tests.simulation.run_audit import audit
from tidemill.engine.workflows.metrics import WORKFLOW_METRICS
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.telemetry.metrics import shown_names
from tidemill.testing.faults.executors import FaultyExecutor
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState, TaskState

OLD = START - timedelta(hours=1)
SUCCESS = {"work": TaskState.SUCCESS}


async def test_all_metrics_are_there_at_0(store: str | None) -> None:
    """Contracts 64-72: who looks at a node that has just begun sees every metric, and no trouble."""
    async with tm.testing.node(store, load=[plain_flow()]) as node:
        metrics = node.metrics()
        ours = set(shown_names(WORKFLOW_METRICS))
        assert ours <= set(metrics)
        quiet = ours - {
            "scheduler_ticks_total",
            "scheduler_leader",
            "scheduler_tick_seconds",
        }
        assert {name: metrics[name] for name in quiet if metrics[name]} == {}
        run = await node.start("flow")
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS
        assert troubles(node) == {}


# -- scheduler crash mid-tick


@pytest.mark.parametrize("phase", ["plan", "run_due"])
@pytest.mark.parametrize("error", [StoreError("away"), RuntimeError("a bug")])
async def test_scheduler_crash_mid_tick(store: str | None, phase: str, error: Exception) -> None:
    """F1, contract 55: a phase that raises costs this tick; the next one resumes from the store."""
    flow, blocked = blocked_flow(retry=tm.Retry(1, delay="5s"))
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        with breaking(node.probe.workflows.scheduler, phase, error):
            await node.advance("5s")
        assert set(troubles(node)) == {"scheduler_phase_errors_total"}
        blocked.go.set()
        await node.advance("5s")
        assert (await run.state()).state is RunState.SUCCESS


async def test_the_office_is_taken_again_if_its_service_dies(store: str | None) -> None:
    """F1, W-5: even if the loop itself dies, the node leads again and continues."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        epoch = node.probe.workflows.coordinator.term.epoch
        with replacing(node.probe.workflows.engine.ticks, "wait", lambda _: _raise):
            await node.advance("1s")
        await node.advance("10s")
        assert node.probe.workflows.coordinator.term.epoch > epoch
        assert troubles(node)["scheduler_phase_errors_total"] >= 1
        blocked.go.set()
        await node.advance("2s")
        assert (await run.state()).state is RunState.SUCCESS
        assert blocked.begun == [f"{run.id}/work#1"]  # what ran here went on


def _raise() -> float:
    raise MemoryError("no more")


async def test_a_node_that_crashes_mid_tick_loses_nothing(store: str | None) -> None:
    """F1: kill -9 with work in every state; the successor brings all of it to its end, without waiting for leases."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], concurrency=2) as node:
        runs = [(await node.start("flow")).id for _ in range(5)]
        await node.advance("1s")
        node = await node.crash()
        blocked.go.set()
        await node.advance("1s")
        states = [(await node.run_handle(run).state()).state for run in runs]
        await audit(store_of(node), {"flow": flow.wired().spec})
    assert states == [RunState.SUCCESS] * 5
    assert len(blocked.begun) == len(set(blocked.begun)) == 7  # the two that were at it began a second time


# -- scheduler crash mid-finalization


async def test_scheduler_crash_mid_finalization(store: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2, contracts 40, 56, 64: everything has ended, and the end of the run was missed; it gets its true outcome."""
    flow = plain_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await write_orphan(node, flow, "r1", SUCCESS, OLD)
        await write_orphan(node, flow, "r2", {"work": TaskState.FAILED}, OLD)
        await node.advance("10m")
        ends = [(await node.run_handle(run).state()).state for run in ("r1", "r2")]
        assert ends == [RunState.SUCCESS, RunState.FAILED]
        assert troubles(node) == {"orphan_reaped": 2}
        await node.advance("10m")
        assert troubles(node) == {"orphan_reaped": 2}


# -- agent dies mid-task


async def test_agent_dies_mid_task(store: str | None) -> None:
    """F3, contracts 43, 44, 71: its process is gone without a report; it is lost after 90 s and retried."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        await node.kill_worker()
        await node.advance("80s")
        assert troubles(node) == {}
        await node.advance("30s")
        assert troubles(node) == {"agent_lost_tasks_total": 1}
        assert blocked.begun == [f"{run.id}/work#1", f"{run.id}/work#2"]
        blocked.go.set()
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS
        outcomes = [one.outcome for one in await store_of(node).runs.read_attempts(run.id)]
        assert outcomes == ["lost", "success"]


# -- slow executor API


async def test_slow_executor_api(store: str | None) -> None:
    """F4, W-7, contracts 32, 58, 70: 50 tasks, 500 ms per submit: ticks stay on time, and all of it drains."""
    flow = tm.Workflow("flow")

    @flow.task
    async def numbers() -> list[int]:
        return list(range(50))

    @flow.task(each="numbers")
    async def one(numbers: int) -> int:
        return numbers

    async with tm.testing.node(store, load=[flow]) as node:
        node.slow_executor("500ms")
        run = await node.start("flow")
        await node.advance("1s")
        before, count = node.clock.monotonic(), node.metrics()["scheduler_ticks_total"]
        await node.advance("20s")
        ticks = node.metrics()["scheduler_ticks_total"] - count
        assert (node.clock.monotonic() - before) / ticks == pytest.approx(1.0, rel=0.1)
        assert abs(node.metrics()["scheduler_tick_lag_seconds"]) < 0.1
        assert node.metrics()["dispatch_queue_depth"] == 1
        await node.advance("10s")
        assert (await run.state()).state is RunState.SUCCESS
        metrics = node.metrics()
        assert metrics["dispatch_latency_seconds_count"] == 51
        assert metrics["dispatch_latency_seconds"] >= 25
        assert metrics["dispatch_queue_depth"] == 0
        assert set(troubles(node)) == {"dispatch_at_capacity"}


async def test_one_blocked_executor_does_not_hold_up_the_other(store: str | None) -> None:
    """F4, contract 58: while one executor takes a minute to accept anything, tasks of another run."""
    flow, quick = tm.Workflow("flow"), []

    @flow.task(executor="subprocess")
    def slow() -> int:
        return 1

    @flow.task
    async def fast() -> int:
        quick.append(1)
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        slow = node.probe.workflows.executors["subprocess"]
        assert isinstance(slow, FaultyExecutor)
        slow.set_delay(60)
        await node.start("flow")
        await node.advance("2s")
        assert quick == [1]
        assert troubles(node) == {}
        await node.advance("1m")  # a node that closes waits for tasks that are being submitted


# -- DB hiccup on creating due runs


@pytest.mark.parametrize("what", ["list", "create"])
async def test_db_hiccup_on_creating_due_runs(store: str | None, what: str) -> None:
    """F5, contract 59: due runs cannot be listed, or made: the reapers have their turn all the same; no slot lost."""
    flow = plain_flow("cron", schedule=tm.Every("10s"))
    other, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow, other], start=START) as node:
        await node.start("flow")
        await node.advance("5s")
        reaped: list[Any] = []
        runs = store_of(node).runs
        with (
            breaking(runs, *(("list_active",) if what == "list" else ("apply",))),
            replacing(node.probe.workflows.scheduler.task_reaper, "reap", lambda reap: _counting(reap, reaped)),
        ):
            await node.advance("6s")
        assert len(reaped) >= 5
        assert set(troubles(node)) <= {"scheduler_phase_errors_total"}
        assert troubles(node)
        blocked.go.set()
        await node.advance("1s")
        slots = [(await one.state()) for one in await node.runs("cron")]
        assert [one.state for one in slots] == [RunState.SUCCESS]


def _counting(call: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    async def counted(*args: Any) -> Any:
        calls.append(args)
        return await call(*args)

    return counted


# -- poison run


async def test_poison_run(store: str | None) -> None:
    """F6, W-5, contract 60: everything about one run raises; all others go on in the same tick; `why` says so."""
    flow = plain_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        poisoned, healthy = await start_and_pause(node, "flow", 2)
        node.break_run(poisoned.id)
        await node.resume("flow")
        await node.advance("1s")
        assert (await healthy.state()).state is RunState.SUCCESS
        assert not (await poisoned.state()).state.is_terminal
        assert set(troubles(node)) == {"run_errors_total"}
        assert any("broken on purpose" in said for said in await poisoned.why("work"))
        node.repair_runs()
        await node.advance("1m")
        assert (await poisoned.state()).state is RunState.SUCCESS  # the reason was passing


async def test_a_run_that_cannot_be_planned_holds_up_no_younger_one(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6, W-5: its plan fails after it was admitted, so its turn is taken back."""
    flow, go = tm.Workflow("flow", max_active_runs=1), asyncio.Event()

    @flow.task
    async def work() -> None:
        await go.wait()

    plan, poisoned = RunDraft.plan, set[str]()

    def plan_unless_poisoned(draft: RunDraft, **options: Any) -> None:
        if draft.run.id in poisoned:
            raise ValueError("poison")
        plan(draft, **options)

    monkeypatch.setattr(RunDraft, "plan", plan_unless_poisoned)
    async with tm.testing.node(store, load=[flow]) as node:
        first, second, third = [await node.start("flow") for _ in range(3)]
        await node.advance("1s")
        poisoned.add(second.id)
        go.set()
        await node.advance("1s")
        assert [(await run.state()).state for run in (first, third)] == [RunState.SUCCESS] * 2
        poisoned.clear()
        await node.advance("1m")
        assert (await second.state()).state is RunState.SUCCESS


async def test_a_report_of_a_poison_run_is_not_lost(store: str | None) -> None:
    """F6: what a task of it returned is written although nothing of the run can be planned."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        node.break_run(run.id)
        blocked.go.set()
        await node.advance("1s")
        assert (await run.state()).tasks["work"].state is TaskState.SUCCESS
        node = await node.crash()
        await node.advance("1s")
        assert (await node.run_handle(run.id).state()).state is RunState.SUCCESS


async def test_a_run_whose_version_cannot_be_read(store: str | None) -> None:
    """F6: an unreadable stored spec is the problem of its own runs."""
    flow = plain_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        (run,) = await start_and_pause(node, "flow")
        with replacing(node.probe.workflows.versions, "load_spec", lambda _: _unreadable):
            node.probe.workflows.coordinator.active_runs.clear()
            await node.advance("10s")
            await node.resume("flow")
            await node.advance("10s")
            assert not (await store_of(node).runs.load([run.id]))[0].run.state.is_terminal
            assert set(troubles(node)) == {"run_errors_total"}
        await node.advance("2m")
        assert (await run.state()).state is RunState.SUCCESS


async def _unreadable(version: Any) -> Any:
    raise OperationError("not a spec")


# -- poison reap candidate


@pytest.mark.parametrize(
    ("error", "metric"), [(StoreError("away"), "orphan_reap_error"), (RuntimeError("a bug"), "orphan_panic")]
)
async def test_poison_reap_candidate(
    store: str | None, error: Exception, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7, contracts 61, 65, 67: the first candidate fails, or raises; the rest are reaped in the same tick."""
    flow = plain_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        for number in range(4):
            await write_orphan(node, flow, f"r{number}", SUCCESS, OLD + timedelta(seconds=number))
        reaper = node.probe.workflows.scheduler.run_reaper
        await node.probe.workflows.coordinator.refresh()
        await node.advance("0ms")
        with replacing(reaper, "_reap", lambda reap: _failing("r0", reap, error)):
            await reaper.reap()
        ended = [(await node.run_handle(f"r{n}").state()).state.is_terminal for n in range(4)]
        assert ended == [False, True, True, True]
        assert troubles(node) == {"orphan_reaped": 3, metric: 1}


def _failing(run: str, call: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    async def fails(candidate: str) -> None:
        if candidate == run:
            raise error
        await call(candidate)

    return fails


async def test_candidates_that_cannot_be_listed(store: str | None) -> None:
    """Contract 66: the pass is over, is counted, and the next phase has its turn."""
    async with tm.testing.node(store, load=[plain_flow()]) as node:
        with breaking(store_of(node).runs, "list_orphans"):
            await node.probe.workflows.scheduler.tick()
        assert troubles(node) == {"orphan_list_error": 1, "scheduler_phase_errors_total": 1}


# -- leader connection blip, leader overlap


async def test_leader_connection_blip(store: str | None) -> None:
    """F8, contract 52: the leadership is lost and won again; no slot is missed, nothing runs twice."""
    cron = plain_flow("cron", schedule=tm.Every("10s"))
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow, cron], start=START) as node:
        run = await node.start("flow")
        await node.advance("15s")
        coordinator = node.probe.workflows.coordinator
        node.probe.workflows.election.step_down(coordinator.term)
        await node.advance("15s")
        assert node.probe.workflows.coordinator.term.epoch > coordinator.term.epoch
        blocked.go.set()
        await node.advance("1s")
        assert (await run.state()).state is RunState.SUCCESS
        assert blocked.begun == [f"{run.id}/work#1"]
        assert len(await node.runs("cron")) == 3
        assert troubles(node) == {}


async def test_leader_overlap(store: str | None) -> None:
    """F9, W-8: another node leads, and this node does not know: none of its writes as leader is applied."""
    flow = tm.Workflow("flow")
    gate = asyncio.Event()

    @flow.task
    async def first() -> int:
        await gate.wait()
        return 1

    @flow.task
    async def second(first: int) -> int:
        return first + 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        owner = node.probe.workflows.owner.id
        epoch = await store_of(node).leases.acquire("scheduler", "another", 3.0, [owner])
        assert epoch is not None
        gate.set()
        await node.advance("1s")
        assert troubles(node) == {"fenced_writes_total": 1}
        states = {row.task: row.state for row in (await store_of(node).runs.load([run.id]))[0].tasks}
        assert states == {"first": TaskState.SUCCESS, "second": TaskState.NONE}  # reported, and not planned
        await node.advance("10s")  # the other one never renews
        assert (await run.state()).state is RunState.SUCCESS
        assert node.metrics()["late_reports_total"] == 0
        await audit(store_of(node), {"flow": flow.wired().spec})


# -- the figures


async def test_every_trouble_has_a_cause_in_these_tests() -> None:
    """Contract 72: no metric of trouble is unknown, and none that is known is left out of the list."""
    words = ("error", "orphan", "lost", "restarts", "capacity", "fenced", "late_reports")
    said = {name for name in shown_names(WORKFLOW_METRICS) if any(word in name for word in words)}
    assert said <= set(CAUSED)
    assert set(CAUSED) <= set(shown_names(WORKFLOW_METRICS))


async def test_dispatch_errors_and_crashes_of_dispatch_workers(store: str | None) -> None:
    """Contracts 34, 35, W-5: an executor that refuses costs the attempt; a worker that crashes is restarted."""
    flow = plain_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        node.slow_executor("1ms")
        executor = node.probe.workflows.executors["in_process"]
        with breaking(executor, "submit", OperationError("no room"), times=1):
            refused = await node.start("flow")
            await node.advance("1s")
        assert troubles(node) == {"dispatch_errors_total": 1}
        result = await refused.state()
        assert result.state is RunState.FAILED
        assert "no room" in result.tasks["work"].reason
        with replacing(node.probe.workflows.attempts.dispatcher, "_submit", lambda call: _failing_first(call)):
            crashed = await node.start("flow")
            await node.advance("1s")
        assert node.metrics()["dispatch_worker_restarts_total"] == 1
        await node.advance("3m")
        assert (await crashed.state()).state is RunState.SUCCESS


def _failing_first(call: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[Any] = []

    async def fails(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            raise RuntimeError("a bug of ours")
        await call(*args)

    return fails
