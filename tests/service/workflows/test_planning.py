"""The coordinator's memory: late reports, polls of old attempts, queues, timers."""

import asyncio
from datetime import UTC, datetime

import tidemill as tm
from tests.service.workflows.acting import start_and_pause
from tests.service.workflows.faults import QUICK, blocked_flow, overwrite
from tidemill.workflows.attempt_results import Lost, RetryBudgets
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import RunState, TaskState


async def test_a_late_value_is_not_handed_on() -> None:
    """W-1: what a lost attempt returned is refused, also when something else of the run is written with it."""
    flow = tm.Workflow("flow")
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    values = iter(["old", "new"])

    @flow.task
    async def a() -> str:
        value = next(values)
        if value == "old":
            await gates["a"].wait()
        return value

    @flow.task
    async def b() -> int:
        await gates["b"].wait()
        return 1

    @flow.task
    def c(a: str, b: int) -> str:
        return a

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        coordinator = node.probe.workflows.coordinator
        first = AttemptKey(run.id, "a", -1, 1)
        done = coordinator.request(
            run.id, lambda draft: draft.apply_result(first, Lost("for this test"), RetryBudgets())
        )
        assert done is not None
        await done
        await node.advance("1s")
        gates["a"].set()  # the old attempt returns in the same turn as something that counts
        gates["b"].set()
        await node.settle()
        result = await run.wait(1)
        assert result.outputs["c"] == "new"
        assert node.metrics()["late_reports_total"] == 1


async def test_everything_for_which_there_is_room_begins_after_a_pause() -> None:
    """max_active_runs: a pause holds back any number of runs, and its end lets all go for which there is room."""
    flow = tm.Workflow("flow", max_active_runs=50)
    gate = asyncio.Event()

    @flow.task
    async def wait() -> None:
        await gate.wait()

    async with tm.testing.node(load=[flow], concurrency=100) as node:
        await start_and_pause(node, "flow", 60)
        await node.resume("flow")
        await node.advance("1s")
        assert len(await node.runs("flow", "running")) == 50
        gate.set()
        await node.settle()
        assert len(await node.runs("flow", "success", limit=None)) == 60


async def test_a_backfill_at_its_limit_does_not_stand_before_others() -> None:
    """W-15: its runs wait for each other, and for no other run."""
    flow = tm.Workflow("flow", schedule=tm.Cron("@daily", catchup="none"), max_active_runs=2)
    gate = asyncio.Event()

    @flow.task
    async def wait() -> None:
        await gate.wait()

    async with tm.testing.node(load=[flow]) as node:
        start, end = datetime(2025, 11, 1, tzinfo=UTC), datetime(2025, 12, 10, tzinfo=UTC)
        plan = await node.backfill("flow", start, end)
        mine = await node.start("flow")
        await node.advance("1s")
        assert (await mine.state()).state is RunState.RUNNING
        states = [(await node.run_handle(one).state()).state for one in plan.runs]
        assert states.count(RunState.RUNNING) == 1
        gate.set()
        await node.settle()
        assert len(await node.runs("flow", "success", limit=None)) == 41


async def test_a_question_ends_with_the_attempt_that_asked_it() -> None:
    """Deferral: cleared, and deferred for another reason, a task is woken by that reason alone."""
    flow = tm.Workflow("flow")
    asked: list[int] = []
    modes = iter(["poll", "time"])

    @flow.task
    def sleepy(ctx: tm.Context) -> str:
        mode = next(modes, "done")
        if mode == "poll":
            ctx.defer(poll=lambda: asked.append(1), every="30s")
        if mode == "time":
            ctx.defer(for_="1m")
        return mode

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.settle()
        await node.advance("31s")
        assert len(asked) == 2  # by the task itself, and once since
        await run.clear("sleepy")
        await node.settle()
        await node.advance("61s")
        assert (await run.wait(1)).outputs == {"sleepy": "done"}
        assert len(asked) == 2


