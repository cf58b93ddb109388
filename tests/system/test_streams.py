"""Streams from real brokers: connected means connected, what arrives is delivered, what is lost comes back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

import tidemill as tm
from tests.system.brokers import KafkaCluster, NatsServer, nats_server, publish
from tidemill.engine.graphs.sources import kafka
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.kernel.clock import VirtualClock


class Price(tm.Boundary):
    """What comes over the wire."""

    fair: float


def stream_of(source: tm.Kafka | tm.Nats) -> tuple[tm.Reactor, tm.Graph]:
    """Return a sequential reactor on one stream, whose graph passes prices on."""

    @tm.stream(source)
    def pricing(event: Price) -> Price:
        return event

    reactor = tm.Reactor("prices", [pricing], strategy="sequential")
    graph = tm.Graph("watch", reactor=reactor)

    @graph.node
    def seen(pricing: Price) -> float:
        return pricing.fair

    return reactor, graph


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that real time brings about."""
    for _ in range(3_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited half a minute in vain")


def health(node: tm.Node) -> tm.AccumulatorHealth:
    return node.reactor("prices").state().accumulators["pricing"].health


async def fair_prices(node: tm.Node, count: int) -> list[float]:
    firings = [await node.reactor("prices").next_firing(timeout=30) for _ in range(count)]
    return [firing.results["watch"].outputs["seen"] for firing in firings]


async def test_a_kafka_topic_is_followed_in_order() -> None:
    """G-7, behaviour 20: a stream is live once a broker answers; what cannot be decoded is a dead letter."""
    cluster = await asyncio.to_thread(KafkaCluster)
    payloads = [b'{"fair": 1.0}', b"no json", b'{"fair": 2.0}']
    await asyncio.to_thread(cluster.produce, "prices", *payloads)
    source = tm.Kafka(topic="prices", group="maker", servers=cluster.servers)
    async with tm.Node(load=stream_of(source)) as node:
        await until(lambda: health(node) is tm.AccumulatorHealth.LIVE)
        assert await fair_prices(node, 2) == [1.0, 2.0]
        (letter,) = await node.reactor("prices").dead_letters()
        assert letter.event == b"no json"


async def test_without_a_broker_a_kafka_stream_stays_connecting() -> None:
    """G-8: the reactor warms up, names whom it waits for, and takes pushes meanwhile."""
    source = tm.Kafka(topic="prices")
    async with tm.Node(load=stream_of(source), settings={"kafka_servers": "127.0.0.1:1"}) as node:
        assert (await node.push("pricing", {"fair": 3.0})).accepted
        state = node.reactor("prices").state()
        assert (state.health, state.waiting, state.fires) == (tm.ReactorHealth.WARMING, ["pricing"], 0)


async def test_a_kafka_stream_whose_broker_never_answers_is_disconnected_and_not_failed() -> None:
    """G-20: after the tries of the settings the state names the broker, and the stream goes on trying."""
    settings = {"kafka_servers": "127.0.0.1:1", "component_max_failures": 2, "backoff_base": "1ms"}
    async with tm.Node(load=stream_of(tm.Kafka(topic="prices")), settings=settings) as node:
        await until(lambda: health(node) is tm.AccumulatorHealth.DISCONNECTED)
        state = node.reactor("prices").state()
        assert (state.health, state.waiting) == (tm.ReactorHealth.WARMING, ["pricing"])
        assert "Kafka topic 'prices' at 127.0.0.1:1" in (state.accumulators["pricing"].reason or "")


async def test_a_nats_stream_waits_for_its_server(tmp_path: Path) -> None:
    """G-20: the server may come after the node."""
    server = NatsServer(tmp_path)
    settings = {"component_max_failures": 2, "backoff_base": "1ms", "backoff_max": "20ms"}
    async with tm.Node(load=stream_of(tm.Nats(subject="prices", servers=server.url)), settings=settings) as node:
        await until(lambda: health(node) is tm.AccumulatorHealth.DISCONNECTED)
        await asyncio.to_thread(server.start)
        try:
            await publish(server.url, "prices", b'{"fair": 1.0}', stream="PRICES")
            assert await fair_prices(node, 1) == [1.0]
            assert health(node) is tm.AccumulatorHealth.LIVE
        finally:
            server.kill()


async def test_a_nats_server_that_refuses_the_client_fails_the_stream_at_once(tmp_path: Path) -> None:
    """G-20: a retry cannot help; the reason names the server, and no credentials."""
    async with nats_server(tmp_path, "--auth", "secret") as server:
        url = server.url.replace("nats://", "nats://wrong@")
        async with tm.Node(load=stream_of(tm.Nats(subject="prices", servers=url))) as node:
            await until(lambda: health(node) is tm.AccumulatorHealth.FAILED)
            *lost, failure = node.reactor("prices").events()[::-1]  # a server under load may close the connection first
            assert failure.action == "failed"
            assert "correct the credentials" in failure.reason
            assert not [event for event in (*lost, failure) if "wrong" in event.reason]


async def test_a_nats_subject_is_followed_through_a_kill_of_the_server(tmp_path: Path) -> None:
    """Behaviour 51: a lost source degrades the reactor; it recovers by itself and misses nothing."""
    async with nats_server(tmp_path) as server:
        await publish(server.url, "prices", b'{"fair": 1.0}', stream="PRICES")
        async with tm.Node(load=stream_of(tm.Nats(subject="prices", servers=server.url))) as node:
            assert await fair_prices(node, 1) == [1.0]
            server.kill()
            await until(lambda: node.reactor("prices").state().health is tm.ReactorHealth.DEGRADED)
            await asyncio.to_thread(server.start)
            await publish(server.url, "prices", b'{"fair": 2.0}')
            assert await fair_prices(node, 1) == [2.0]
            assert node.reactor("prices").state().health is tm.ReactorHealth.LIVE


async def test_a_durable_nats_consumer_goes_on_where_it_was(tmp_path: Path) -> None:
    """What was acknowledged is not delivered again to the next node."""
    async with nats_server(tmp_path) as server:
        source = tm.Nats(subject="prices", servers=server.url)
        await publish(server.url, "prices", b'{"fair": 1.0}', stream="PRICES")
        async with tm.Node(load=stream_of(source)) as node:
            assert await fair_prices(node, 1) == [1.0]
        await publish(server.url, "prices", b'{"fair": 2.0}')
        async with tm.Node(load=stream_of(source)) as node:
            assert (await fair_prices(node, 1))[0] in (1.0, 2.0)  # the last acknowledgement may have been cut off


@pytest.mark.parametrize(("source", "setting"), [(tm.Kafka(topic="t"), "kafka"), (tm.Nats(subject="s"), "nats")])
async def test_a_stream_without_servers_is_refused_at_load(source: tm.Kafka | tm.Nats, setting: str) -> None:
    """The error names the accumulator and the setting; nothing stays loaded."""
    reactor, _ = stream_of(source)
    async with tm.Node() as node:
        with pytest.raises(tm.OperationError, match=f"'pricing'.*{setting}_servers"):
            await node.load(reactor)
        assert node.registry.reactors() == node.registry.accumulators() == node.registry.endpoints() == []


async def test_a_partition_that_a_rebalance_took_away_is_no_failure() -> None:
    """G-19: its new owner reads the event again; storing its offset here fails, and must not crash the stream."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.offset.store": False, "log_level": 0}
    following = kafka._ConsumerSession("t", settings, SilentListener(), VirtualClock())
    following._store_offset(TopicPartition("t", 0, 1))
    with pytest.raises(KafkaException):
        following.consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
    await following.close()


class SilentListener(SourceListener):
    """Hears nothing."""
