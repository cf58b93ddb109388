"""A keyed reactor on one node: it runs as partitions, and looks like one reactor."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, KeyedSample, Order, keyed, order, running_partitions
from tidemill.access.principal import Caller
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.graphs.keys import partition_of
from tidemill.graphs.pushes import ProducerPosition

PUBLIC = Caller("public", "test")
KEYS = [f"key {number}" for number in range(20)]


def assert_consistent(node: tm.testing.TestNode) -> None:
    """G-27: the scheduler and the registry agree."""
    reactors, accumulators = node._scheduler.loaded.running_keys()
    assert reactors == {("public", name) for name in node.registry.reactors()}
    assert accumulators == {("public", name) for name in node.registry.accumulators()}


async def test_it_is_one_reactor_with_all_partitions() -> None:
    """G-27: the registry has its declared names, and its state has all partitions."""
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        assert running_partitions(node) == list(range(PARTITIONS))
        assert node.registry.reactors() == ["orders"]
        assert node.registry.accumulators() == ["placed"]
        assert node.registry.endpoints() == ["accumulators/placed", "reactors/orders"]
        assert_consistent(node)
        state = node.reactor("orders").state()
        assert (state.name, state.health) == ("orders", "live")
        assert [one.number for one in state.partitions] == list(range(PARTITIONS))
        assert [one.name for one in await node.graph_client.list_reactors(PUBLIC)] == ["orders"]
        assert [one.name for one in await node.graph_client.list_accumulators(PUBLIC)] == ["placed"]


async def test_events_reach_the_partition_of_their_key_in_order() -> None:
    """G-1, G-11: in order for each key; counters are summed over the partitions."""
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        for number in range(5):
            for key in KEYS:
                assert (await node.push("placed", order(key, number))).accepted
        await node.settle()
        assert sample.seen == {key: list(range(5)) for key in KEYS}
        state = node.reactor("orders").state()
        assert (state.fires, state.accumulators["placed"].emitted) == (100, 100)
        used = {partition_of(key, PARTITIONS) for key in KEYS}
        assert {one.number for one in state.partitions if one.fires} == used
        assert node.metrics()["reactor_fires_total"] == 100


async def test_the_receipts_of_a_push_are_in_the_given_order() -> None:
    """G-4: sequences count the events of each partition; what does not fit is a dead letter."""
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        other = next(key for key in KEYS if partition_of(key, PARTITIONS) not in (0, partition_of("a", PARTITIONS)))
        events = [order("a", 1), order(other, 2), {"no": "key"}, order("a", 3), order("a", -1)]
        summary = await node.push_many("placed", events)
        assert [one.outcome for one in summary.receipts] == [
            "emitted", "emitted", "dead_lettered", "emitted", "suppressed",
        ]  # fmt: skip
        assert [one.sequence for one in summary.receipts][::3] == [1, 2]
        await node.settle()
        assert sample.seen == {"a": [1, 3], other: [2]}
        letters = await node.reactor("orders").dead_letters()
        assert [one.event for one in letters] == [{"no": "key"}]
        assert [one.id for one in await node.graph_client.dead_letters.list_of(PUBLIC, "accumulator", "placed")] == [
            letters[0].id
        ]
        reactor = node.reactor("orders")
        assert (await reactor.dead_letter(letters[0].id)).event == {"no": "key"}
        assert (await reactor.replay(letters[0].id, {"no": "key, too"})).outcome == "dead_lettered"
        assert (await reactor.replay(letters[0].id, order(other, 5))).outcome == "emitted"
        assert sample.seen[other] == [2, 5]
        (letter,) = await reactor.dead_letters()
        await reactor.drop(letter.id)
        assert await reactor.dead_letters() == []
        with pytest.raises(tm.RequestError, match="there is no dead letter"):
            await node.graph_client.dead_letters.drop(PUBLIC, "reactor", "orders", letters[0].id)


async def test_a_numbered_push_is_applied_once() -> None:
    """G-24: a repetition gets the same receipts, in every partition."""
    sample = keyed(durability="boundary")
    async with tm.testing.node("memory://", load=sample.load) as node:
        events = [order(key, 1) for key in KEYS]
        first = await node.push_many("placed", events, position=ProducerPosition("p", 1))
        again = await node.push_many("placed", events, position=ProducerPosition("p", 1))
        assert (again.receipts, again.is_duplicate) == (first.receipts, True)
        await node.settle()
        assert sample.seen == {key: [1] for key in KEYS}


async def test_a_push_that_some_partitions_have_is_repeated() -> None:
    """G-24: a node may die between the partitions of a push; its producer does not continue after that push."""
    sample = keyed(durability="boundary")
    first, second = KEYS[0], next(key for key in KEYS if _partition(key) != _partition(KEYS[0]))
    async with tm.testing.node("memory://", load=sample.load) as node:
        assert await node.graph_client.last_position(PUBLIC, "placed", "p") is None
        for number in (1, 2):
            events = [order(first, number), order(second, number)]
            taken = events if number == 1 else events[:1]  # of the second push only one partition has its events
            await node.push_many("placed", taken, position=ProducerPosition("p", number))
        resumed = await node.graph_client.last_position(PUBLIC, "placed", "p")
        assert resumed == 1
        await node.push_many("placed", events, position=ProducerPosition("p", 2))
        await node.settle()
        assert sample.seen == {first: [1, 2], second: [1, 2]}


def _partition(key: str) -> int:
    return partition_of(key, PARTITIONS)


async def test_a_handle_pushes_to_the_partition_of_the_key() -> None:
    """G-1: without await, for hot loops."""
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("placed")
        assert [push(Order("a", number)) for number in range(3)] == [1, 2, 3]
        await node.settle()
        assert sample.seen == {"a": [0, 1, 2]}


async def test_firings_of_all_partitions_are_listed_newest_first() -> None:
    """G-16: in pages, too."""
    sample = keyed()
    async with tm.testing.node(load=sample.load) as node:
        for number, key in enumerate(KEYS):
            await node.push("placed", order(key, number))
            await node.advance("1s")
        firings = node.reactor("orders").firings(5)
        assert [one.inputs["placed"].number for one in firings] == [19, 18, 17, 16, 15]
        assert {one.reactor for one in firings} == {"orders"}
        page = await node.graph_client.firings(PUBLIC, "orders", 3)
        following = await node.graph_client.firings(PUBLIC, "orders", 3, page.firings[-1].id)
        shown = [one.inputs["placed"]["number"] for one in (*page.firings, *following.firings)]
        assert shown == [19, 18, 17, 16, 15, 14]
        assert (page.kept, page.has_more) == (20, True)
        assert (await node.reactor("orders").next_firing(1)).inputs["placed"].number == 0
        assert sum(await node.graph_client.timeseries(PUBLIC, "orders")) == 20
        assert "firings" in (await node.graph_client.courses(PUBLIC, "orders", 5)).values


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_firings_of_the_same_time_are_listed_in_their_order(durability: str) -> None:
    """G-16: the clock stands still, and each manual firing may begin another series of ids."""
    sample = keyed(durability=durability)
    async with tm.testing.node("memory://", load=sample.load) as node:
        orders = node.reactor("orders")
        for number in range(0, 24, 2):
            await node.push("placed", order("a", number))
            await orders.fire_with({"placed": order("a", number + 1)}, key="a")
        await node.settle()
        assert sample.seen == {"a": list(range(24))}
        listed = [one.inputs["placed"].number for one in orders.firings(5)]
        assert listed == [one.inputs["placed"].number for one in orders.firings(5, key="a")] == [23, 22, 21, 20, 19]
        page = await node.graph_client.firings(PUBLIC, "orders", 3)
        following = await node.graph_client.firings(PUBLIC, "orders", 3, page.firings[-1].id)
        shown = [one.inputs["placed"]["number"] for one in (*page.firings, *following.firings)]
        assert shown == [23, 22, 21, 20, 19, 18]


@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
async def test_its_state_outlives_a_crash(durability: Any) -> None:
    """G-24: what was written is restored, partition by partition."""
    sample = keyed(durability=durability)
    async with tm.testing.node("memory://", load=sample.load) as node:
        await node.reactor("orders").pause()
        for number in range(3):
            for key in KEYS:
                await node.push("placed", order(key, number))
        await node.settle()
        successor = await node.crash()
        assert successor.reactor("orders").state().paused, "the pause of a reactor is that of its partitions"
        await successor.reactor("orders").resume()
        await successor.settle()
        assert sample.seen == ({} if durability == "none" else {key: [0, 1, 2] for key in KEYS})


async def test_a_hot_swap_keeps_the_inputs_of_each_partition() -> None:
    """G-19: graphs are bound to the partitions that run."""
    sample, newer = keyed(durability="fire"), keyed(durability="fire")
    async with tm.testing.node("memory://", load=[]) as node:
        await node.load(_module("shop", sample))
        await node.reactor("orders").pause()
        for key in KEYS:
            await node.push("placed", order(key, 1))
        await node.load(_module("shop", newer))
        assert_consistent(node)
        await node.push("placed", order("key 0", 2))
        await node.reactor("orders").resume()
        await node.settle()
        assert (sample.seen, newer.seen.pop("key 0")) == ({}, [1, 2])
        assert newer.seen == {key: [1] for key in KEYS[1:]}


async def test_after_loads_and_unloads_nothing_is_left() -> None:
    """G-27, G-28: also of a load that fails, and of another number of partitions."""
    async with tm.testing.node("memory://") as node:
        for partitions, durability in ((8, "none"), (4, "none"), (8, "fire")):
            name = await node.load(_module("shop", keyed(partitions=partitions, durability=durability)))
            assert running_partitions(node) == list(range(partitions))
            assert_consistent(node)
        await node.unload(name)
        assert_consistent(node)
        assert (node.registry.reactors(), list(node._scheduler.loaded.reactors)) == ([], [])
        assert await node.store.part_owners.owned_names("public", "reactor") == []


async def test_an_accumulator_belongs_to_one_keyed_reactor() -> None:
    """A second reactor would need the state of each key as well."""
    sample = keyed()
    other = tm.Reactor("other", sample.reactor.accumulators)
    async with tm.testing.node() as node:
        with pytest.raises(tm.DefinitionError, match="belongs to the keyed reactor 'orders' alone"):
            await node.load(_module("shop", sample, other=other))
        assert_consistent(node)


async def test_a_reactor_becomes_keyed_and_unkeyed_again() -> None:
    """A changed contract: the reactor is replaced."""
    async with tm.testing.node() as node:
        for options in ({}, {"key": None, "partitions": None}, {}):
            sample = keyed(**options)
            await node.load(_module("shop", sample))
            assert_consistent(node)
            await node.push("placed", order("a", 1))
            await node.settle()
            assert sample.seen == {"a": [1]}


def feeding(sample: KeyedSample, key_of: Callable[[int], str]) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor over accumulator `raw`, and a graph that feeds the keyed one with an order for each number."""

    @tm.passthrough
    def raw(event: int) -> int:
        return event

    source = tm.Reactor("source", [raw])
    graph = tm.Graph("split", reactor=source)

    @graph.node(feeds=sample.reactor.accumulators[0])
    def split(raw: int) -> Order:
        return Order(key_of(raw), raw)

    return source, graph


