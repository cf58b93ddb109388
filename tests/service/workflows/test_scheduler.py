"""The loop: on time, isolated in every part, and never waiting for anybody."""

import asyncio
import gc
import logging
import weakref
from datetime import datetime, timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START
from tests.service.workflows.faults import QUICK, blocked_flow, breaking, plain_flow, replacing, store_of, troubles
from tidemill.engine.workflows.leader import scheduler as scheduler_module
from tidemill.engine.workflows.starts.schedules import START_ATTEMPT_LIMIT
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import RunFilter
from tidemill.telemetry.events import SCHEDULE_SLOTS_DROPPED
from tidemill.workflows.states import RunState, TaskState


async def test_the_tick_re_derives_everything(store: str | None) -> None:
    """W-4: what is in mind may be thrown away at any time; the next pass finds it in the store."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        coordinator = node.probe.workflows.coordinator
        coordinator.active_runs.clear()
        blocked.go.set()
        await node.advance("2s")
        assert (await run.state()).state is RunState.SUCCESS
        assert blocked.begun == [f"{run.id}/work#1"]


async def test_a_run_that_is_made_while_the_store_answers_stays_on_the_desk(store: str | None) -> None:
    """W-4: an answer that was true when it was read must not push a newer run off the board."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        runs, started = store_of(node).runs, []
        active = runs.list_active

        async def slow_answer() -> Any:
            found = await active()
            if not started:
                started.append(await node.start("flow"))
            return found

        runs.list_active = slow_answer
        await node.probe.workflows.scheduler.plan()
        runs.list_active = active
        assert started[0].id in node.probe.workflows.coordinator.active_runs
        blocked.go.set()
        await node.settle()
        assert (await started[0].state()).state is RunState.SUCCESS


@pytest.mark.parametrize("name", ["run_reaper", "task_reaper"])
@pytest.mark.parametrize("error", [StoreError("away"), RuntimeError("a bug")])
async def test_a_failing_phase_never_stops_the_next(store: str | None, name: str, error: Exception) -> None:
    """W-5: per phase."""
    async with tm.testing.node(store, load=[plain_flow()]) as node:
        scheduler = node.probe.workflows.scheduler
        other = {"run_reaper": "task_reaper", "task_reaper": "run_reaper"}[name]
        reaped: list[int] = []

        async def note() -> None:
            reaped.append(1)

        with (
            breaking(getattr(scheduler, name), "reap", error),
            replacing(getattr(scheduler, other), "reap", lambda _: note),
        ):
            await scheduler.tick()
        assert reaped == [1]
        assert troubles(node) == {"scheduler_phase_errors_total": 1}


