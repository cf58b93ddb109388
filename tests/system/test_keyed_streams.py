"""Keyed reactors that read sources: a Kafka topic is split as the keys are, and any other source is read once."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import RetentionPolicy

import tidemill as tm
from tests.service.keyed_samples import order, running_partitions
from tests.system.brokers import KafkaCluster, nats_server
from tidemill.engine.graphs.sources import kafka
from tidemill.graphs.keys import partition_of

TOPIC_PARTITIONS = 4  # of librdkafka's mock
KEYS = [f"key {number}" for number in range(12)]


class Order(tm.Boundary):
    """An event with a key."""

    key: str
    number: int


class Numbers:
    """A source of an author: yields orders of all keys, and continues after its checkpoint."""

    replays = True

    def __init__(self, count: int) -> None:
        self.count = count
        self.starts: list[Any] = []

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Yield orders with their numbers as checkpoints, then wait."""
        self.starts.append(checkpoint)
        for number in range((checkpoint or 0) + 1, self.count + 1):
            yield order(KEYS[number % len(KEYS)], number), number
        await asyncio.Event().wait()


def reader(source: Any, **options: Any) -> tuple[list[Any], dict[str, list[int]]]:
    """Return a keyed reactor on a stream, and what its graph sees of each key."""

    @tm.stream(source)
    def placed(event: Order) -> Order:
        return event

    reactor = tm.Reactor("orders", [placed], strategy="sequential", key="key", **options)
    graph = tm.Graph("ledger", reactor=reactor)
    seen: dict[str, list[int]] = {}

    @graph.node
    def enter(placed: Order) -> int:
        seen.setdefault(placed.key, []).append(placed.number)
        return placed.number

    return [reactor, graph], seen


async def until(holds: Callable[[], bool], *nodes: tm.Node) -> None:
    """Wait for something that real time brings about."""
    for _ in range(2_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError([running_partitions(node) for node in nodes])


def payload(key: str, number: int) -> bytes:
    return json.dumps(order(key, number)).encode()


async def test_the_partitions_of_a_kafka_topic_follow_the_keys() -> None:
    """G-6: each partition reads its share of the topic; an event in a wrong partition is passed on."""
    cluster = await asyncio.to_thread(KafkaCluster)
    for key in KEYS:
        payloads = [payload(key, number) for number in range(3)]
        partition = partition_of(key, TOPIC_PARTITIONS)
        await asyncio.to_thread(cluster.produce, "orders", *payloads, partition=partition)
    wrong = (partition_of(KEYS[0], TOPIC_PARTITIONS) + 1) % TOPIC_PARTITIONS
    await asyncio.to_thread(cluster.produce, "orders", payload(KEYS[0], 9), partition=wrong)
    load, seen = reader(tm.Kafka(topic="orders", servers=cluster.servers), partitions=2)
    async with tm.Node(load=load) as node:
        await until(lambda: sum(map(len, seen.values())) == 3 * len(KEYS) + 1)
        assert {key: [number for number in numbers if number < 9] for key, numbers in seen.items()} == {
            key: [0, 1, 2] for key in KEYS
        }
        assert seen[KEYS[0]].count(9) == 1
        assert node.reactor("orders").state().accumulators["placed"].events == 3 * len(KEYS) + 1


async def test_a_topic_that_cannot_be_split_is_refused() -> None:
    """Its number of partitions is no multiple of the reactor's: the accumulator fails, and says why."""
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "orders", payload("a", 1))
    load, _ = reader(tm.Kafka(topic="orders", servers=cluster.servers), partitions=3)
    async with tm.Node(load=load) as node:

        def state() -> tm.AccumulatorState:
            return node.reactor("orders").state().accumulators["placed"]

        await until(lambda: state().health == "failed")
        assert "has 4 partitions, and the reactor has 3" in (state().reason or "")


async def test_a_source_that_cannot_be_split_is_read_once() -> None:
    """G-6: one node reads it, and pushes each event to the partition of its key."""
    source = Numbers(60)
    load, seen = reader(source, partitions=8)
    async with tm.Node(load=load):
        await until(lambda: sum(map(len, seen.values())) == 60)
        assert seen == {KEYS[key]: [number for number in range(1, 61) if number % 12 == key] for key in range(12)}
        assert source.starts == [None]


