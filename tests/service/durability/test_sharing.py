"""Durability where several are concerned: streams, firings under way, shared accumulators, tenants, swaps."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import pair, single

KEPT = ["interval", "fire", "boundary"]


async def until(condition: Callable[[], bool]) -> None:
    """Wait in real time until a condition holds, or fail."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to tell of it
            await asyncio.sleep(0.002)


def has(things: list[int], wanted: int) -> bool:
    """Return whether there are that many."""
    return len(things) >= wanted


def has_counted(node: tm.Node, wanted: int) -> bool:
    """Return whether the running sum is of that many events."""
    return bool(node.reactor("r").state().cache.get("total", {}).get("count", 0) >= wanted)


class Numbers:
    """A source of the numbers 1, 2, 3, ... up to a limit that may change; remembers where it was started."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.started: list[Any] = []

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        self.started.append(checkpoint)
        number = checkpoint or 0
        while True:
            await asyncio.sleep(0)
            if number >= self.limit:
                await asyncio.Event().wait()
            number += 1
            yield number, number


class Sum(tm.Boundary):
    """A running sum and how many it is of."""

    sum: int = 0
    count: int = 0


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_source_goes_on_where_its_state_stands(sqlite: str, durability: Any, is_async: bool) -> None:
    """G-6, behaviours 21 and 25: offset and state are of one moment; nothing is lost or doubled over orderly ends."""
    source = Numbers(100_000)

    def total(event: int, state: Sum) -> Sum:
        return Sum(state.sum + event, state.count + 1)

    async def total_later(event: int, state: Sum) -> Sum:
        return total(event, state)

    chosen = total_later if is_async else total
    chosen.__name__ = "total"
    reactor = tm.Reactor("r", [tm.stream(source, state=Sum)(chosen)], durability=durability)
    for wanted in (20, 40, 60):
        async with tm.Node(store=sqlite, load=[reactor]) as node:
            await until(partial(has_counted, node, wanted))
    source.limit = 0
    async with tm.Node(store=sqlite, load=[reactor]) as node:
        await until(lambda: len(source.started) == 4)
        cache = node.reactor("r").state().cache["total"]
    assert source.started[0] is None
    assert source.started[3] == cache["count"]
    assert cache["sum"] == sum(range(1, cache["count"] + 1))


async def test_a_sequential_reactor_sees_every_event_of_a_source_once(sqlite: str) -> None:
    """G-6, G-11, G-24: in order, over orderly ends in the middle of the flow."""
    source = Numbers(1000)
    seen: list[int] = []
    reactor = tm.Reactor("r", [tm.stream(source)(_number)], strategy="sequential", durability="boundary")
    graph = _bound(tm.Graph("g", reactor=reactor), seen)
    for wanted in (20, 60, 100):
        async with tm.Node(store=sqlite, load=[reactor, graph]):
            await until(partial(has, seen, wanted))
    assert seen == list(range(1, len(seen) + 1))


def _number(event: int) -> int:
    return event


_number.__name__ = "numbers"


async def test_reactors_that_share_a_source_both_see_all_of_it_after_a_restart(sqlite: str) -> None:
    """G-6: the offset of a shared stream says what every one of its reactors has seen, from the first event on."""
    source = Numbers(1000)
    seen: dict[str, list[int]] = {"one": [], "two": []}
    numbers = tm.stream(source)(_number)
    load: list[Any] = []
    for name, fired in seen.items():
        reactor = tm.Reactor(name, [numbers], strategy="sequential", durability="boundary")
        load += [reactor, _bound(tm.Graph(f"graph_of_{name}", reactor=reactor), fired)]
    for wanted in (20, 60, 100):
        async with tm.Node(store=sqlite, load=load):
            await until(partial(has, seen["one"], wanted))
            await until(partial(has, seen["two"], wanted))
    for fired in seen.values():
        assert fired == list(range(1, len(fired) + 1))


def _bound(graph: tm.Graph, fired: list[int]) -> tm.Graph:
    @graph.node
    def out(numbers: int) -> None:
        fired.append(numbers)

    return graph


# -- firings under way


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_firing_under_way_runs_again_under_its_id(store: str, durability: Any, strategy: Any) -> None:
    """G-24: a snapshot taken meanwhile holds what it consumed as unconsumed; what came since follows."""
    fired: list[Any] = []
    gate = asyncio.Event()

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a], strategy=strategy, durability=durability)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    async def out(a: int, ctx: tm.Context) -> None:
        fired.append((ctx.firing_id, a, ctx.consumed))
        await gate.wait()

    async with tm.testing.node(store=store, load=[reactor, graph]) as node:
        await node.push("a", 1)
        await node.advance(0)
        await node.push("a", 2)
        await node.advance("400ms")
        assert len(fired) == 1
        gate.set()
        gate = asyncio.Event()
        gate.set()
        node = await node.crash()
        await node.settle()
        assert node.reactor("r").state().fires == 2
    first, again, second = fired[0], fired[-2], fired[-1]
    assert again == first == (first[0], 1, [("a", 1)])
    assert second[1:] == (2, [("a", 2)])
    assert second[0] != first[0]


# -- sharing


@pytest.mark.parametrize("other", ["none", "interval", "fire"])
async def test_reactors_that_share_an_accumulator_keep_their_own_promises(store: str, other: Any) -> None:
    """Durability: what one appends is there for both; "none" starts fresh although its neighbour does not."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def never(event: int) -> int:
        return event

    strict = tm.Reactor("strict", [a, never], when="all", durability="boundary")
    loose = tm.Reactor("loose", [a, never], when="all", durability=other)
    async with tm.testing.node(store=store, load=[loose, strict]) as node:
        assert (await node.push("a", 1)).sequence == 1
        node = await node.crash()
        strict_cache, loose_cache = (node.reactor(name).state().cache for name in ("strict", "loose"))
        assert (await node.push("a", 2)).sequence == 2
        assert node.reactor("loose").state().cache == {"a": 2}
    assert strict_cache == {"a": 1}
    assert loose_cache == ({} if other == "none" else {"a": 1})


