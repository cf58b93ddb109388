"""The order in which queued runs begin: first come, first served."""

import asyncio
from datetime import timedelta

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate
from tests.service.workflows.pairs import Pair, until


def numbered(begun: list[int], limit: int) -> tm.Workflow:
    """Return a workflow whose runs record their number when they begin."""
    flow = tm.Workflow("numbered", max_active_runs=limit)

    @flow.task
    async def work(ctx: tm.Context) -> None:
        begun.append(ctx["number"])

    return flow


@pytest.mark.parametrize("limit", [1, 3])
async def test_runs_begin_in_the_order_of_their_starts(store: str | None, limit: int) -> None:
    """api.md, max_active_runs: queued runs begin first come, first served, however many starts are in flight."""
    begun: list[int] = []
    async with tm.testing.node(store, load=[numbered(begun, limit)]) as node:
        for wave in range(10):  # starts arrive while the ends of earlier runs are being committed
            await asyncio.gather(*(node.start("numbered", number=30 * wave + one) for one in range(30)))
        await node.settle()
    assert begun == list(range(300))


async def test_a_begin_that_cannot_be_written_keeps_its_turn(store: str | None) -> None:
    """The same while the store fails: what was taken back is next again, not last."""
    gate, begun = Gate(), list[int]()
    flow = tm.Workflow("numbered", max_active_runs=2)

    @flow.task
    async def work(ctx: tm.Context) -> None:
        begun.append(ctx["number"])
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        runs = [await node.start("numbered", number=number) for number in range(20)]
        gate.is_open.set()
        for _ in range(20):
            node.fail_store(2)
            await node.advance("3s")
        assert all([(await run.state()).ok for run in runs])
    assert begun == list(range(20))


async def test_catching_up_keeps_the_order_of_slots(sqlite: str) -> None:
    """W-13, catchup="all": missed slots oldest first, also while earlier ones end and new ones fall due."""
    begun: list[str] = []

    def every_second() -> tm.Workflow:
        flow = tm.Workflow("ticks", schedule=tm.Every("1s", catchup="all", limit=50), max_active_runs=1)

        @flow.task
        async def work(ctx: tm.Context) -> None:
            begun.append(str(ctx.slot))

        return flow

    async with tm.testing.node(sqlite, load=[every_second()], start=START) as node:
        await node.advance("2s")
    async with tm.testing.node(sqlite, load=[every_second()], start=START + timedelta(seconds=40)) as node:
        await node.advance("5s")
    assert len(begun) >= 44
    assert begun == sorted(begun)


async def test_a_broken_run_does_not_hold_up_those_behind_it(store: str | None) -> None:
    """W-5: first come, first served among the runs that can begin."""
    gate, begun = Gate(), list[int]()
    flow = tm.Workflow("numbered", max_active_runs=1)

    @flow.task
    async def work(ctx: tm.Context) -> None:
        begun.append(ctx["number"])
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        runs = [await node.start("numbered", number=number) for number in range(3)]
        node.break_run(runs[1].id)
        gate.is_open.set()
        await node.advance("3s")
        assert (await runs[2].state()).ok
    assert begun == [0, 2]


async def test_runs_that_several_nodes_start_begin_in_one_order(make_pair: object) -> None:
    """The store numbers them: the leader passes over none that a follower has started before."""
    begun: list[int] = []
    pair: Pair = await make_pair(numbered(begun, 1))  # type: ignore[operator]
    for number in range(60):
        await pair[number % 2].start("numbered", number=number)

    async def are_all_done() -> bool:
        return len(begun) == 60

    await until(are_all_done)
    assert begun == list(range(60))