async def test_a_result_that_is_fed_reaches_the_partition_of_its_key() -> None:
    """G-1: a graph of another reactor pushes into a keyed one."""
    sample = keyed()
    async with tm.testing.node(load=[*sample.load, *feeding(sample, lambda raw: f"key {raw % 3}")]) as node:
        for number in range(6):
            await node.push("raw", number)
        await node.settle()
        assert sample.seen == {f"key {number}": [number, number + 3] for number in range(3)}


async def test_a_fed_result_waits_for_a_partition_that_is_down() -> None:
    """G-4, G-14: the partition rejects it, and it is pushed again until it is taken."""
    sample = keyed()
    async with tm.testing.node(load=[*sample.load, *feeding(sample, lambda _: "key")]) as node:
        for number in range(PARTITIONS):
            node.probe.graphs.accumulator(f"placed[{number}]").crash(OSError("gone"))
        for number in range(3):
            await node.push("raw", number)
        await node.settle()
        assert sample.seen == {}
        await node.advance("5s")  # the supervisor has restarted it
        await node.settle()
        assert sample.seen == {"key": [0, 1, 2]}


async def test_a_misplaced_event_waits_for_the_partition_of_its_key() -> None:
    """G-4, G-6: the offset of the topic does not pass it before; without the accumulator as a whole, reading fails."""

    @tm.stream(tm.Kafka(topic="orders", servers="nowhere"))
    def placed(event: Order) -> Order:
        return event

    reactor = tm.Reactor("orders", [placed], strategy="sequential", key="key", partitions=2)
    async with tm.testing.node(load=[reactor]) as node:
        number = partition_of("key", 2)
        target = node.probe.graphs.accumulator(f"placed[{number}]")
        reader = node.probe.graphs.accumulator(f"placed[{1 - number}]").kind
        assert isinstance(reader, KeyedStream)
        target.crash(OSError("gone"))
        async with asyncio.TaskGroup() as group:
            work = reader.on_events([(order("key", 1), "offset 1")])
            delivery = group.create_task(work, name="misplaced event")
            await node.settle()
            assert (reader.emitter.offset, delivery.done()) == (None, False)
            await node.advance("5s")  # the supervisor has restarted the other partition
            await delivery
        assert (target.emitter.sequence, reader.emitter.offset) == (1, "offset 1")
        whole = node._scheduler.loaded.keyed_accumulators.pop(("public", "placed"))
        with pytest.raises(tm.OperationError, match="'placed' is not loaded as a whole"):
            await reader.on_events([(order("key", 2), "offset 2")])
        assert reader.emitter.offset == "offset 1"
        node._scheduler.loaded.keyed_accumulators["public", "placed"] = whole


