"""What comes back after the death of the process: cache, flags, queue, windows, batches, running state."""

import asyncio
import types
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.damage import change, copy, look_at, make_version_20, rows
from tests.service.samples import observer, pair, raising, single

KEPT = ["interval", "fire", "boundary"]


def tell(seen: list[Any], reactor: tm.Reactor | str, name: str = "teller") -> tm.Graph:
    """Return a graph that notes firing id, inputs and what was consumed, of a reactor over `a` and `b`."""
    graph = tm.Graph(name, reactor=reactor)

    @graph.node
    def note(a: int | None, b: int | None, ctx: tm.Context) -> None:
        seen.append((ctx.firing_id, (a, b), ctx.consumed))

    return graph


@pytest.mark.parametrize("durability", KEPT)
async def test_the_cache_of_every_source_is_restored(store: str, durability: Any) -> None:
    """Behaviour 57: usable immediately, and no input is marked as changed."""
    sample = pair(durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.push("b", 2)
        await node.settle()
        node = await node.crash()
        state = node.reactor("r").state()
        firing = await node.reactor("r").force_fire()
        assert sample.seen == [(1, None), (1, 2), (1, 2)]
    assert (state.cache, state.dirty, state.fires) == ({"a": 1, "b": 2}, {"a": False, "b": False}, 0)
    assert firing.inputs == {"a": 1, "b": 2}


@pytest.mark.parametrize("durability", KEPT)
async def test_flags_are_restored(store: str, durability: Any) -> None:
    """Behaviour 58: A before the crash and B after it are one firing."""
    sample = pair(when="all", durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.settle()
        node = await node.crash()
        await node.push("b", 2)
        await node.settle()
        assert node.reactor("r").state().fires == 1
    assert sample.seen == [(1, 2)]


@pytest.mark.parametrize("durability", KEPT)
async def test_flags_of_undeclared_sources_are_dropped(sqlite: str, durability: Any) -> None:
    """Behaviour 59: their absence, or another position in the list, does not mislead."""

    def load(*names: str) -> list[Any]:
        def accumulate(event: int) -> int:
            return event

        made = {}
        for name in names:
            function = types.FunctionType(accumulate.__code__, {}, name)
            function.__annotations__ = {"event": int, "return": int}
            made[name] = tm.passthrough(function)
        return [tm.Reactor("r", list(made.values()), when="all", durability=durability)]

    async with tm.testing.node(store=sqlite, load=load("gone", "a", "b")) as node:
        await node.push("gone", 9)
        await node.push("a", 1)
    async with tm.testing.node(store=sqlite, load=load("b", "a", "new")) as node:
        state = node.reactor("r").state()
        assert (state.cache, state.dirty) == ({"a": 1}, {"b": False, "a": True, "new": False})
        await node.push("b", 2)
        assert node.reactor("r").state().fires == 0
        await node.push("new", 3)
        assert node.reactor("r").state().fires == 1


@pytest.mark.parametrize("durability", KEPT)
async def test_a_sequential_queue_is_drained_first_and_in_order(store: str, durability: Any) -> None:
    """Behaviour 60, G-8: without a new event, on becoming Live, and the firings' inputs are one boundary each."""
    sample = pair(strategy="sequential", durability=durability)
    seen: list[Any] = []
    load = [*sample.load, tell(seen, sample.reactor)]
    async with tm.testing.node(store=store, load=load, disconnected=["b"]) as node:
        for name, value in (("a", 1), ("b", 2), ("a", 3), ("a", 4)):
            assert (await node.push(name, value)).accepted
        assert node.reactor("r").state().queued == 4
        await node.settle()
        node = await node.crash()
        await node.settle()
        state = node.reactor("r").state()
    assert sample.seen == [(1, None), (1, 2), (3, 2), (4, 2)]
    assert [consumed for _, _, consumed in seen] == [[("a", 1)], [("b", 2)], [("a", 3)], [("a", 4)]]
    assert (state.queued, state.fires) == (0, 4)


@pytest.mark.parametrize("durability", KEPT)
async def test_what_was_consumed_on_the_way_to_the_criteria_is_restored(store: str, durability: Any) -> None:
    """G-11, G-23: the firing after the crash shows all boundaries since the last firing."""
    seen: list[Any] = []
    sample = pair(strategy="sequential", when="all", durability=durability)
    async with tm.testing.node(store=store, load=[sample.reactor, tell(seen, sample.reactor)]) as node:
        await node.push("a", 1)
        await node.push("a", 2)
        await node.settle()
        node = await node.crash()
        assert seen == []
        await node.push("b", 3)
        await node.settle()
    assert [rest for _, *rest in seen] == [[(2, 3), [("a", 1), ("a", 2), ("b", 3)]]]


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_criteria_that_hold_fire_on_becoming_live_and_not_before(
    sqlite: str, durability: Any, strategy: Any
) -> None:
    """G-8: restoring fires nothing; the gate is on connection; no new event is needed."""
    sample = pair(durability=durability, strategy=strategy)
    async with tm.testing.node(store=sqlite, load=sample.load, disconnected=["b"]) as node:
        await node.push("a", 1)
    assert sample.seen == []
    async with tm.testing.node(store=sqlite, load=sample.load, disconnected=["b"]) as node:
        await node.advance("10s")
        state = node.reactor("r").state()
        assert (state.health, state.waiting, sample.seen) == (tm.ReactorHealth.WARMING, ["b"], [])
        await node.reconnect("b")
        await node.settle()
        state = node.reactor("r").state()
    assert (state.health, state.fires, state.dirty) == (tm.ReactorHealth.LIVE, 1, {"a": False, "b": False})
    assert sample.seen == [(1, None)]


async def test_restoring_a_clean_state_fires_nothing(store: str) -> None:
    """G-8, behaviours 7 and 19 as settled: no last value is emitted, no window shown."""
    load, seen = windowed(durability="interval")
    async with tm.testing.node(store=store, load=load) as node:
        await node.push("a", 1)
        await node.push("past", 7)
        await node.settle()
        before = list(seen)
        node = await node.crash()
        await node.advance("10s")
        assert (seen, node.reactor("r").state().fires) == (before, 0)


@pytest.mark.parametrize("durability", KEPT)
async def test_graphs_loaded_later_in_the_list_see_the_restored_firing(sqlite: str, durability: Any) -> None:
    """G-8, G-14: a graph of another package, bound by name, is there when the restored criteria are evaluated."""
    sample = pair(durability=durability)
    seen: list[Any] = []
    module = types.ModuleType("elsewhere")
    module.graph = tell(seen, "r")  # type: ignore[attr-defined]
    load = [*sample.load, module]
    async with tm.testing.node(store=sqlite, load=load, disconnected=["b"]) as node:
        await node.push("a", 1)
    async with tm.testing.node(store=sqlite, load=load) as node:
        await node.settle()
        (firing,) = node.reactor("r").firings()
    assert set(firing.results) == {"g", "teller"}
    assert (sample.seen, [inputs for _, inputs, _ in seen]) == ([(1, None)], [(1, None)])


@pytest.mark.parametrize("durability", KEPT)
async def test_sequence_numbers_continue(store: str, durability: Any) -> None:
    """Behaviour 22: over crashes too."""
    sample = single(durability=durability)
    numbers = []
    async with tm.testing.node(store=store, load=sample.load) as node:
        for value in range(6):
            numbers.append((await node.push("a", value)).sequence)
            await node.settle()
            if value % 2:
                node = await node.crash()
        assert node.reactor("r").state().accumulators["a"].emitted == 6
    assert numbers == [1, 2, 3, 4, 5, 6]


# -- state, windows


class Total(tm.Boundary):
    """A running sum."""

    sum: int = 0
    count: int = 0


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("is_async", [False, True])
async def test_running_state_is_restored(store: str, durability: Any, is_async: bool) -> None:
    """Behaviour 21, API: state= on every kind but window; None leaves it."""

    def add(event: int, state: Total) -> Total | None:
        return Total(state.sum + event, state.count + 1) if event else None

    async def add_later(event: int, state: Total) -> Total | None:
        return add(event, state)

    chosen = add_later if is_async else add
    chosen.__name__ = "total"
    reactor = tm.Reactor("r", [tm.passthrough(state=Total)(chosen)], durability=durability)
    async with tm.testing.node(store=store, load=[reactor]) as node:
        for event in (1, 2, 0):
            await node.push("total", event)
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache == {"total": {"sum": 3, "count": 2}}
        await node.push("total", 4)
        assert node.reactor("r").state().cache == {"total": {"sum": 7, "count": 3}}


def windowed(capacity: int = 3, **options: Any) -> tuple[list[Any], list[list[int]]]:
    """Return reactor `r` over `a` and window `past`, whose graph feeds `a` to it, and what the graph saw of it."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    past = tm.window("past", int, capacity=capacity)
    reactor = tm.Reactor("r", [a, past], **options)
    graph = tm.Graph("g", reactor=reactor)
    seen: list[list[int]] = []

    @graph.node
    def look(past: list[int]) -> None:
        seen.append(past)

    @graph.node(feeds=past)
    def keep(a: int | None) -> int | None:
        return a

    return [reactor, graph], seen


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_window_that_its_own_graph_feeds_is_restored(store: str, durability: Any, strategy: Any) -> None:
    """G-23, behaviour 19 as settled: with its content, without a firing."""
    load, seen = windowed(durability=durability, strategy=strategy)
    async with tm.testing.node(store=store, load=load) as node:
        for value in (1, 2, 3, 4):
            await node.push("a", value)
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 4, "past": [2, 3, 4]}
        await node.push("a", 5)
        await node.settle()
        assert node.reactor("r").state().cache == {"a": 5, "past": [3, 4, 5]}
    assert seen[-2:] == [[1, 2, 3], [2, 3, 4]]


@pytest.mark.parametrize("durability", KEPT)
async def test_a_window_pushed_to_from_outside_is_restored_with_its_flag(store: str, durability: Any) -> None:
    """G-5, G-23: also while nothing may fire."""
    load, seen = windowed(durability=durability)
    async with tm.testing.node(store=store, load=load) as node:
        await node.reactor("r").pause()
        await node.push("past", 7)
        await node.push("past", 8)
        await node.settle()
        node = await node.crash()
        state = node.reactor("r").state()
        await node.reactor("r").resume()
        await node.settle()
        assert (await node.push("past", 9)).sequence == 3
    assert (state.cache, state.dirty) == ({"past": [7, 8]}, {"a": False, "past": True})
    assert seen == [[7, 8], [7, 8, 9]]


@pytest.mark.parametrize("capacity", [0, -1, 2])
async def test_a_window_of_any_capacity_is_restored(store: str, capacity: int) -> None:
    """Behaviours 16-18: over a crash the capacity means the same."""
    load, _ = windowed(capacity, durability="boundary")
    async with tm.testing.node(store=store, load=load) as node:
        for value in (1, 2, 3):
            await node.push("past", value)
        node = await node.crash()
        shown = node.reactor("r").state().cache["past"]
    assert shown == {0: [], -1: [1, 2, 3], 2: [2, 3]}[capacity]


# -- pauses, and firings that were under way


async def test_a_pause_outlives_the_process_and_so_does_its_end(store: str) -> None:
    """API, G-13: in every durability, "none" too; a pause keeps accumulating, a resume evaluates at once."""
    sample = single(durability="interval")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.reactor("r").pause()
        node = await node.crash()
        assert node.reactor("r").state().paused
        await node.push("a", 1)
        await node.settle()
        node = await node.crash()
        assert (node.reactor("r").state().paused, sample.seen) == (True, [])
        await node.reactor("r").resume()
        await node.settle()
        node = await node.crash()
        await node.push("a", 2)
        assert not node.reactor("r").state().paused
    assert sample.seen == [1, 2]


async def test_a_pause_is_kept_without_durability(store: str) -> None:
    """API: a pause outlives the process, regardless of the inputs."""
    sample = single(durability="none")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.reactor("r").pause()
        node = await node.crash()
        await node.push("a", 1)
        assert (node.reactor("r").state().paused, sample.seen) == (True, [])


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_pending_retry_survives(store: str, durability: Any, strategy: Any) -> None:
    """G-15, G-24: same id, next attempt, only the graphs that failed; sequential holds its queue behind it."""
    mood = {"bad": True}
    options = {"strategy": strategy, "durability": durability, "on_error": tm.Retry(3, delay="10s")}
    sample = single(raising(when=lambda value: mood["bad"] and value == 1), **options)
    load = [*sample.load, observer(sample.reactor)]
    async with tm.testing.node(store=store, load=load) as node:
        await node.push("a", 1)
        (first,) = node.reactor("r").firings()
        await node.settle()
        mood["bad"] = False
        node = await node.crash()
        await node.advance("20s")
        await node.settle()
        (again,) = node.reactor("r").firings()
        assert await node.reactor("r").dead_letters() == []
    assert (again.id, again.attempt, again.ok, set(again.results)) == (first.id, 2, True, {"g"})
    assert sample.seen == [1, 1]


@pytest.mark.parametrize("is_older", [False, True])
async def test_commits_that_events_shared_are_restored_in_order(tmp_path: Path, is_older: bool) -> None:
    """G-24: also from the journal of an older Tidemill, which had a row for each event; none is missing."""
    sample = pair(durability="boundary", strategy="sequential")
    async with tm.testing.node(f"sqlite:///{tmp_path}/living.db", load=sample.load) as node:
        await node.reactor("r").pause()
        await asyncio.gather(*(node.push("ab"[number % 2], number) for number in range(6)))
        await node.push("a", 6)
        copy(tmp_path / "living.db", tmp_path / "left.db")
    change(tmp_path / "left.db", "UPDATE part_owners SET owner = NULL")
    assert rows(tmp_path / "left.db", "SELECT accumulator, position FROM journal") == [("a", 5), ("a", 7), ("b", 6)]
    if is_older:
        make_version_20(tmp_path / "left.db")
    async with tm.testing.node(f"sqlite:///{tmp_path}/left.db", load=sample.load) as node:
        await node.reactor("r").resume()
        await node.settle()
        assert sample.seen == [(0, None), (0, 1), (2, 1), (2, 3), (4, 3), (4, 5), (6, 5)]
        assert [firing.id.rpartition("-")[2] for firing in node.reactor("r").firings()][::-1] == list("1234567")
        report = await look_at(tmp_path / "left.db")
    assert (report.journal_entries, report.findings) == (7, [])
