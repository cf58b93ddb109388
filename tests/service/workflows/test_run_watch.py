"""Looking on while a run goes."""

import asyncio

import tidemill as tm
from tests.service.workflows.acting import Gate
from tidemill.workflows.states import RunState


async def test_a_watch_tells_everything_once_and_ends_with_the_run() -> None:
    """Every record of a log and every event comes once, those of a task in order, the last ones too."""
    flow, may_go = tm.Workflow("flow"), asyncio.Event()

    @flow.task
    async def first(ctx: tm.Context) -> list[int]:
        ctx.log.info("begins")
        await may_go.wait()
        ctx.log.info("ends")
        return [0, 1, 2]

    @flow.task(each="first")
    def second(first: int, ctx: tm.Context) -> None:
        ctx.log.info("element %d", first)

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        said: list[tuple[str, int | None, str]] = []
        moves: list[tuple[str | None, str]] = []
        async for glance in run.watch(events=True, every=0):
            said += [(one.task, one.index, one.message) for one in glance.lines]
            moves += [(event.task, event.after) for event in glance.events]
            if ("first", None, "begins") in said:
                may_go.set()
        result = await run.wait(5)
    assert result.ok
    assert [one for one in said if one[0] == "first"] == [("first", None, "begins"), ("first", None, "ends")]
    elements = sorted((one for one in said if one[0] == "second"), key=str)
    assert elements == [("second", number, f"element {number}") for number in range(3)]
    assert moves[0] == (None, "running")
    assert moves[-1] == (None, "success")
    assert moves.count(("second", "success")) == 3


async def test_tasks_come_in_the_order_in_which_they_run() -> None:
    """Independent of their names: for readers of a result."""
    flow = tm.Workflow("flow")

    @flow.task
    def zebra() -> int:
        return 1

    @flow.task
    def monkey(zebra: int) -> int:
        return zebra

    @flow.task
    def ant(monkey: int) -> int:
        return monkey

    async with tm.testing.node(load=[flow]) as node:
        run = await node.start("flow")
        assert list((await run.wait(5)).tasks) == ["zebra", "monkey", "ant"]


async def test_a_watch_pauses_by_the_clock_of_its_node() -> None:
    """`every` is the node's time: on a virtual clock nothing is read before that moves."""
    flow, gate = tm.Workflow("flow"), Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(load=[flow]) as node, asyncio.TaskGroup() as tasks:
        run = await node.start("flow")
        glances = run.watch(every=3600)
        await anext(glances)
        again = tasks.create_task(anext(glances), name="the next glance")
        gate.is_open.set()
        await node.advance("59m")
        assert not again.done()
        await node.advance("1m")
        assert (await again).run.state is RunState.SUCCESS
