"""Handles of a keyed reactor's accumulator: what they remember of each key changes nothing but the speed."""

import asyncio
from enum import IntEnum
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.service.keyed_samples import Order, keyed, order, running_partitions
from tidemill.engine.graphs.push_paths import by_partition
from tidemill.graphs.keys import check_key, partition_of

PARTITIONS = 4
KEYS = [f"key {number}" for number in range(20)]


class Side(IntEnum):
    """An enumeration whose members are the same keys as their values."""

    BUY = 1


class Given(tm.Boundary):
    """An event with any value as its key."""

    key: Any


EQUAL_KEYS = [1, True, 1.0, Side.BUY, 0, False, (1, "a"), (True, "a"), (1.0, "a"), (1, (True,)), (1, (1,))]
ANY_KEY = st.sampled_from([*EQUAL_KEYS, "a", "", b"a", None, (), [1], {}, 2**70, "x" * 2000])
EVENT = ANY_KEY.map(Given) | ANY_KEY.map(lambda key: {"key": key}) | st.sampled_from([b'{"key": 1}', b"{", 7, None])
STOP_OR_START = st.integers(0, PARTITIONS - 1)
STEPS = st.lists(st.tuples(st.just("push"), EVENT) | st.tuples(st.just("move"), STOP_OR_START), min_size=5, max_size=40)


async def run(steps: list[tuple[str, Any]], event_type: Any, partitions: int, *, remembers: bool) -> list[Any]:
    """Push the events of some steps, and stop and start partitions; return all that can be seen of it."""

    @tm.passthrough
    def given_events(event: event_type) -> Any:
        return event

    seen: list[Any] = []
    reactor = tm.Reactor("any", [given_events], key=lambda event: event.key, partitions=partitions)
    graph = tm.Graph("see", reactor=reactor)

    @graph.node
    def see(given_events: Any) -> int:
        check_key(given_events.key)  # else it is a dead letter
        seen.append(repr(given_events.key))
        return 1

    async with tm.testing.node(load=[reactor, graph]) as node:
        scheduler, push = node._scheduler, node.handle("given_events")
        loaded = scheduler.loaded.keyed["public", "any"]
        for step, value in steps:
            if step == "push":
                if not remembers:
                    scheduler.loaded.front_path("public", "given_events").forget()
                try:
                    seen.append(push(value))
                except tm.RequestError as error:
                    seen.append(error.code)
            elif (number := value % partitions) in {one.number for one in node.reactor("any").state().partitions}:
                await scheduler.stop_partition(loaded, number)
            else:
                await scheduler.start_partitions(loaded, [number])
        await node.settle()
        assert not any(one.firing_loop.results.failures for one in scheduler.loaded.reactors)
        totals = {one.name: (one.kind.event_count, one.dead_letters.total) for one in scheduler.loaded.accumulators}
        return [seen, totals]


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
@pytest.mark.parametrize("event_type", [Given, Any])
@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_what_a_handle_remembers_changes_nothing(
    event_type: Any, partitions: int, steps: list[tuple[str, Any]]
) -> None:
    """G-1: keys of other classes, events that do not fit, and partitions that stop and start."""
    repeated = [*steps, *steps]  # the second time it knows the keys
    expected = asyncio.run(run(repeated, event_type, partitions, remembers=False))
    assert asyncio.run(run(repeated, event_type, partitions, remembers=True)) == expected


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
@pytest.mark.parametrize(
    ("key", "equal"),
    [(1, 1.0), (1, True), ((1, "a"), (True, "a")), ((1, "a"), (1.0, "a")), ((1, (1,)), (1, (True,)))],
)
async def test_what_equals_a_key_is_not_that_key(key: Any, equal: Any, partitions: int) -> None:
    """G-1: it is no valid key, and becomes a dead letter of the first partition, also when the key is known."""
    steps = [("push", Given(one)) for one in (key, key, key, equal, key)]
    seen, totals = await run(steps, Given, partitions, remembers=True)
    assert seen == [repr(key), 1, repr(key), 2, repr(key), 3, None, repr(key), 4]
    dead_letters = {name: dead for name, (_, dead) in totals.items() if dead}
    assert dead_letters == {"given_events[0]": 1}


async def test_a_handle_follows_the_partitions_that_move(tmp_path: Any) -> None:
    """G-1: it takes events of the partitions that run here, and refuses those of others, whatever it took before."""
    sample, address = keyed(durability="fire"), f"memory://{tmp_path.name}"

    def push_all(node: tm.testing.TestNode) -> set[int]:
        taken = set()
        for key in KEYS * 2:
            try:
                assert handle(Order(key, 1)) is not None
                taken.add(partition_of(key, 8))
            except tm.RequestError as error:
                if error.code != "needs_push":
                    raise
        used = {partition_of(key, 8) for key in KEYS}
        assert taken == used & set(running_partitions(node))
        return taken

    async with tm.testing.node(address, load=sample.load) as first:
        handle = first.handle("placed")
        everything = push_all(first)
        async with tm.testing.node(address, load=sample.load) as second:
            while len(running_partitions(second)) < 4:
                await first.advance("200ms")
                await second.advance("200ms")
            assert push_all(first) < everything
        while len(running_partitions(first)) < 8:
            await first.advance("200ms")
        with pytest.raises(tm.RequestError, match="not in memory"):
            push_all(first)
        for key in KEYS:
            await first.push("placed", order(key, 1))
        assert push_all(first) == everything


