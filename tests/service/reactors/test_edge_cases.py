"""Corner cases: unusual errors, shared accumulators, cancelled manual firings."""

import asyncio
from typing import Any

import pytest

import tidemill as tm


class MuteError(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def feed(name: str = "a") -> tm.Accumulator:
    """Return an accumulator that passes numbers on."""

    def accumulate(event: int) -> int:
        return event

    accumulate.__name__ = name
    return tm.passthrough(accumulate)


def sample(**options: Any) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor on one feed, and a graph without nodes yet."""
    reactor = tm.Reactor("r", [feed()], **options)
    return reactor, tm.Graph("g", reactor=reactor)


@pytest.mark.parametrize(
    "error", [MuteError(), GeneratorExit(), SystemExit(3), BaseExceptionGroup("g", [SystemExit()])]
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_whatever_a_node_raises_costs_one_firing(error: BaseException, is_async: bool) -> None:
    """G-15: the firing is logged and dead-lettered, and the reactor lives on."""
    reactor, graph = sample()

    def node(a: int) -> int:
        if a == 1:
            raise error
        return a

    async def later(a: int) -> int:
        return node(a)

    graph.node(later if is_async else node)
    async with asyncio.timeout(10), tm.testing.node(load=[reactor, graph]) as running:
        for event in (1, 2):
            await running.push("a", event)
            await running.settle()
        state = running.reactor("r").state()
        assert (state.health, state.fires, state.failures) == (tm.ReactorHealth.LIVE, 2, 1)
        assert len(await running.reactor("r").dead_letters()) == 1


async def test_a_thread_that_runs_out_of_something_fails_its_firing() -> None:
    """G-15: StopIteration, which no future carries, is an error like any other."""
    reactor, graph = sample()

    @graph.node(thread=True)
    def node(a: int) -> int:
        return next(iter(())) if a == 1 else a

    async with asyncio.timeout(10), tm.testing.node(load=[reactor, graph]) as running:
        for event in (1, 2):
            await running.push("a", event)
            await running.settle()
        firings = running.reactor("r").firings()
        assert [firing.ok for firing in firings] == [True, False]


async def test_reactors_that_share_an_accumulator_see_one_order() -> None:
    """G-1, G-11: what a firing pushes comes after what set it off, everywhere."""
    shared = feed()
    first, second = tm.Reactor("first", [shared]), tm.Reactor("second", [shared], strategy="sequential")
    graph = tm.Graph("g", reactor=first)

    @graph.node
    def push_on(a: int) -> int:
        if a < 3:
            push(a + 1)
        return a

    async with tm.testing.node(load=[first, graph, second]) as running:
        push = running.handle("a")
        push(0)
        seen = [firing.inputs["a"] for firing in reversed(running.reactor("second").firings())]
        assert seen == [0, 1, 2, 3]
        assert running.reactor("second").state().cache == {"a": 3}


async def test_fire_with_replaces_windows_too() -> None:
    """G-13: the whole cache, and the content from which the window continues."""
    window = tm.window("w", int, capacity=3)
    reactor = tm.Reactor("r", [feed(), window])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node(feeds=window)
    def keep(a: int) -> int:
        return a

    async with tm.testing.node(load=[reactor, graph]) as running:
        for event in range(5):
            await running.push("a", event)
        await running.reactor("r").fire_with({"a": 9})
        assert running.reactor("r").state().cache == {"a": 9, "w": [9]}
        await running.reactor("r").fire_with({"a": 7, "w": [1, 2, 3, 4, 5]})
        assert running.reactor("r").state().cache == {"a": 7, "w": [4, 5, 7]}


async def test_a_manual_firing_that_no_caller_waits_for_does_not_begin() -> None:
    """G-2, G-13: a call that timed out cannot replace newer values later."""
    reactor, graph = sample()
    gate = asyncio.Event()

    @graph.node
    async def node(a: int) -> int:
        await gate.wait()
        return a

    async with asyncio.timeout(10), tm.testing.node(load=[reactor, graph]) as running:
        await running.push("a", 1)
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running.reactor("r").fire_with({"a": 666}), 0.01)
        await running.push("a", 2)
        gate.set()
        await running.settle()
        assert [firing.inputs["a"] for firing in running.reactor("r").firings()] == [2, 1]


async def test_dead_letters_of_one_instant_come_newest_first() -> None:
    """G-7, G-15: events and firings in the order in which they died."""

    @tm.passthrough
    def a(event: int) -> int:
        if event < 0:
            raise ValueError("negative")
        return event

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def node(a: int) -> int:
        raise ValueError("never")

    async with tm.testing.node(load=[reactor, graph]) as running:
        for event in (-1, 1, -2, 2):
            await running.push("a", event)
        letters = await running.reactor("r").dead_letters()
        assert [letter.event or letter.inputs for letter in letters] == [{"a": 2}, -2, {"a": 1}, -1]


async def test_a_single_definition_may_be_loaded_and_pushed_to_by_itself() -> None:
    """What people write first works: `load=reactor`, `push(accumulator, ...)`."""
    accumulator = feed()
    async with tm.testing.node(load=tm.Reactor("r", [accumulator])) as running:
        assert (await running.push(accumulator, 1)).accepted
        assert running.handle(accumulator)(2) == 2


@pytest.mark.parametrize("tenant", ["", "a/b", 3])
async def test_a_tenant_needs_a_name_without_a_slash(tenant: Any) -> None:
    """G-30: `tenant/name` must be readable."""
    async with tm.testing.node() as running:
        with pytest.raises(tm.RequestError, match="without '/'"):
            await running.load(tm.Reactor("r", [feed()]), tenant=tenant)
    with pytest.raises(tm.RequestError, match="without '/'"):
        tm.Node(tenant=tenant)


async def test_a_month_of_idleness_passes_at_once() -> None:
    """An idle node sets no timers; time cannot move without end, though."""
    reactor, _ = sample()
    async with asyncio.timeout(2), tm.testing.node(load=[reactor]) as running:
        await running.advance("365d")
        with pytest.raises(ValueError, match="finite"):
            await running.advance(float("inf"))


async def test_an_accumulator_that_pushes_to_itself_takes_one_event_at_a_time() -> None:
    """Accumulators: one event at a time, in order; no state is lost."""

    class Total(tm.Boundary):
        number: int = 0

    @tm.passthrough(state=Total)
    def a(event: int, state: Total) -> Total:
        if event == 1:
            push(10)
        return Total(state.number + event)

    async with tm.testing.node(load=tm.Reactor("r", [a], strategy="sequential")) as running:
        push = running.handle("a")
        push(1)
        firings = running.reactor("r").firings()
        assert [firing.inputs["a"].number for firing in reversed(firings)] == [1, 11]


async def test_pending_tries_are_bounded() -> None:
    """G-15: failures that come faster than their retries end as dead letters, not as ever more tasks."""
    retry = tm.Retry(1, delay="1h")
    reactor, graph = sample(on_error=retry)

    @graph.node
    def node(a: int) -> int:
        raise ConnectionError

    async with tm.testing.node(load=[reactor, graph], settings={"dead_letter_limit": 5}) as running:
        push = running.handle("a")
        for event in range(8):
            push(event)
        assert len(await running.reactor("r").dead_letters()) == 3


async def test_a_node_that_fires_its_own_reactor_must_not_wait_for_itself() -> None:
    """G-13: an error instead of a deadlock, and the node's own failure like any other."""
    reactor, graph = sample()

    @graph.node
    async def first(a: int) -> int:
        await running.reactor("r").force_fire()
        return a

    @graph.node
    async def beside(a: int) -> int:
        return a

    async with asyncio.timeout(5), tm.testing.node(load=[reactor, graph]) as running:
        await running.push("a", 1)
        await running.settle()
        (firing,) = running.reactor("r").firings()
        error = firing.results["g"].error
        assert error is not None
        assert (error.node, getattr(error.cause, "code", None)) == ("first", "inside_firing")
        again = await running.reactor("r").replay((await running.reactor("r").dead_letters())[0].id)
        assert isinstance(again, tm.Firing)
        assert not again.ok
