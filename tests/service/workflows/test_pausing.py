"""`node.pause(workflow)`, and notes on runs and tasks."""

from typing import Literal

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate, see_through, states


async def test_nothing_begins_and_what_runs_goes_on(store: str | None) -> None:
    """leoflow.md 19: no launches; running tasks finish; resuming resumes."""
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
        await node.pause("paused")
        waiting = await node.start("paused")
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
        await node.pause("paused")
        run = await node.start("paused")
        node = await node.crash()
        assert (await see_through(node, "other")).ok
        await node.advance("5s")
        assert (await node.run_handle(run.id).state()).state is tm.RunState.QUEUED
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
    return [(await run.state()).outputs["slot"] for run in await node.runs("minutely")]


CAUGHT_UP = {
    "none": [],
    "latest": ["02:01"],
    "all": ["01:55", "01:56", "01:57", "01:58", "01:59", "02:00", "02:01"],
}


@pytest.mark.parametrize("catchup", ["none", "latest", "all"])
async def test_catchup_decides_about_slots_that_a_pause_made_miss(
    catchup: Literal["none", "latest", "all"], store: str | None
) -> None:
    """api.md, `catchup`: what a pause made miss was missed, as if no node had been there."""
    async with tm.testing.node(store, load=[minutely(catchup)], start=START) as node:
        await node.advance("61s")
        await node.pause("minutely")
        await node.advance("2h")
        assert await slots(node) == ["00:01"]
        await node.resume("minutely")
        await node.settle()
        assert await slots(node) == ["00:01", *CAUGHT_UP[catchup]]
        await node.advance("2m")
        assert await slots(node) == ["00:01", *CAUGHT_UP[catchup], "02:02", "02:03"]


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_pause_in_which_the_node_crashed_or_loaded_anew_is_one(reloads: bool, store: str | None) -> None:
    """api.md, `catchup`: with "none" nothing of it gets a run, whoever watched at its end."""
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
        for is_paused, wait in [(True, "10m"), (False, "61s")]:
            await node._run_store.schedules.pause("public", "minutely", paused=is_paused)
            node._workflows.scheduler.hear()
            await node.advance(wait)
        assert await slots(node) == ["00:11"]
        assert node.metrics()["slots_dropped_total"] == 10


async def test_a_pause_that_ends_in_the_middle_of_a_pass(store: str | None) -> None:
    """api.md, `catchup`: "none", and the pass that is under way has looked at pauses before."""
    async with tm.testing.node(store, load=[minutely("none")], start=START) as node:
        await node.pause("minutely")
        await node.advance("10m")
        node._workflows.desk.allotment.heed_pauses(set())
        await node._workflows.scheduler._schedules.fire_due()
        assert await slots(node) == []
        await node.load(minutely("none"))  # before the next pass
        await node.settle()
        assert await slots(node) == []


async def test_unknown_workflows_are_not_paused() -> None:
    """api.md, errors."""
    async with tm.testing.node() as node:
        for act in (node.pause("nobody"), node.resume("nobody")):
            with pytest.raises(tm.RequestError) as caught:
                await act
            assert (caught.value.code, caught.value.status) == ("unknown_workflow", 404)


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
            await run.note("x", task="nobody")
        assert caught.value.code == "unknown_task"
        run = (await node.crash()).run_handle(run.id)
        assert await run.notes() == {None: "looked at it twice", "work": "slow today"}
        await run.note("")
        assert await run.notes() == {"work": "slow today"}
