"""`node.pause(workflow)`, and notes on runs and tasks."""

from datetime import timedelta
from typing import Literal

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate, see_through, start_and_pause, states


async def test_nothing_begins_and_what_runs_goes_on(store: str | None) -> None:
    """leoflow.md 19: no launches; running tasks finish; resuming resumes, also what had been made before."""
    flow = tm.Workflow("paused")
    gate = Gate()

    @flow.task
    async def first() -> int:
        await gate.pass_through()
        return 1

    @flow.task
    async def second(first: int) -> int:
        return first + 1

    async with tm.testing.node(store, load=[flow]) as node:
        going = await node.start("paused")
        await node.advance("1s")
        (waiting,) = await start_and_pause(node, "paused")
        gate.is_open.set()
        await node.settle()
        await node.advance("5s")
        now = states(await going.state())
        assert (now["first"], now["second"] in ("none", "scheduled")) == ("success", True)
        assert (await waiting.state()).state is tm.RunState.QUEUED
        assert len(gate.entered) == 1
        await node.resume("paused")
        await node.settle()
        assert [(await run.state()).outputs for run in (going, waiting)] == [{"first": 1, "second": 2}] * 2


async def test_a_pause_outlives_a_crash_and_is_of_one_workflow(store: str | None) -> None:
    """leoflow.md 19: it is stored."""
    flows = [tm.Workflow("paused"), tm.Workflow("other")]
    for flow in flows:

        @flow.task
        async def work() -> int:
            return 1

    async with tm.testing.node(store, load=flows) as node:
        (run,) = await start_and_pause(node, "paused")
        node = await node.crash()
        assert (await see_through(node, "other")).ok
        await node.advance("5s")
        assert (await node.run_handle(run.id).state()).state is tm.RunState.QUEUED
        with pytest.raises(tm.RequestError):
            await node.start("paused")
        await node.resume("paused")
        await node.settle()
        assert (await node.run_handle(run.id).state()).ok


async def test_a_retry_waits_while_it_is_paused(store: str | None) -> None:
    """leoflow.md 19: no new launches, also of what was put off."""
    flow = tm.Workflow("paused")
    tries: list[int] = []

    @flow.task(retry=tm.Retry(1, delay="10s"))
    async def work() -> None:
        tries.append(1)
        raise ValueError("no")

    async with tm.testing.node(store, load=[flow]) as node:
        await node.start("paused")
        await node.advance("1s")
        await node.pause("paused")
        await node.advance("1m")
        assert len(tries) == 1
        await node.resume("paused")
        await node.settle()
        assert len(tries) == 2


def minutely(catchup: Literal["none", "latest", "all"]) -> tm.Workflow:
    """Return a workflow with a slot every minute."""
    flow = tm.Workflow("minutely", schedule=tm.Cron("* * * * *", catchup=catchup, limit=7), max_active_runs=50)

    @flow.task
    def slot(ctx: tm.Context) -> str:
        return f"{ctx.slot:%H:%M}"

    return flow


async def slots(node: tm.testing.node) -> list[str]:
    """Return the slots that have had a run."""
    return [(await run.state()).outputs["slot"] for run in reversed(await node.runs("minutely"))]


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
async def test_what_fell_due_in_a_pause_gets_no_run(
    catchup: Literal["none", "latest", "all"], store: str | None
) -> None:
    """cloacina.md 131: resume does not catch up; `catchup` only applies to a time without any node."""
    async with tm.testing.node(store, load=[minutely(catchup)], start=START) as node:
        await node.advance("61s")
        await node.pause("minutely")
        await node.advance("2h")
        assert await slots(node) == ["00:01"]
        await node.resume("minutely")
        await node.settle()
        assert await slots(node) == ["00:01"]
        assert node.metrics()["slots_dropped_total"] == 120
        await node.advance("2m")
        assert await slots(node) == ["00:01", "02:02", "02:03"]
        plan = await node.backfill("minutely", START + timedelta(minutes=5), START + timedelta(minutes=6))
        await node.settle()
        assert len(plan.runs) == 2  # which is the way to have them


@pytest.mark.parametrize("pauses", [True, False])
async def test_resumed_while_no_node_was_there(pauses: bool, sqlite: str) -> None:
    """131: what fell due in the pause gets no run either; a resume of what was not paused changes nothing."""
    async with tm.testing.node(sqlite, load=[minutely("all")], start=START) as node:
        await node.advance("61s")
        schedules = node.probe.workflows.store.schedules
        if pauses:
            await node.pause("minutely")
        await schedules.resume("public", "minutely", START + timedelta(minutes=5))  # from the shell, say
    async with tm.testing.node(sqlite, load=[minutely("all")], start=START + timedelta(minutes=7)) as node:
        await node.settle()
        later = ["00:06", "00:07"]
        assert await slots(node) == ["00:01", *([] if pauses else ["00:02", "00:03", "00:04", "00:05"]), *later]


