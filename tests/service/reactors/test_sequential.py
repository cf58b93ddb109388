"""The sequential strategy: every boundary, in arrival order."""

import asyncio
from typing import Any

import tidemill as tm
from tests.service.samples import pair, slow


def consuming(**options: Any) -> tuple[list[Any], tm.Reactor, list[list[tuple[str, int]]]]:
    """Return what to load, the reactor, and the list of what each firing consumed."""
    sample = pair(**options)
    graph = tm.Graph("reader", reactor=sample.reactor)
    consumed: list[list[tuple[str, int]]] = []

    @graph.node
    def read(a: int | None, ctx: tm.Context) -> None:
        consumed.append(ctx.consumed)

    return [sample.reactor, graph], sample.reactor, consumed


async def test_every_boundary_fires_once_in_arrival_order() -> None:
    """G-11, behaviour 37: each firing sees exactly one more boundary."""
    sample = pair(strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        for name, value in [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]:
            await node.push(name, value)
        assert node.reactor("r").state().queued == 5
        await node.reactor("r").resume()
        assert node.reactor("r").state().queued == 0
    assert sample.seen == [(1, None), (1, 1), (2, 1), (3, 1), (3, 2)]


async def test_boundaries_during_an_async_firing_are_all_fired() -> None:
    """G-11: no skipping."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait(), strategy="sequential")
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        for value in range(10):
            await node.push("a", value)
        gate.set()
        await node.settle()
        shown = [firing.inputs["a"] for firing in reversed(node.reactor("r").firings())]
    assert sample.seen == shown == list(range(10))


async def test_all_consumes_up_to_the_boundary_that_completes_it() -> None:
    """G-11, behaviour 38: one firing, with everything consumed since the last."""
    load, _, consumed = consuming(when="all", strategy="sequential")
    async with tm.testing.node(load=load) as node:
        await node.reactor("r").pause()
        for name, value in [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4)]:
            await node.push(name, value)
        await node.reactor("r").resume()
        state = node.reactor("r").state()
    assert consumed == [[("a", 1), ("a", 2), ("b", 1)], [("b", 2), ("a", 3)]]
    assert (state.queued, state.dirty) == (0, {"a": True, "b": False})


async def test_latest_tells_what_was_news() -> None:
    """API: `ctx.consumed` is a list of (source, boundary)."""
    load, _, consumed = consuming()
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        await node.reactor("r").pause()
        await node.push("b", 1)
        await node.push("a", 2)
        await node.reactor("r").resume()
    assert consumed == [[("a", 1)], [("a", 2), ("b", 1)]]


async def test_a_missing_required_input_does_not_stop_the_queue() -> None:
    """G-8: the boundary enters the cache, counts `incomplete`, and the queue continues."""
    sample = pair(strategy="sequential")
    needy = tm.Graph("needy", reactor=sample.reactor)
    seen = []

    @needy.node
    def out(a: int, b: int) -> None:
        seen.append((a, b))

    async with tm.testing.node(load=[sample.reactor, needy]) as node:
        for name, value in [("a", 1), ("a", 2), ("b", 1), ("a", 3)]:
            await node.push(name, value)
        state = node.reactor("r").state()
    assert seen == [(2, 1), (3, 1)]
    assert (state.incomplete, state.queued, state.fires) == (2, 0, 2)


async def test_a_long_queue_leaves_the_loop_its_turns() -> None:
    """G-21: commands are answered while a long queue is worked off."""
    sample = pair(strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        for value in range(1000):
            await node.push("a", value)
        await node.reactor("r").resume()
        in_between = node.reactor("r").state().queued
        await node.settle()
        assert 0 < in_between < 1000
        assert node.reactor("r").state().fires == 1000
    assert [a for a, _ in sample.seen] == list(range(1000))


async def test_events_between_the_turns_of_a_long_queue_keep_their_place() -> None:
    """G-11: arrival order, also for what comes while the queue is worked off."""
    sample = pair(strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        await node.reactor("r").pause()
        for value in range(600):
            push(value)
        await node.reactor("r").resume()
        for value in range(600, 700):
            push(value)
        await node.settle()
    assert [a for a, _ in sample.seen] == list(range(700))