@pytest.mark.parametrize("durability", KEPT)
async def test_tenants_with_equal_names_are_kept_apart(store: str, durability: Any) -> None:
    """G-30: cache, numbers, pauses."""
    load = pair(when="all", durability=durability).load
    async with tm.testing.node(store=store, load=load) as node:
        for definition in pair(when="all", durability=durability).load:
            await node.load(definition, tenant="acme")
        await node.push("a", 1)
        await node.push("a", 2)
        await node.push("a", 10, tenant="acme")
        await node.reactor("r", tenant="acme").pause()
        await node.settle()
        node = await node.crash()
        ours, theirs = node.reactor("r").state(), node.reactor("r", tenant="acme").state()
        assert (await node.push("a", 3)).sequence == 3
        assert (await node.push("a", 11, tenant="acme")).sequence == 2
    assert (ours.cache, ours.paused, theirs.cache, theirs.paused) == ({"a": 2}, False, {"a": 10}, True)


@pytest.mark.parametrize("durability", KEPT)
async def test_a_hot_swap_then_a_crash_restores_the_newer_version(store: str, durability: Any) -> None:
    """G-19, G-23: what was migrated is what comes back, and the newer graph fires it."""
    old, new = pair(when="all", durability=durability), pair(when="all", durability=durability)
    async with tm.testing.node(store=store, load=old.load) as node:
        await node.push("a", 1)
        for definition in new.load:
            await node.load(definition)
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 1}
        await node.push("b", 2)
        await node.settle()
    assert (old.seen, new.seen) == ([], [(1, 2)])


# -- by hand


