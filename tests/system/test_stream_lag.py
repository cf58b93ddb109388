"""Upstream lag with real brokers: how many events a source has that its accumulator has not read yet."""

import asyncio
from pathlib import Path

import tidemill as tm
from tests.service.server.live_client import until
from tests.system.brokers import KafkaCluster, nats_server, publish

EVENTS = 600  # more than a reader takes at a time
PATIENCE = 30.0  # seconds until a test gives up


def counted(source: tm.Kafka | tm.Nats, gate: asyncio.Event) -> list[tm.Reactor | tm.Graph]:
    """Return a reactor on a stream whose function waits for a gate."""

    @tm.stream(source)
    async def numbers(event: int) -> int:
        await gate.wait()
        return event

    reactor = tm.Reactor("counter", [numbers], strategy="sequential")
    graph = tm.Graph("count", reactor=reactor)

    @graph.node
    def seen(numbers: int) -> int:
        return numbers

    return [reactor, graph]


async def check_lag(source: tm.Kafka | tm.Nats) -> None:
    """Read a source that has events, and check that its lag is known, and falls to 0."""
    gate = asyncio.Event()
    async with tm.Node(load=counted(source, gate)) as node, asyncio.timeout(PATIENCE):

        def lag() -> int | None:
            return node.reactor("counter").state().accumulators["numbers"].upstream_lag

        await until(lambda: bool(lag()))
        behind = lag()
        assert behind is not None
        assert 0 < behind < EVENTS
        gate.set()
        await until(lambda: lag() == 0)
        assert node.reactor("counter").state().accumulators["numbers"].events > EVENTS - behind


async def test_nats_says_how_many_messages_wait(tmp_path: Path) -> None:
    """S-8: own against upstream lag."""
    async with nats_server(tmp_path) as server:
        await publish(server.url, "numbers", *(str(one).encode() for one in range(EVENTS)), stream="NUMBERS")
        await check_lag(tm.Nats(subject="numbers", servers=server.url))


async def test_kafka_says_how_many_messages_wait() -> None:
    """S-8: own against upstream lag."""
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "numbers", *(str(one).encode() for one in range(EVENTS)))
    await check_lag(tm.Kafka(topic="numbers", servers=cluster.servers))