async def test_a_store_call_that_never_returns_has_a_deadline(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-5: the phase ends, the next one runs, and the loop continues."""
    monkeypatch.setattr(scheduler_module, "PHASE_TIMEOUT", 0.05)
    async with tm.testing.node(store, load=[plain_flow()]) as node:
        runs = store_of(node).runs
        with replacing(runs, "list_active", lambda _: asyncio.Event().wait):
            await node.probe.workflows.scheduler.tick()
        assert troubles(node) == {"scheduler_phase_errors_total": 1}
        run = await node.start("flow")
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS


async def test_one_schedule_that_fails_does_not_keep_the_others(store: str | None) -> None:
    """W-5: per schedule."""

    def broken(slot: datetime) -> dict[str, int]:
        if slot > START + timedelta(seconds=15):  # what fails for the first slot is refused when it is loaded
            raise ValueError("no params")
        return {}

    bad = plain_flow("bad", schedule=tm.Every("10s", params=broken))
    good = plain_flow("good", schedule=tm.Every("10s"))
    async with tm.testing.node(store, load=[bad, good], start=START) as node:
        await node.advance("35s")
        assert len(await node.runs("good")) == 3
        assert len(await node.runs("bad")) == 1
        assert set(troubles(node)) == {"schedule_errors_total"}


async def slots_of(node: tm.testing.TestNode, workflow: str) -> list[int]:
    """Return the slots of a workflow's runs, in seconds since the start."""
    found = await store_of(node).runs.find(RunFilter(tenant="public", workflow=workflow))
    return [round((run.slot - START).total_seconds()) for run in found if run.slot is not None]


@pytest.mark.parametrize("error", [ValueError("no params"), SystemExit("no params")])
async def test_a_slot_that_cannot_have_a_run_is_dropped_and_the_schedule_goes_on(
    store: str | None, error: BaseException
) -> None:
    """W-5, W-13: it is tried a few times, those after it wait no longer than that, and none has two runs."""
    tries: list[datetime] = []

    def poisoned(slot: datetime) -> dict[str, int]:
        if slot == START + timedelta(seconds=20):
            tries.append(slot)
            raise error
        return {}

    flow = plain_flow(schedule=tm.Every("10s", params=poisoned, catchup="all"))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.advance("34s")
        assert await slots_of(node, "flow") == [10]
        await node.advance("26s")
        assert await slots_of(node, "flow") == [10, 30, 40, 50, 60]
        [schedule] = flow.schedules
        cursor = await store_of(node).schedules.get_cursor("public", "flow", schedule.key)
        assert cursor is not None
        assert cursor.dropped == node.metrics()["slots_dropped_total"] == 1
        assert len(tries) == node.metrics()["schedule_errors_total"] == START_ATTEMPT_LIMIT


async def test_a_slot_that_fails_in_passing_gets_its_run(store: str | None) -> None:
    """W-13: late, and once; also if the leader is another one by then."""
    failures = iter([ValueError("not yet")] * 3)

    def late(slot: datetime) -> dict[str, int]:
        if slot > START + timedelta(seconds=15) and (error := next(failures, None)) is not None:
            raise error
        return {}

    flow = plain_flow(schedule=tm.Every("10s", params=late, catchup="all"))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.advance("22s")
        node = await node.crash()
        await node.advance("38s")
        assert sorted(await slots_of(node, "flow")) == [10, 20, 30, 40, 50, 60]
        assert node.metrics()["slots_dropped_total"] == 0


async def test_what_is_due_while_the_store_fails_is_no_busy_loop(store: str | None) -> None:
    """W-5: tried again after a while, and made when the store is back."""
    flow = plain_flow(schedule=tm.Every("10s"))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        with breaking(store_of(node).runs, "apply", times=100) as tries:
            await node.advance("19s")
        assert 9 <= len(tries) <= 30
        await node.advance("2s")
        assert await slots_of(node, "flow") == [10, 20]


async def test_a_caller_that_stops_waiting_for_a_start_leaves_nothing_half_done(store: str | None) -> None:
    """I-11: this node must run the tasks claimed with the run, although its creator has stopped waiting."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(node.start("flow"), name="start")
            for _ in range(2):
                await asyncio.sleep(0)
            starting.cancel()
        await node.advance("1s")
        found = await node.runs("flow")
        assert len(found) == len(blocked.begun) <= 1
        blocked.go.set()
        await node.advance("1s")
        assert [(await run.state()).state for run in found] == [RunState.SUCCESS] * len(found)
        assert troubles(node) == {}


async def test_inputs_that_cannot_be_read_cost_nothing_but_time(store: str | None) -> None:
    """I-11: a claimed attempt whose inputs the store does not give is handed back, not left to its lease."""
    flow = tm.Workflow("flow")

    @flow.task
    async def big() -> bytes:
        return b"x" * 100_000  # more than is kept in mind

    @flow.task
    async def size(big: bytes) -> int:
        return len(big)

    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        with breaking(store_of(node).runs, "read_outputs", times=1):
            run = await node.start("flow")
            await node.advance("2s")
        result = await run.state()
        assert (result.state, result.outputs["size"]) == (RunState.SUCCESS, 100_000)
        assert troubles(node) == {}


async def test_a_report_is_written_however_long_the_store_is_away(store: str | None) -> None:
    """I-8: also if the leadership is lost meanwhile."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        with breaking(store_of(node).runs, "apply"):
            blocked.go.set()
            await node.advance("10s")
            node.probe.workflows.step_down()
            await node.advance("10s")
        await node.advance("5s")
        assert (await run.state()).tasks["work"].state is TaskState.SUCCESS
        assert (await run.state()).state is RunState.SUCCESS
        assert len(blocked.begun) == 1


async def test_the_office_that_is_lost_does_not_leave_a_handshake_hanging(store: str | None) -> None:
    """W-2: the start is recorded in the store if the coordinator is closed meanwhile."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("5s")
        run = await node.start("flow")
        with breaking(store_of(node).runs, "load"), breaking(store_of(node).runs, "apply"):
            await node.advance("6s")
            node.probe.workflows.step_down()
            await node.advance("1s")
        await node.advance("10s")
        assert blocked.begun == [f"{run.id}/work#1"]
        blocked.go.set()
        await node.advance("1s")
        assert (await run.state()).state is RunState.SUCCESS


async def test_a_first_pass_that_fails_is_made_up_for(sqlite: str) -> None:
    """W-4: a successor whose store hiccups at the start finds what there is to do at the next tick."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(sqlite, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        node = await node.crash()
        with breaking(store_of(node).runs, "list_active"):
            node.probe.workflows.step_down()
            await node.advance("5s")
        blocked.go.set()
        await node.advance("5s")
        assert (await node.run_handle(run.id).state()).state is RunState.SUCCESS


async def test_ticks_are_on_time_by_the_clock(store: str | None) -> None:
    """W-7: while something runs, one pass a second."""
    flow, _ = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        await node.start("flow")
        await node.advance("1s")
        before = node.metrics()["scheduler_ticks_total"]
        await node.advance(timedelta(seconds=60).total_seconds())
        assert node.metrics()["scheduler_ticks_total"] - before == pytest.approx(60, abs=1)
        assert node.metrics()["scheduler_tick_lag_seconds"] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_trigger_that_fails_is_reported_once_and_when_it_recovers(
    caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """docs, Workflows, Triggers: with the author's part of the traceback, and not every second."""
    asked: list[int] = []

    def answer() -> tm.Fire | None:
        asked.append(1)
        if len(asked) < 20:
            raise ConnectionError("refused")
        return None

    async def answer_later() -> tm.Fire | None:
        return answer()

    flow = tm.Workflow("asked", triggers=[tm.trigger(every="1s")(answer_later if is_async else answer)])

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(load=[flow]) as node:
        await node.advance("30s")
        assert node.metrics()["trigger_errors_total"] == 19
    told = [record for record in caplog.records if record.message.startswith("trigger.")]
    assert [record.message for record in told] == ["trigger.failed", "trigger.recovered"]
    assert (vars(told[0])["error"], vars(told[1])["failures"]) == ("ConnectionError: refused", 19)
    assert told[0].exc_text is not None
    assert "in answer" in told[0].exc_text
    assert "pollers.py" not in told[0].exc_text


async def test_nothing_keeps_what_belonged_to_a_term_that_is_over(store: str | None) -> None:
    """W-8: nothing references the scheduler of an ended term, and its cache is garbage."""
    async with tm.testing.node(store, load=[plain_flow()], settings=QUICK) as node:
        await (await node.start("flow")).wait(5)
        workflows = node.probe.workflows
        terms = weakref.ref(workflows.coordinator), weakref.ref(workflows.scheduler)
        workflows.step_down()
        async with asyncio.timeout(5):
            while any(one() is not None for one in terms):
                await asyncio.sleep(0.005)  # the tasks of the term are yet to end
                gc.collect()
        assert not workflows.is_leader


async def test_slots_that_a_limit_leaves_out_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The first screen of the demo warned of 315 slots that its schedule is declared to leave out."""
    flow = plain_flow(schedule=tm.Every("10s", start=START, catchup="all", limit=2))
    with caplog.at_level(logging.INFO):
        async with tm.testing.node(load=[flow], start=START + timedelta(minutes=5)) as node:
            await node.advance("1s")
            assert node.metrics()["slots_dropped_total"] > 0
    said = [one.levelname for one in caplog.records if one.msg == SCHEDULE_SLOTS_DROPPED]
    assert said == ["INFO"]
