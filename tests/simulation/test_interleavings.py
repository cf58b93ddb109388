"""Any interleaving of pushes, pauses, failures, crashes and restarts: nothing is lost, nothing is out of order.

Hypothesis writes the story, a test node on a virtual clock plays it, and what the graph saw is compared with what was
accepted. A story is a list of steps; at its end everything is repaired, resumed and settled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm

SOURCES = ("alpha", "beta", "gamma")


class Value(tm.Boundary):
    """A numbered value; `poison` makes the graph raise."""

    number: int
    poison: bool = False


class World:
    """A reactor with three feeds, a graph that remembers what it saw, and what was accepted."""

    def __init__(self, *, strategy: str, is_async: bool, second: bool) -> None:
        self.accepted: list[tuple[str, Value]] = []
        self.seen: list[tuple[dict[str, Value | None], list[tuple[str, Value]]]] = []
        self.number = 0
        accumulators = [tm.passthrough(_named(name)) for name in SOURCES]
        self.reactor = tm.Reactor("world", accumulators, strategy=strategy, overflow="reject", capacity=1_000)
        self.load: list[Any] = [self.reactor, self._graph("witness", is_async=is_async)]
        if second:
            self.load.append(self._bystander())

    def _graph(self, name: str, *, is_async: bool) -> tm.Graph:
        graph = tm.Graph(name, reactor="world")

        def note(alpha: Value | None, beta: Value | None, gamma: Value | None, ctx: tm.Context) -> int:
            inputs = {"alpha": alpha, "beta": beta, "gamma": gamma}
            self.seen.append((inputs, ctx.consumed))
            if any(value is not None and value.poison for _, value in ctx.consumed):
                raise ValueError("poison")
            return len(self.seen)

        async def note_later(alpha: Value | None, beta: Value | None, gamma: Value | None, ctx: tm.Context) -> int:
            await asyncio.sleep(0)
            result = note(alpha, beta, gamma, ctx)
            await asyncio.sleep(0)
            return result

        graph.node(note_later if is_async else note)
        return graph

    def _bystander(self) -> tm.Graph:
        graph = tm.Graph("bystander", reactor="world")

        @graph.node
        def look(alpha: Value | None) -> Value | None:
            return alpha

        return graph

    def next_value(self, *, poison: bool) -> Value:
        self.number += 1
        return Value(self.number, poison)


def _named(name: str) -> Callable[[Value], Value]:
    def accumulate(event: Value) -> Value:
        return event

    accumulate.__name__ = name
    accumulate.__annotations__ = {"event": Value, "return": Value}
    return accumulate


Step = Callable[[tm.testing.TestNode, World], Awaitable[None]]


def push(name: str, *, poison: bool, by_handle: bool) -> Step:
    """Push a value by either way in, and remember it if it was accepted."""

    async def step(node: tm.testing.TestNode, world: World) -> None:
        value = world.next_value(poison=poison)
        accepted = node.handle(name)(value) if by_handle else (await node.push(name, value)).accepted
        if accepted:
            world.accepted.append((name, value))

    return step


async def pause(node: tm.testing.TestNode, world: World) -> None:
    await node.reactor("world").pause()


async def resume(node: tm.testing.TestNode, world: World) -> None:
    await node.reactor("world").resume()


async def crash_reactor(node: tm.testing.TestNode, world: World) -> None:
    await node.break_reactor("world")


async def restart_reactor(node: tm.testing.TestNode, world: World) -> None:
    await node.reactor("world").restart()


async def give_turn(node: tm.testing.TestNode, world: World) -> None:
    await asyncio.sleep(0)


async def wait_a_second(node: tm.testing.TestNode, world: World) -> None:
    await node.advance("1s")


def crash(name: str) -> Step:
    return lambda node, world: node.break_accumulator(name)


def lose(name: str) -> Step:
    return lambda node, world: node.disconnect(name)


def regain(name: str) -> Step:
    return lambda node, world: node.reconnect(name)


sources = st.sampled_from(SOURCES)
steps = st.lists(
    st.one_of(
        st.builds(push, sources, poison=st.just(False), by_handle=st.booleans()),
        st.builds(push, sources, poison=st.just(False), by_handle=st.booleans()),
        st.builds(push, sources, poison=st.booleans(), by_handle=st.booleans()),
        st.sampled_from([pause, resume, crash_reactor, restart_reactor, give_turn, wait_a_second]),
        st.builds(crash, sources),
        st.builds(lose, sources),
        st.builds(regain, sources),
    ),
    max_size=40,
)
shapes = st.fixed_dictionaries({"is_async": st.booleans(), "second": st.booleans()})


async def play(world: World, story: list[Step]) -> tm.ReactorState:
    """Play a story, repair everything, and return the state at its end."""
    async with asyncio.timeout(20), tm.testing.node(load=world.load) as node:
        for step in story:
            await step(node, world)
            agree(node)
        for name in SOURCES:
            await node.reconnect(name)
            await node.restart_accumulator(name)
        await node.reactor("world").restart()
        await node.reactor("world").resume()
        await node.settle()
        agree(node)
        state = node.reactor("world").state()
        letters = await node.reactor("world").dead_letters()
    assert state.health == tm.ReactorHealth.LIVE
    assert len(letters) == state.failures
    return state


def agree(node: tm.testing.TestNode) -> None:
    """G-27: scheduler and registry name the same things, health and flags fit together."""
    graphs = node.probe.graphs
    assert sorted(name for _, name in graphs.reactor_keys()) == node.registry.reactors()
    assert sorted(name for _, name in graphs.accumulator_keys()) == node.registry.accumulators()
    state = node.reactor("world").state()
    unhealthy = sorted(name for name, one in state.accumulators.items() if not one.health.is_healthy)
    assert sorted(state.waiting + state.disconnected) == unhealthy
    if state.health is tm.ReactorHealth.LIVE:
        assert not unhealthy


@given(story=steps, shape=shapes)
def test_latest_sees_the_last_value_of_every_source(story: list[Step], shape: dict[str, bool]) -> None:
    """G-2, G-3, G-11: whatever happens, the newest accepted values are in the last snapshot."""
    world = World(strategy="latest", **shape)
    state = asyncio.run(play(world, story))
    newest = dict(world.accepted)
    if newest:
        snapshot, _ = world.seen[-1]
        assert {name: value for name, value in snapshot.items() if value is not None} == newest
    assert not any(state.dirty.values())
    assert all(
        value is None or (name, value) in world.accepted for snap, _ in world.seen for name, value in snap.items()
    )


@given(story=steps, shape=shapes)
def test_sequential_sees_every_value_once_and_in_order(story: list[Step], shape: dict[str, bool]) -> None:
    """G-11: k accepted boundaries give k firings in arrival order, each seeing exactly one more."""
    world = World(strategy="sequential", **shape)
    state = asyncio.run(play(world, story))
    assert state.queued == 0
    finished = world.seen if not shape["is_async"] else _without_interrupted(world.seen)
    assert [consumed for _, consumed in finished] == [[entry] for entry in world.accepted]
    cache: dict[str, Value] = {}
    for snapshot, [(name, value)] in finished:
        cache[name] = value
        assert {name: value for name, value in snapshot.items() if value is not None} == cache


def _without_interrupted(seen: list[Any]) -> list[Any]:
    """A firing that a crash cut off runs again: keep the last of equal neighbours."""
    return [one for index, one in enumerate(seen) if index + 1 == len(seen) or seen[index + 1][1] != one[1]]