def _module(name: str, sample: KeyedSample, **more: Any) -> Any:
    """Return a module with the definitions of a sample."""
    module = ModuleType(name)
    module.__dict__.update(reactor=sample.reactor, graph=sample.graph, **more)
    return module


async def test_a_restart_with_another_number_of_partitions_is_refused() -> None:
    """G-23: the stored keys are in the partitions that they had; started elsewhere, they would silently be empty."""
    sample, other = keyed(partitions=4, durability="fire"), keyed(partitions=8, durability="fire")
    store = "memory://another number of partitions"
    async with tm.testing.node(store, load=[]) as observer:
        async with tm.testing.node(store, load=sample.load, clock=observer.clock) as node:
            for key in KEYS:
                await node.push("placed", order(key, 1))
            await node.settle()
        with pytest.raises(tm.OperationError, match=r"'orders' in 4 partitions, and the reactor has 8"):
            await tm.testing.node(store, load=other.load, clock=observer.clock).__aenter__()
        assert await observer.store.part_owners.owned_names("public", "reactor") == []


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_fewer_partitions_than_before_a_crash_are_refused(tmp_path: Path, durability: Any) -> None:
    """G-23: also if only a partition is stored that the new version does not have."""
    store, key = f"memory://{tmp_path.name}", next(key for key in KEYS if partition_of(key, 8) >= 4)
    async with tm.testing.node(store) as observer:
        async with tm.testing.node(store, load=keyed(durability=durability).load) as node:
            await node.push("placed", order(key, 1))
            await node.advance("1s")
            await node.kill()
        with pytest.raises(tm.OperationError, match=r"'orders' in 8 partitions, and the reactor has 4"):
            await tm.testing.node(store, load=keyed(partitions=4, durability=durability).load).__aenter__()
        await observer.load(_module("shop", keyed(partitions=4, durability="none")))
        assert observer.registry.reactors() == ["orders"], "one that reads no stored state may have any number"


