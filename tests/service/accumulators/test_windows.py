"""Windows: a graph's own output fed back."""

from types import ModuleType
from typing import Any

import pytest

import tidemill as tm


def feeding(capacity: int, **options: Any) -> tuple[list[Any], list[list[int]]]:
    """Return what to load, and what the graph saw of its window `past` before each feeding of `a`."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    past = tm.window("past", int, capacity=capacity)
    reactor = tm.Reactor("r", [a, past], **options)
    graph = tm.Graph("g", reactor=reactor)
    seen: list[list[int]] = []

    @graph.node
    def look(past: list[int]) -> int:
        seen.append(past)
        return len(past)

    @graph.node(feeds=past)
    def keep(a: int | None) -> int | None:
        if a == 13:
            raise ValueError("unlucky")
        return a

    return [reactor, graph], seen


async def test_a_window_is_an_empty_list_at_first() -> None:
    """G-5: always present."""
    load, seen = feeding(3)
    async with tm.testing.node(load=load) as node:
        assert node.reactor("r").state().cache == {"past": []}
        await node.push("a", 1)
    assert seen == [[]]


async def test_a_window_keeps_the_newest_oldest_first() -> None:
    """Behaviour 16."""
    load, seen = feeding(2)
    async with tm.testing.node(load=load) as node:
        for value in (1, 2, 3, 4):
            await node.push("a", value)
        assert node.reactor("r").state().cache == {"a": 4, "past": [3, 4]}
    assert seen == [[], [1], [1, 2], [2, 3]]


async def test_a_negative_capacity_never_evicts() -> None:
    """Behaviour 17."""
    load, _ = feeding(-1)
    async with tm.testing.node(load=load) as node:
        for value in range(100, 300):
            await node.push("a", value)
        assert node.reactor("r").state().cache["past"] == list(range(100, 300))


async def test_a_capacity_of_zero_is_a_sink_that_shows_nothing() -> None:
    """Behaviour 18."""
    load, seen = feeding(0)
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        receipt = await node.push("past", 5)
        state = node.reactor("r").state()
    assert receipt.outcome == "suppressed"
    assert (state.cache["past"], state.fires, seen) == ([], 1, [[]])


async def test_feeding_sets_no_flag_and_fires_nothing() -> None:
    """API: a window fed by its own reactor's graph changes the cache but sets no dirty flag."""
    load, _ = feeding(3)
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        state = node.reactor("r").state()
    assert (state.fires, state.dirty, state.cache) == (1, {"a": False, "past": False}, {"a": 1, "past": [1]})


async def test_a_push_from_outside_sets_the_flag() -> None:
    """G-5."""
    load, seen = feeding(3)
    async with tm.testing.node(load=load) as node:
        receipt = await node.push("past", 7)
        await node.reactor("r").pause()
        await node.push("past", 8)
        assert node.reactor("r").state().dirty == {"a": False, "past": True}
    assert receipt == tm.Receipt(True, 1, "emitted")
    assert seen == [[7]]


async def test_all_does_not_wait_for_its_own_window() -> None:
    """G-5."""
    load, seen = feeding(3, when="all")
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        await node.push("a", 2)
    assert seen == [[], [1]]


async def test_all_waits_for_a_window_that_only_others_feed() -> None:
    """G-5: only windows of the reactor's own graphs are excepted."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    past = tm.window("past", int, capacity=3)
    async with tm.testing.node(load=[tm.Reactor("r", [a, past], when="all")]) as node:
        await node.push("a", 1)
        assert node.reactor("r").state().fires == 0
        await node.push("past", 1)
        assert node.reactor("r").state().fires == 1


async def test_a_failed_firing_feeds_nothing() -> None:
    """API: appended when the firing succeeds."""
    load, _ = feeding(3)
    async with tm.testing.node(load=load) as node:
        for value in (1, 13, 2):
            await node.push("a", value)
        assert node.reactor("r").state().cache["past"] == [1, 2]


async def test_none_is_not_fed() -> None:
    """API: a node's None needs no consumer, and no place in a window."""
    load, _ = feeding(3)
    async with tm.testing.node(load=load) as node:
        await node.push("past", 5)
        assert node.reactor("r").state().cache == {"past": [5]}


