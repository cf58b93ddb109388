"""`node.pause(workflow)`, and notes on runs and tasks."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, see_through, states


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