async def test_a_poll_is_made_once_for_all_partitions() -> None:
    """Each answer goes to the partition of its key."""
    numbers = iter(range(1, 1_000))

    @tm.polling(every="1s")
    def placed() -> Order:
        number = next(numbers)
        return Order(KEYS[number % 3], number)

    reactor = tm.Reactor("orders", [placed], strategy="sequential", key="key")
    graph = tm.Graph("ledger", reactor=reactor)
    seen: dict[str, list[int]] = {}

    @graph.node
    def enter(placed: Order) -> None:
        seen.setdefault(placed.key, []).append(placed.number)

    async with tm.testing.node(load=[reactor, graph]) as node:
        await node.advance("6s")
        await node.settle()
    assert seen == {KEYS[1]: [1, 4], KEYS[2]: [2, 5], KEYS[0]: [3, 6]}


async def test_a_source_that_is_lost_degrades_the_reactor() -> None:
    """G-9: as without a key, although one node reads for all partitions."""

    class Lost:
        """A source that cannot be reached."""

        async def start(self, checkpoint: Any) -> AsyncIterator[tuple[Any, Any]]:
            """Yield one event, then fail."""
            yield order("a", 1), 1
            raise tm.sources.Disconnected("the line is dead")

    load, seen = reader(Lost(), partitions=2)
    async with tm.Node(load=load) as node:
        await until(lambda: node.reactor("orders").state().health == "degraded")
        state = node.reactor("orders").state()
        assert (state.disconnected, seen["a"][0]) == (["placed"], 1)
        assert "the line is dead" in (state.accumulators["placed"].reason or "")


async def test_partitions_that_a_topic_gets_later_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """G-6: without a restart, from their beginning, each event once. The broker shows half of the topic first."""
    cluster, shown = await asyncio.to_thread(KafkaCluster), TOPIC_PARTITIONS // 2
    count_partitions = kafka._ConsumerSession.count_partitions
    monkeypatch.setattr(kafka, "GROWTH_CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(
        kafka._ConsumerSession, "count_partitions", lambda *arguments: min(shown, count_partitions(*arguments))
    )

    async def produce(number: int) -> None:
        for key in KEYS:
            partition = partition_of(key, TOPIC_PARTITIONS)
            await asyncio.to_thread(cluster.produce, "orders", payload(key, number), partition=partition)

    await produce(0)
    load, seen = reader(tm.Kafka(topic="orders", servers=cluster.servers), partitions=2)
    first = [key for key in KEYS if partition_of(key, TOPIC_PARTITIONS) < shown]
    async with tm.Node(load=load) as node:
        await until(lambda: len(seen) == len(first))
        assert seen == {key: [0] for key in first}
        shown = TOPIC_PARTITIONS
        await produce(1)
        await until(lambda: sum(map(len, seen.values())) == 2 * len(KEYS))
        assert seen == {key: [0, 1] for key in KEYS}
        assert node.reactor("orders").state().accumulators["placed"].events == 2 * len(KEYS)
        shown = 3
        await until(lambda: node.reactor("orders").state().accumulators["placed"].health == "failed")
        assert "has 3 partitions" in (node.reactor("orders").state().accumulators["placed"].reason or "")


@pytest.mark.parametrize("retention", list(RetentionPolicy))
async def test_each_message_of_nats_counts_once_over_several_lives(tmp_path: Path, retention: RetentionPolicy) -> None:
    """G-4, G-6: a stream with limits is read again from the stored offset; the others have deleted what was taken."""
    async with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders"], retention=retention)
        load, seen = reader(tm.Nats(subject="orders", servers=server.url), partitions=4, durability="interval")
        settings = {"checkpoint_interval": "3s"}  # an orderly stop leaves the stored offset behind
        for life in range(3):
            async with tm.Node(f"sqlite:///{tmp_path}/tidemill.db", load=load, settings=settings) as node:
                while not await stream.consumers_info("ORDERS"):  # noqa: ASYNC110 - interest needs a consumer
                    await asyncio.sleep(0.01)
                count = 12 * (life + 1)
                for number in range(count - 12, count):
                    await stream.publish("orders", payload(KEYS[number % len(KEYS)], number))
                await until(lambda count=count: sum(map(len, seen.values())) >= count, node)  # type: ignore[misc]
        await client.close()
    assert seen == {key: [first, first + 12, first + 24] for first, key in enumerate(KEYS)}