async def test_a_graph_that_changes_its_list_changes_nothing_else() -> None:
    """G-3: a window is read as a fresh list."""
    load, _ = feeding(3)
    rude = tm.Graph("rude", reactor=load[0])

    @rude.node
    def clear(past: list[int]) -> int:
        past.clear()
        return 0

    async with tm.testing.node(load=[*load, rude]) as node:
        for value in (1, 2, 3):
            await node.push("a", value)
        assert node.reactor("r").state().cache["past"] == [1, 2, 3]
        assert node.reactor("r").firings()[0].inputs == {"a": 3, "past": [1, 2]}


async def test_a_window_shared_by_two_reactors_is_news_to_the_other() -> None:
    """API: own feeding sets no flag; for another reactor it is a boundary like any."""
    load, _ = feeding(3)
    _, past = load[0].accumulators
    other = tm.Reactor("other", [past])
    async with tm.testing.node(load=[*load, other]) as node:
        await node.push("a", 1)
        await node.push("a", 2)
        shown = [firing.inputs for firing in node.reactor("other").firings()]
        assert node.reactor("r").state().fires == 2
    assert shown == [{"past": [1, 2]}, {"past": [1]}]


async def test_a_misfit_does_not_enter_a_window() -> None:
    """G-7: elements are validated."""
    load, _ = feeding(3)
    async with tm.testing.node(load=load) as node:
        receipt = await node.push("past", "x")
        assert receipt.outcome == "dead_lettered"
        assert node.reactor("r").state().cache == {"past": []}


async def test_a_window_is_numbered_like_any_accumulator() -> None:
    """Behaviour 22: one per boundary, fed or pushed."""
    load, _ = feeding(3)
    async with tm.testing.node(load=load) as node:
        await node.push("a", 1)
        assert (await node.push("past", 2)).sequence == 2
        assert node.reactor("r").state().accumulators["past"].emitted == 3


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_windows_work_with_both_strategies(strategy: str) -> None:
    """G-5, G-11."""
    load, seen = feeding(2, strategy=strategy)
    async with tm.testing.node(load=load) as node:
        for value in (1, 2, 3):
            await node.push("a", value)
    assert seen == [[], [1], [1, 2]]


@pytest.mark.parametrize(("capacity", "shown"), [(3, [3, 4, 5]), (0, []), (-1, [0, 1, 2, 3, 4, 5])])
async def test_a_reload_with_another_capacity_trims_the_window_at_once(capacity: int, shown: list[int]) -> None:
    """P-6: the first firing after the reload sees the newest values that fit, and nothing older."""
    before: Any = ModuleType("m")
    after: Any = ModuleType("m")
    (before.reactor, before.graph), _ = feeding(6)
    (after.reactor, after.graph), seen = feeding(capacity)
    async with tm.testing.node(load=[before]) as node:
        for value in range(6):
            await node.push("a", value)
        await node.load(after)
        assert node.reactor("r").state().cache == {"a": 5, "past": shown}
        await node.push("a", 6)
    assert seen == [shown]


async def test_a_reload_trims_the_windows_that_wait_in_a_queue() -> None:
    """P-6, G-11: a queued content of the older version fits the newer one, too."""

    def build(capacity: int) -> tm.Reactor:
        return tm.Reactor("r", [tm.window("past", int, capacity=capacity)], strategy="sequential")

    async with tm.testing.node(load=[build(3)]) as node:
        await node.reactor("r").pause()
        for value in range(3):
            await node.push("past", value)
        await node.load(build(2))
        await node.reactor("r").resume()
        assert [firing.inputs["past"] for firing in node.reactor("r").firings()] == [[1, 2], [0, 1], [0]]
