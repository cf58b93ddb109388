"""kill -9 at every transaction, for reactors on each path: one plain graph, two graphs, a window, both strategies.

No node takes the context here: a reactor with one graph fires on the plain path. The log tells what a firing was.
"""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.simulation.test_crash_points import LAST, TURNS, Killer

WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two graphs": {"graphs": 2},
    "window": {"has_window": True},
    "latest": {"strategy": "latest"},
    "latest, two graphs": {"strategy": "latest", "graphs": 2},
    "fire": {"durability": "fire"},
    "fire, latest": {"durability": "fire", "strategy": "latest"},
    "fire, two graphs": {"durability": "fire", "graphs": 2},
}


class World:
    """Reactor `r` over `a`, `b` and perhaps window `w`, its graphs, and what they saw in all lives.

    The values that are pushed to a source grow.
    """

    def __init__(self, *, graphs: int = 1, has_window: bool = False, **options: Any) -> None:
        self.durability = options.setdefault("durability", "boundary")
        self.strategy = options.setdefault("strategy", "sequential")
        self.names = ["a", "b", "w"] if has_window else ["a", "b"]
        self.told: list[list[dict[str, Any]]] = [[] for _ in range(graphs)]
        self.inputs: dict[str, Any] = {}
        self.ids: dict[str, str] = {}
        self.tried: dict[str, list[int]] = {name: [] for name in self.names}
        self.accepted: dict[str, list[int]] = {name: [] for name in self.names}
        self.settled: dict[str, list[int]] = {name: [] for name in self.names}

        @tm.passthrough
        def a(event: int) -> int:
            return event

        @tm.passthrough
        def b(event: int) -> int:
            return event

        sources = [a, b, *([tm.window("w", int, capacity=LAST)] if has_window else [])]

        @tm.passthrough
        def n(event: int) -> int:
            return event

        neighbour = tm.Reactor("neighbour", [n], durability="boundary")  # its journal takes positions in between
        self.reactor = tm.Reactor("r", sources, **options)
        self.load = [neighbour, self.reactor, *(self._graph(number, has_window) for number in range(graphs))]

    def _graph(self, number: int, has_window: bool) -> tm.Graph:
        graph, told = tm.Graph(f"g{number}", reactor=self.reactor), self.told[number]

        def tell(a: int | None, b: int | None) -> None:
            told.append({"a": a, "b": b})

        def tell_window(a: int | None, b: int | None, w: list[int]) -> None:
            told.append({"a": a, "b": b, "w": w})

        graph.node(tell_window if has_window else tell)
        return graph

    @property
    def repeats_firings(self) -> bool:
        """Whether the next life repeats firings under their ids: beside a window, or under latest, inputs differ."""
        return (self.strategy, self.durability, len(self.names)) == ("sequential", "boundary", 2)

    async def push(self, node: tm.testing.TestNode, name: str, value: int) -> None:
        """Push a value and note whether it was acknowledged."""
        self.tried[name].append(value)
        if (await node.push(name, value)).accepted:
            self.accepted[name].append(value)

    async def push_many(self, node: tm.testing.TestNode, name: str, values: list[int]) -> None:
        """Push values at once and note which were acknowledged."""
        self.tried[name] += values
        receipts = (await node.push_many(name, values)).receipts
        self.accepted[name] += [value for value, one in zip(values, receipts, strict=True) if one.accepted]

    async def settle(self, node: tm.testing.TestNode) -> None:
        """Let everything be written, and note what was acknowledged before."""
        before = {name: values.copy() for name, values in self.accepted.items()}
        await node.settle()
        self.settled = before

    def note_firings(self, node: tm.testing.TestNode) -> None:
        """G-24: a firing that ran in two lives had the same id and the same inputs in both."""
        for one in node.reactor("r").firings(limit=200):
            assert self.inputs.setdefault(one.id, one.inputs) == one.inputs, one.id
            if self.repeats_firings:
                assert self.ids.setdefault(str(one.inputs), one.id) == one.id, one.inputs

    # -- what must hold after a death

    def check(self, state: tm.ReactorState) -> None:
        """Check what the durability promises; `state` is that of the next life, when everything due has happened."""
        assert (state.queued, any(state.dirty.values())) == (0, False)
        if self.durability == "fire":
            self._check_prefix(state)
            return
        for told in self.told:
            self._check_newest(told, state)
            if self.strategy == "sequential":
                self._check_each_seen(told)

    def _check_prefix(self, state: tm.ReactorState) -> None:
        """G-23: a snapshot is of one moment, and holds at least what was written before the death."""
        for name in self.names:
            emitted = state.accumulators[name].emitted
            assert len(self.settled[name]) <= emitted <= len(self.tried[name]), name
            assert state.cache.get(name) == (self.tried[name][emitted - 1] if emitted else None), name

    def _check_newest(self, told: list[dict[str, Any]], state: tm.ReactorState) -> None:
        """G-2, G-24: the newest acknowledged value of each source is in the cache, and a firing saw it."""
        for name in ("a", "b"):
            newest = max(self.accepted[name], default=None)
            cached = state.cache.get(name)
            assert cached is None or cached in self.tried[name], name
            assert newest is None or cached >= newest, name  # type: ignore[operator]
            assert cached is None or told[-1][name] == cached, name
        for name in self.names[2:]:
            window = state.cache[name]
            assert set(self.accepted[name]) <= set(window) <= set(self.tried[name]), name
            assert window == sorted(set(window)), name
            assert not window or told[-1][name] == window, name

    def _check_each_seen(self, told: list[dict[str, Any]]) -> None:
        """G-11, G-24: a firing saw each acknowledged value, and they came in order."""
        for name in ("a", "b"):
            seen = list(dict.fromkeys(one[name] for one in told if one[name] is not None))
            assert set(self.accepted[name]) <= set(seen) <= set(self.tried[name]), name
            assert seen == sorted(seen), name