async def test_no_run_is_made_while_it_is_paused(store: str | None) -> None:
    """131: starting it is refused, and it is said what to do; so is a backfill, and a retry waits."""
    async with tm.testing.node(store, load=[minutely("none")], start=START) as node:
        await node.pause("minutely")
        for act in (node.start("minutely"), node.backfill("minutely", START - timedelta(minutes=2), START)):
            with pytest.raises(tm.RequestError, match="`tidemill workflow resume minutely`") as caught:
                await act
            assert (caught.value.code, caught.value.status) == ("workflow_paused", 409)
            assert caught.value.facts["workflow"] == "minutely"
        plan = await node.backfill("minutely", START - timedelta(minutes=2), START, preview=True)
        assert len(plan.slots) == 3
        assert await node.runs("minutely") == []
        assert not node.probe.workflows.coordinator.active_runs
        await node.resume("minutely")
        assert await node.start("minutely")


async def test_a_pause_holds_before_the_leader_knows_of_it(store: str | None) -> None:
    """131: the store refuses, on any node and for any origin of the run."""
    asked: list[int] = []

    @tm.trigger(every="10s")
    async def there() -> tm.Fire:
        asked.append(1)
        return tm.Fire()

    flow = tm.Workflow("minutely", schedule=tm.Cron("* * * * *", catchup="all"), triggers=[there])

    @flow.task
    def slot(ctx: tm.Context) -> str:
        return str(ctx.slot)

    async with tm.testing.node(store, load=[flow], start=START, settings={"tick_interval": "10m"}) as node:
        await node.settle()
        before = len(await node.runs("minutely"))
        await node.probe.workflows.store.schedules.pause("public", "minutely")  # by another node
        with pytest.raises(tm.RequestError) as caught:
            await node.start("minutely")
        assert caught.value.code == "workflow_paused"
        polls = len(asked)
        await node.advance("130s")
        assert len(asked) > polls  # the leader has not heard of it
        assert len(await node.runs("minutely")) == before
        assert node.metrics()["slots_dropped_total"] == 2
        assert node.metrics()["schedule_errors_total"] == node.metrics()["trigger_errors_total"] == 0


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_pause_in_which_the_node_crashed_or_loaded_anew_is_one(reloads: bool, store: str | None) -> None:
    """api.md, `catchup`: with "none" none of its slots gets a run, whichever node led at its end."""
    async with tm.testing.node(store, load=[minutely("none")], start=START) as node:
        await node.pause("minutely")
        await node.advance("10m")
        if reloads:
            await node.load(minutely("none"))
        else:
            node = await node.crash()
        await node.advance("10m")
        await node.resume("minutely")
        await node.advance("61s")
        assert await slots(node) == ["00:21"]


async def test_a_pause_by_others_is_one(store: str | None) -> None:
    """api.md, `catchup`: "none", paused and resumed in the store, where the leader hears of it."""
    async with tm.testing.node(store, load=[minutely("none")], start=START) as node:
        schedules = node.probe.workflows.store.schedules
        await schedules.pause("public", "minutely")
        node.probe.workflows.scheduler.on_remote_change()
        await node.advance("10m")
        await schedules.resume("public", "minutely", node.clock.now())
        node.probe.workflows.scheduler.on_remote_change()
        await node.advance("61s")
        assert await slots(node) == ["00:11"]
        assert node.metrics()["slots_dropped_total"] == 10


async def test_a_pause_that_ends_in_the_middle_of_a_pass(store: str | None) -> None:
    """api.md, `catchup`: "none", and the pass that is under way has looked at pauses before."""
    async with tm.testing.node(store, load=[minutely("none")], start=START) as node:
        await node.pause("minutely")
        await node.advance("10m")
        node.probe.workflows.coordinator.apply_pauses(set())
        await node.probe.workflows.scheduler.run_due()
        assert await slots(node) == []
        await node.load(minutely("none"))  # before the next pass
        await node.settle()
        assert await slots(node) == []


async def test_unknown_workflows_are_not_paused() -> None:
    """api.md, errors."""
    async with tm.testing.node() as node:
        for act in (node.pause("absent"), node.resume("absent")):
            with pytest.raises(tm.RequestError) as caught:
                await act
            assert (caught.value.code, caught.value.status) == ("workflow_not_found", 404)


async def test_notes(store: str | None) -> None:
    """workflows.md, "Tasks": run and task notes; they outlive a crash, and an empty one is none."""
    flow = tm.Workflow("noted")

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("noted")
        await node.settle()
        assert await run.notes() == {}
        await run.note("looked at it")
        await run.note("slow today", task="work")
        await run.note("looked at it twice")
        with pytest.raises(tm.RequestError) as caught:
            await run.note("x", task="absent")
        assert caught.value.code == "task_not_found"
        run = (await node.crash()).run_handle(run.id)
        assert await run.notes() == {None: "looked at it twice", "work": "slow today"}
        await run.note("")
        assert await run.notes() == {"work": "slow today"}
