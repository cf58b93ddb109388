"""Upstream lag with real brokers: how many events a source has that its accumulator has not read yet."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.live_client import until
from tests.system.brokers import KafkaCluster, nats_server, publish
from tidemill.engine.graphs.sources.nats import NatsReader
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.kernel.errors import OperationError

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


async def test_the_lag_of_a_lost_nats_server_is_unknown(tmp_path: Path) -> None:
    """S-8: an old number would say that all is well."""
    gate = asyncio.Event()
    gate.set()
    async with nats_server(tmp_path) as server, asyncio.timeout(PATIENCE):
        await publish(server.url, "numbers", b"1", stream="NUMBERS")
        async with tm.Node(load=counted(tm.Nats(subject="numbers", servers=server.url), gate)) as node:

            def lag() -> int | None:
                return node.reactor("counter").state().accumulators["numbers"].upstream_lag

            await until(lambda: lag() == 0)
            server.kill()
            await until(lambda: lag() is None)


async def test_the_lag_of_a_nats_reader_that_has_ended_is_unknown(tmp_path: Path) -> None:
    """S-8: the stream reads its source again after a while; until then, there is no number."""
    async with nats_server(tmp_path) as server, asyncio.timeout(PATIENCE):
        await publish(server.url, "numbers", b"1", b"2", stream="NUMBERS")
        reader = NatsReader(tm.Nats(subject="numbers"), "numbers", server.url)

        class Failing(SourceListener):
            async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
                assert reader.upstream_lag is not None
                raise OperationError("lost")

        with pytest.raises(OperationError, match="lost"):
            await reader.run(Failing(), None)
        assert reader.upstream_lag is None


async def test_kafka_says_how_many_messages_wait() -> None:
    """S-8: own against upstream lag."""
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "numbers", *(str(one).encode() for one in range(EVENTS)))
    await check_lag(tm.Kafka(topic="numbers", servers=cluster.servers))