async def test_reading_a_run_again_adds_nothing_to_what_waits() -> None:
    """A node runs for months: neither queues nor timers grow with the number of reloads."""
    flow = tm.Workflow("flow")

    @flow.task
    def numbers() -> list[int]:
        return list(range(40))

    @flow.task(each="numbers")
    async def element(numbers: int, ctx: tm.Context) -> None:
        ctx.defer(for_="1h")
        await asyncio.Event().wait()

    async with tm.testing.node(load=[flow], concurrency=1, settings={"unload_timeout": "10ms"}) as node:
        run = await node.start("flow")
        await node.settle()
        await node.advance("61m")
        coordinator = node.probe.workflows.coordinator
        sizes = set()
        for _ in range(20):
            coordinator.mark_stale(run.id)
            await node.advance("1s")
            sizes.add((node.probe.workflows.waiting_task_count(), node.probe.workflows.timer_count()))
        assert len(sizes) == 1, sizes


async def test_a_run_that_cannot_be_planned_is_tried_by_one_at_a_time() -> None:
    """W-5: however often it is requested."""
    flow = tm.Workflow("flow")

    @flow.task
    def work() -> None:
        """Do nothing."""

    async with tm.testing.node(load=[flow]) as node:
        (run,) = await start_and_pause(node, "flow")
        node.break_run(run.id)
        coordinator = node.probe.workflows.coordinator
        for _ in range(30):
            coordinator.replan(run.id)
            await node.advance("100ms")
        waiting = [task for task in asyncio.all_tasks() if task.get_name() == f"run: {run.id}: retry"]
        assert len(waiting) == 1


async def test_a_run_that_cannot_be_planned_is_not_tried_at_once_because_something_is_due() -> None:
    """W-5: a retry whose time has come does not make the loop go round and round."""
    flow = tm.Workflow("flow")
    troubles = ["down"]

    @flow.task(retry=tm.Retry(1, delay="10s"))
    def work() -> int:
        if troubles:
            raise ConnectionError(troubles.pop())
        return 1

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        node.break_run(run.id)
        await node.advance("1m")
        assert 0 < node.metrics()["run_errors_total"] < 20
        node.repair_runs()
        await node.advance("2m")
        assert (await run.state()).outputs == {"work": 1}


async def test_what_waits_to_be_handed_over_takes_a_place() -> None:
    """Concurrency: `concurrency` attempts at a time, also if the dispatch queue could hold more."""
    flow = tm.Workflow("flow")

    @flow.task
    def numbers() -> list[int]:
        return list(range(30))

    @flow.task(each="numbers")
    def element(numbers: int) -> None:
        """Do nothing."""

    async with tm.testing.node(load=[flow], concurrency=3, settings={"edition": "pro"}) as node:
        node.slow_executor("1s")
        run = await node.start("flow")
        for _ in range(12):
            await node.advance("500ms")
            (rows,) = await node.probe.workflows.store.runs.load([run.id])
            claimed = [row for row in rows.tasks if row.state in (TaskState.QUEUED, TaskState.RUNNING)]
            assert len(claimed) <= 3
        await node.advance("30s")
        assert (await run.state()).ok


async def test_many_runs_are_taken_over_a_few_at_a_time() -> None:
    """F19: a new leader reads active runs in pages, and misses none."""
    flow = tm.Workflow("flow", max_active_runs=2000)

    @flow.task
    def sleepy(ctx: tm.Context) -> int:
        ctx.defer(for_="1h")
        return 1

    async with tm.testing.node("memory://", load=[flow]) as node:
        for _ in range(620):
            await node.start("flow")
        await node.settle()
        node = await node.crash()
        await node.advance("2s")
        coordinator = node.probe.workflows.coordinator
        assert len(coordinator.active_runs) == 620
        await node.advance("1h")
        await node.settle()
        assert len(await node.runs("flow", "success", limit=None)) == 620


async def test_what_others_have_done_is_planned_although_only_a_place_was_given(store: str | None) -> None:
    """W-4: a run that must be reloaded before a claim is planned as it was read, also if the claim fails."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("0s")
        assert len(blocked.begun) == 1
        node.probe.workflows.attempts.claimed.clear()  # as if another node had it, and reports
        await overwrite(node, run.id, state=TaskState.SUCCESS, claimed_by=None)
        coordinator = node.probe.workflows.coordinator
        active = coordinator.active_runs[run.id]
        active.is_stale = True
        node.probe.workflows.grant_slot(run.id, ("work", UNMAPPED), "in_process")
        assert (await run.wait(5)).state is RunState.SUCCESS