async def test_a_reload_with_another_number_of_partitions_is_refused() -> None:
    """G-23: as a start is, with the same words; the running version goes on."""
    async with tm.testing.node("memory://") as node:
        await node.load(_module("shop", keyed(partitions=8, durability="interval")))
        await node.push("placed", order(KEYS[0], 1))  # not written yet
        with pytest.raises(tm.OperationError, match=r"'orders' in 8 partitions, and the reactor has 4 now"):
            await node.load(_module("shop", keyed(partitions=4, durability="interval")))
        assert running_partitions(node) == list(range(8))
        assert_consistent(node)
        assert (await node.reactor("orders").state_of(KEYS[0])).cache["placed"]["number"] == 1
        await node.load(_module("shop", keyed(partitions=4, durability="none")))
        assert running_partitions(node) == list(range(4)), "one that reads no stored state may have any number"


async def test_a_node_that_hosts_nothing_says_where_to_wait() -> None:
    """A firing is awaited on a node that runs partitions."""
    async with tm.testing.node("memory://", load=keyed().load, settings={"partition_weight": 0}) as node:
        assert running_partitions(node) == []
        with pytest.raises(tm.RequestError, match="wait on a node that runs some"):
            await node.reactor("orders").next_firing(1)


async def test_faults_of_tests_reach_every_partition() -> None:
    """G-8, G-19: a keyed reactor fires only when its accumulators are connected, and recovers from its crashes."""
    sample = keyed()
    async with tm.testing.node(load=sample.load, disconnected=["placed"]) as node:
        reactor = node.reactor("orders")
        await node.push("placed", order("a", 1))
        assert (reactor.state().health, reactor.state().fires) == ("warming", 0)
        await node.reconnect("placed")
        assert (reactor.state().health, reactor.state().fires) == ("live", 1)
        await node.disconnect("placed")
        assert reactor.state().health == "degraded"
        await node.reconnect("placed")
        await node.break_accumulator("placed")
        assert (await node.push("placed", order("a", 2))).outcome == "rejected"
        await node.advance("2s")
        await node.break_reactor("orders")
        assert reactor.state().health != "live"
        await node.advance("5s")
        assert (reactor.state().health, reactor.state().accumulators["placed"].health) == ("live", "socket_only")