@pytest.mark.parametrize("durability", KEPT)
async def test_what_fire_with_put_there_comes_back(store: str, durability: Any) -> None:
    """G-13, G-23: the whole cache was replaced, flags are cleared, and no firing comes again."""
    sample = pair(durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.reactor("r").fire_with({"b": 5})
        await node.settle()
        node = await node.crash()
        await node.settle()
        state = node.reactor("r").state()
    assert (state.cache, state.fires, state.dirty) == ({"b": 5}, 0, {"a": False, "b": False})
    assert sample.seen == [(1, None), (None, 5)]


@pytest.mark.parametrize("durability", KEPT)
async def test_a_forced_firing_took_its_news_for_good(store: str, durability: Any) -> None:
    """G-13, G-23: once written, it fires nothing after a crash."""
    sample = single(durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.reactor("r").pause()
        await node.push("a", 1)
        await node.reactor("r").force_fire()
        await node.settle()
        node = await node.crash()
        await node.reactor("r").resume()
        await node.settle()
    assert sample.seen == [1]


# -- ids of firings


async def test_a_firing_has_one_id_beside_a_shared_journal(store: str) -> None:
    """API, G-24: the context, the log and the retries agree, wherever the positions of the shared journal are."""
    ids: list[str] = []

    @tm.passthrough
    def shared(event: int) -> int:
        return event

    @tm.passthrough
    def own(event: int) -> int:
        return event

    journaled = tm.Reactor("journaled", [shared], durability="boundary")
    retry = tm.Retry(2, delay="100ms", jitter=0.0)
    reactor = tm.Reactor("r", [shared, own], when=tm.any_of(own), durability="interval", on_error=retry)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def note(shared: int, own: int, ctx: tm.Context) -> float:
        ids.append(ctx.firing_id)
        return shared / own

    async with tm.testing.node(store=store, load=[journaled, reactor, graph]) as node:
        for value in (1, 1, 0):
            for number in range(5):
                await node.push("shared", number)
            await node.push("own", value)
        await node.advance("1s")
        assert [one.id for one in reversed(node.reactor("r").firings())] == ids
    assert [ids.count(one) for one in dict.fromkeys(ids)] == [1, 1, 3]


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_window_that_grows_during_a_firing_leaves_the_firing_its_id(store: str, is_followed: bool) -> None:
    """API, G-24: the journal does not hold what another reactor feeds, so later firings are of another series."""
    ids: list[str] = []
    started: list[str] = []

    @tm.passthrough
    def events(event: int) -> int:
        return event

    @tm.passthrough
    def fed(event: int) -> int:
        return event

    window = tm.window("window", int, capacity=3)
    reactor = tm.Reactor("r", [events, window], when=tm.any_of(events), durability="boundary")
    other = tm.Reactor("other", [fed, window], when=tm.any_of(fed), durability="none")
    graph, second = tm.Graph("g", reactor=reactor), tm.Graph("second", reactor=reactor)
    feeding = tm.Graph("feeding", reactor=other)
    workflow = tm.Workflow("following", triggers=[tm.on_firing("r")] if is_followed else [])

    @graph.node
    def feed_other(events: int) -> int | None:
        return node.handle("fed")(events) if events >= 10 else None

    @second.node
    def note(events: int, window: list[int], ctx: tm.Context) -> list[int]:
        ids.append(ctx.firing_id)
        return window

    @feeding.node(feeds=window)
    def feed(fed: int) -> int:
        return fed

    @workflow.task
    def start(ctx: tm.Context) -> None:
        started.append(ctx.get("firing_id", ""))

    async with tm.testing.node(store=store, load=[other, reactor, graph, second, feeding, workflow]) as node:
        for value in (1, 2, 10, 3):
            await node.push("events", value)
        await node.settle()
        firings = node.reactor("r").firings()[::-1]
    assert [one.ok for one in firings] == [True] * 4
    assert [one.id for one in firings] == ids
    assert sorted(started) == (sorted(ids) if is_followed else [])
    assert [one.results["second"].outputs["note"] for one in firings] == [[], [], [], [10]]
    assert [len({one.rpartition("-")[0] for one in ids[:count]}) for count in (3, 4)] == [1, 2]
