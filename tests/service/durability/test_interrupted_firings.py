"""Firings that a crash cuts off come again whole: the same number, the same snapshot, the same graphs."""

import asyncio

import tidemill as tm
from tests.service.samples import single, slow


class Hang:
    """An action that hangs at chosen calls, counted from 1, and raises at others."""

    def __init__(self, *calls: int, failing: tuple[int, ...] = ()) -> None:
        self.calls = calls
        self.failing = failing
        self.count = 0

    async def __call__(self, value: object = None) -> None:
        self.count += 1
        if self.count in self.calls:
            await asyncio.Event().wait()
        if self.count in self.failing:
            raise ConnectionError(value)


async def test_a_sequential_firing_of_several_boundaries_comes_again_as_one() -> None:
    """G-11, G-19, G-24: not as one firing per boundary."""
    hang = Hang(1)
    seen = []

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def b(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, b], strategy="sequential")
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    async def out(a: int, b: int, ctx: tm.Context) -> None:
        seen.append((ctx.firing_id, ctx.consumed))
        await hang()

    async with tm.testing.node(load=[reactor, graph]) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.push("b", 1)
        await node.advance(0)
        await node.push("a", 2)
        await node.break_reactor("r")
        await node.advance("1s")
        await node.settle()
        state = node.reactor("r").state()
    assert [consumed for _, consumed in seen] == [[("a", 1), ("b", 1)], [("a", 1), ("b", 1)], [("a", 2)]]
    assert seen[0][0] == seen[1][0]
    assert (state.fires, state.queued) == (2, 0)


async def test_latest_fires_what_was_cut_off_and_then_what_came_since() -> None:
    """G-2, G-24: under the same id, and the newest value is seen."""
    sample = slow(Hang(1))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance(0)
        await node.push("a", 2)
        await node.break_reactor("r")
        await node.advance("1s")
        await node.settle()
        second, first = node.reactor("r").firings()
    assert sample.seen == [1, 1, 2]
    assert (first.id[-2:], second.id[-2:]) == ("-1", "-2")


async def test_a_try_that_a_crash_cut_off_comes_again_as_that_try() -> None:
    """G-15, G-19: the same id and attempt, and only the graphs that had failed."""
    sample = slow(Hang(2, failing=(1,)), strategy="sequential", on_error=tm.Retry(3, delay="1s"))
    good = tm.Graph("good", reactor=sample.reactor)
    calls = []

    @good.node
    async def count(a: int) -> None:
        calls.append(a)

    async with tm.testing.node(load=[*sample.load, good]) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance("1s")
        await node.break_reactor("r")
        await node.advance("1s")
        await node.settle()
        second, first = node.reactor("r").firings()
    assert (sample.seen, calls) == ([1, 1, 1], [1])
    assert (first.id, first.attempt, second.attempt, set(second.results)) == (second.id, 1, 2, {"g"})


async def test_no_try_comes_while_the_reactor_is_down() -> None:
    """G-8, G-19: no firing before Live."""
    fail = [True]

    def act(value: int) -> None:
        if fail.pop():
            raise ConnectionError(value)

    fail = [False, True]
    sample = single(act, on_error=tm.Retry(3, delay="1s"))
    async with tm.testing.node(load=sample.load, settings={"backoff_base": "10s"}) as node:
        await node.push("a", 1)
        await node.break_reactor("r")
        await node.advance("9s")
        down = list(sample.seen)
        await node.advance("1s")
        assert node.reactor("r").firings()[0].attempt == 2
    assert (down, sample.seen) == ([1], [1, 1])


async def test_graphs_that_may_not_be_tried_again_do_not_keep_others_from_it() -> None:
    """G-14, G-15: the policy decides for each graph that failed."""
    calls = []

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a], on_error=tm.Retry(2, delay="1s", backoff=1.0, on=(ConnectionError,)))
    flaky, broken = tm.Graph("flaky", reactor=reactor), tm.Graph("broken", reactor=reactor)

    @flaky.node
    def reach(a: int) -> None:
        calls.append("flaky")
        raise ConnectionError

    @broken.node
    def divide(a: int) -> None:
        calls.append("broken")
        raise ZeroDivisionError

    async with tm.testing.node(load=[reactor, flaky, broken]) as node:
        await node.push("a", 1)
        (at_once,) = await node.reactor("r").dead_letters()
        await node.advance("10s")
        letters = (await node.reactor("r").dead_letters())[::-1]
    assert calls == ["flaky", "broken", "flaky", "flaky"]
    assert "ZeroDivisionError" in at_once.error
    assert [letter.attempts for letter in letters] == [1, 3]


async def test_a_driver_that_swallows_its_cancellation_fires_no_more() -> None:
    """G-19: a crashed reactor gets fresh internals, and one firing at a time."""
    gate = asyncio.Event()
    running = [0, 0]

    async def act(value: int) -> None:
        running[0] += 1
        running[1] = max(running)
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        running[0] -= 1

    sample = slow(act, strategy="sequential")
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.push("a", 2)
        await node.advance(0)
        await node.break_reactor("r")
        await node.advance("1s")
        gate.set()
        await node.settle()
    assert (sample.seen, running) == ([1, 2], [0, 1])