def _module(sample: Any) -> ModuleType:
    module = ModuleType("shop")
    module.__dict__.update(orders=sample.reactor, ledger=sample.graph)
    return module


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
async def test_a_handle_outlives_a_reload_with_another_key(partitions: int) -> None:
    """G-22: it routes by the newer key function."""
    sample = keyed(partitions=partitions)
    newer = keyed(partitions=partitions, key=lambda event: f"newer {event.key}")
    async with tm.testing.node() as node:
        await node.load(_module(sample))
        push = node.handle("placed")
        for key in KEYS:
            push(Order(key, 1))
        await node.load(_module(newer))
        for key in KEYS * 2:
            push(Order(key, 2))
        await node.settle()
        assert newer.seen == {key: [2, 2] for key in KEYS}
        firings = node.reactor("orders").firings(100)
        fired = {one.key for one in firings if isinstance(one.inputs["placed"], Order)}  # not of the older one
        assert fired == {f"newer {key}" for key in KEYS}
        counted = {one.number: one.keys.active for one in node.reactor("orders").state().partitions if one.keys}
        names = {partition_of(f"newer {key}", partitions) for key in KEYS}
        assert names <= {number for number, active in counted.items() if active}


async def test_a_handle_of_a_closed_node_says_so() -> None:
    """G-1: as the handle of any other accumulator."""
    async with tm.testing.node(load=keyed().load) as node:
        push = node.handle("placed")
        assert push(Order("a", 1)) == 1
    with pytest.raises(tm.RequestError, match="no longer running") as raised:
        push(Order("a", 2))
    assert raised.value.code == "not_running"


async def test_a_handle_remembers_a_limited_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """G-1: more keys than that are pushed as well."""
    monkeypatch.setattr(by_partition, "MAX_KNOWN_HANDLES", 3)
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("placed")
        for key in KEYS:
            push(Order(key, 1))
            push(order(key, 2))
            assert len(node._scheduler.loaded.front_path("public", "placed")._handles) <= 3
        await node.settle()
        assert sample.seen == {key: [1, 2] for key in KEYS}


KEYED_EVENTS = st.builds(Order, st.sampled_from("xyz"), st.sampled_from([-1, 1, 2, 13])) | st.sampled_from(
    ["no order", {"key": "x", "number": 3}, b'{"key": "y", "number": 4}']
)


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
@settings(max_examples=15)
@given(events=st.lists(KEYED_EVENTS, max_size=20))
def test_every_way_to_push_keyed_events_gives_the_same(partitions: int, strategy: Any, events: list[Any]) -> None:
    """G-1, G-4: receipts, firings by key, failures and dead letters, also by the generated loop of many events."""

    def check(placed: Order) -> None:
        if placed.number == 13:
            raise ValueError("13")

    async def play(way: str) -> Any:
        sample = keyed(check, partitions=partitions, strategy=strategy)
        async with tm.testing.node(load=sample.load) as node:
            for key in "xyz":
                await node.push("placed", Order(key, 0))
            if way == "push":
                receipts = [await node.push("placed", event) for event in events]
            elif way == "push_many":
                receipts = list((await node.push_many("placed", events)).receipts)
            else:
                receipts = list(node.handle("placed").many(events).receipts)
            state = node.reactor("orders").state()
            letters = sorted(one.error for one in await node.reactor("orders").dead_letters())
            outcomes = [(one.outcome, one.reason) for one in receipts]
            return outcomes, sample.seen, state.fires, state.failures, letters

    expected, *others = [asyncio.run(play(way)) for way in ("push", "push_many", "many")]
    assert others == [expected, expected]


async def test_many_events_by_a_keyed_handle_say_how_many_were_taken() -> None:
    """API: `taken` counts over the partitions, and the rest can be pushed after it."""
    sample = keyed(capacity=2, overflow="block")
    orders = [Order(key, number) for number in range(1, 5) for key in "xyz"]
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("orders").pause()
        with pytest.raises(tm.FullError) as full:
            node.handle("placed").many(orders)
        await node.reactor("orders").resume()
        summary = node.handle("placed").many(orders[full.value.taken :])
    assert (full.value.taken, summary.counts) == (6, {"emitted": 6})
    assert sample.seen == {key: [1, 2, 3, 4] for key in "xyz"}
