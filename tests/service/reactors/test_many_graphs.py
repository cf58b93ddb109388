"""Several graphs on one reactor."""

import asyncio

import tidemill as tm
from tests.service.samples import observer, raising, single, slow


async def test_all_graphs_run_on_each_firing() -> None:
    """G-14, behaviour 78."""
    sample = single()
    double = tm.Graph("double", reactor="r")

    @double.node
    def twice(a: int) -> int:
        return a * 2

    async with tm.testing.node(load=[*sample.load, double]) as node:
        await node.push("a", 3)
        (firing,) = node.reactor("r").firings()
    assert {name: result.outputs for name, result in firing.results.items()} == {
        "g": {"out": 30},
        "double": {"twice": 6},
    }


async def test_one_failing_does_not_stop_the_other() -> None:
    """G-14, behaviour 78: both outcomes are visible."""
    sample = single(raising(when=lambda value: True))
    async with tm.testing.node(load=[*sample.load, observer(sample.reactor)]) as node:
        await node.push("a", 3)
        (firing,) = node.reactor("r").firings()
        state = node.reactor("r").state()
    assert {name: result.ok for name, result in firing.results.items()} == {"g": False, "observer": True}
    assert not firing.ok
    assert (state.fires, state.failures) == (1, 1)


async def test_async_and_sync_graphs_share_a_firing() -> None:
    """G-14: awaited graphs run at the same time."""
    together = asyncio.Barrier(2)
    first = slow(lambda value: together.wait())
    second = tm.Graph("second", reactor=first.reactor)

    @second.node
    async def meet(a: int) -> int:
        await together.wait()
        return a

    load = [*first.load, second, observer(first.reactor)]
    async with tm.testing.node(load=load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        firing = await node.reactor("r").next_firing()
    assert set(firing.results) == {"g", "second", "observer"}
    assert firing.ok


async def test_one_failing_async_graph_does_not_stop_another() -> None:
    """G-14."""
    finished = asyncio.Event()

    async def fail(value: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(value)

    first = slow(fail)
    second = tm.Graph("second", reactor=first.reactor)

    @second.node
    async def later(a: int) -> int:
        await asyncio.sleep(0)
        finished.set()
        return a

    async with tm.testing.node(load=[*first.load, second]) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        (firing,) = node.reactor("r").firings()
    assert finished.is_set()
    assert {name: result.ok for name, result in firing.results.items()} == {"g": False, "second": True}


async def test_a_graph_bound_later_runs_from_the_next_firing_on() -> None:
    """G-27: bind and unbind while running."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        push(1)
        await node.load(observer(sample.reactor))
        push(2)
        await node.unload("graph:observer")
        push(3)
        names = [set(firing.results) for firing in reversed(node.reactor("r").firings())]
        assert node.reactor("r").state().subscribers == ["g"]
    assert names == [{"g"}, {"g", "observer"}, {"g"}]
    assert sample.seen == [1, 2, 3]


async def test_an_async_graph_bound_later_is_awaited() -> None:
    """G-14, G-27: a reactor turns from direct calls to awaiting and back."""
    sample = single()
    late = tm.Graph("late", reactor=sample.reactor)

    @late.node
    async def out(a: int) -> int:
        await asyncio.sleep(0)
        return -a

    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.load(late)
        await node.push("a", 2)
        await node.settle()
        await node.unload("graph:late")
        await node.push("a", 3)
        names = [set(firing.results) for firing in reversed(node.reactor("r").firings())]
    assert names == [{"g"}, {"g", "late"}, {"g"}]
    assert sample.seen == [1, 2, 3]