async def story(node: tm.testing.TestNode, world: World) -> None:
    """Push a known sequence to all sources, alone, at once and many together, over a checkpoint."""
    number = 0
    for name in world.names:
        number += 1
        await node.push("n", number)
        await world.push(node, name, number)
    await world.settle(node)
    at_once = [(name, number + index) for index, name in enumerate([*world.names, "a"], 1)]
    number += len(at_once)
    await asyncio.gather(*(world.push(node, name, value) for name, value in at_once))
    await node.advance("300ms")
    for name in world.names * 2:
        await node.push("n", number)
        await world.push_many(node, name, [number + 1, number + 2, number + 3])
        number += 3
        await world.settle(node)
    await world.push(node, "b", number + 1)
    await node.advance("300ms")


async def live_and_die(survive: int, *, takes_effect: bool, **options: Any) -> bool:
    """Tell the story with one death in it; return whether it was reached."""
    world = World(**options)
    async with tm.testing.node(store="memory://", load=world.load) as node:
        killer = Killer(node, survive, takes_effect=takes_effect)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(story(node, world), name="story")
            while not telling.done() and not killer.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            for _ in range(TURNS if killer.is_dead else 0):
                await asyncio.sleep(0)
            telling.cancel()
        world.note_firings(node)
        killer.lift()
        node = await node.crash()
        await node.advance("1s")
        await node.settle()
        world.note_firings(node)
        world.check(node.reactor("r").state())
        for name in world.names:  # the next life goes on where this one ended
            assert (await node.push(name, LAST)).outcome == "emitted"
        await node.settle()
        world.note_firings(node)
    assert all(one[-1]["a"] == one[-1]["b"] == LAST for one in world.told)
    return killer.is_dead


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
async def test_a_death_at_any_transaction_keeps_what_is_promised(takes_effect: bool, options: dict[str, Any]) -> None:
    """G-23, G-24: every transaction of the story is once the last, before and after it took effect."""
    survive = 0
    while await live_and_die(survive, takes_effect=takes_effect, **options):
        survive += 1
    assert survive > 6


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS.keys())
async def test_the_worlds_fire_on_the_paths_that_they_are_for(options: dict[str, Any]) -> None:
    """G-1: one graph without a window fires on the plain path, the others on the broad one."""
    world = World(**options)
    async with tm.testing.node(store="memory://", load=world.load) as node:
        for name in world.names:
            await world.push(node, name, 1)
        loop = node.probe.graphs.reactor("r").firing_loop
        assert (loop.fast.graph is None) == (len(world.told) > 1)
        assert node.probe.graphs.has_fast_path("r")
