"""G-6 with real brokers: a stream's offset is stored with its state, and counts more than what the broker remembers."""

import asyncio
import shutil
from pathlib import Path

import tidemill as tm
from tests.system.brokers import KafkaCluster, nats_server, publish
from tidemill.graphs.definition import Durability


class Fill(tm.Boundary):
    """What comes over the wire."""

    size: int


class Exposure(tm.Boundary):
    """The sum of all fills."""

    total: int = 0
    fills: int = 0


def book_of(source: tm.Kafka | tm.Nats, durability: Durability | None = None) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor on one stream with running state."""

    @tm.stream(source, state=Exposure)
    def exposure(event: Fill, state: Exposure) -> Exposure:
        return Exposure(state.total + event.size, state.fills + 1)

    reactor = tm.Reactor("book", [exposure], strategy="sequential", durability=durability)
    graph = tm.Graph("watch", reactor=reactor)

    @graph.node
    def seen(exposure: Exposure) -> int:
        return exposure.total

    return reactor, graph


async def reached(node: tm.Node, fills: int) -> Exposure:
    """Wait until so many fills were summed up, and return the sum."""
    while True:
        firing = await node.reactor("book").next_firing(timeout=30)
        exposure = firing.inputs["exposure"]
        assert isinstance(exposure, Exposure)
        if exposure.fills >= fills:
            return exposure


def fills(*sizes: int) -> list[bytes]:
    return [f'{{"size": {size}}}'.encode() for size in sizes]


async def test_a_nats_consumer_that_is_ahead_of_the_snapshot_is_taken_back(tmp_path: Path) -> None:
    """G-6, G-24: what was acknowledged after the last snapshot is read again, and summed up once."""
    store = tmp_path / "node.db"
    async with nats_server(tmp_path) as server:
        source = tm.Nats(subject="fills", servers=server.url)
        await publish(server.url, "fills", *fills(1, 2, 3), stream="FILLS")
        async with tm.Node(store=f"sqlite:///{store}", load=book_of(source)) as node:
            await reached(node, 3)
        shutil.copy(store, tmp_path / "snapshot.db")
        await publish(server.url, "fills", *fills(4, 5))
        async with tm.Node(store=f"sqlite:///{store}", load=book_of(source)) as node:
            await reached(node, 5)
        await publish(server.url, "fills", *fills(6))
        async with tm.Node(store=f"sqlite:///{tmp_path / 'snapshot.db'}", load=book_of(source)) as node:
            assert await reached(node, 6) == Exposure(total=21, fills=6)


async def test_a_nats_stream_that_began_anew_is_read_from_its_start(tmp_path: Path) -> None:
    """A place that the stream has not reached is another stream's: nothing of this one may be passed over."""
    async with nats_server(tmp_path / "first") as server:
        await publish(server.url, "fills", *fills(1, 2, 3), stream="FILLS")
        source = tm.Nats(subject="fills", servers=server.url)
        async with tm.Node(store=f"sqlite:///{tmp_path / 'node.db'}", load=book_of(source)) as node:
            await reached(node, 3)
    async with nats_server(tmp_path / "second") as server:
        await publish(server.url, "fills", *fills(4), stream="FILLS")
        source = tm.Nats(subject="fills", servers=server.url)
        async with tm.Node(store=f"sqlite:///{tmp_path / 'node.db'}", load=book_of(source)) as node:
            assert await reached(node, 4) == Exposure(total=10, fills=4)


async def test_kafka_offsets_of_our_own_count_more_than_the_groups(tmp_path: Path) -> None:
    """G-6: a group that knows nothing would read from the start; the stored offset says where to go on."""
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "fills", *fills(1, 2, 3))
    store = f"sqlite:///{tmp_path / 'node.db'}"
    first = tm.Kafka(topic="fills", group="first", servers=cluster.servers)
    async with tm.Node(store=store, load=book_of(first)) as node:
        await reached(node, 3)
    await asyncio.to_thread(cluster.produce, "fills", *fills(4))
    second = tm.Kafka(topic="fills", group="second", servers=cluster.servers)
    async with tm.Node(store=store, load=book_of(second)) as node:
        assert await reached(node, 4) == Exposure(total=10, fills=4)


async def test_many_messages_share_a_commit_and_none_is_lost_when_the_store_refuses_some(tmp_path: Path) -> None:
    """G-6, G-24: with "boundary" a source waits for the store; what was refused is offered again, in its order."""
    sizes = range(1, 301)
    async with nats_server(tmp_path) as server:
        source = tm.Nats(subject="fills", servers=server.url)
        await publish(server.url, "fills", b"no json", *fills(*sizes), stream="FILLS")
        store = f"sqlite:///{tmp_path / 'node.db'}"
        async with tm.Node(store=store, load=book_of(source, "boundary")) as node:
            assert node._store is not None
            node._store.fail_next(3)
            assert await reached(node, 300) == Exposure(total=sum(sizes), fills=300)
            newest = node.reactor("book").firings(200)
            assert [firing.inputs["exposure"].fills for firing in newest] == list(range(300, 100, -1))
            assert [letter.event for letter in await node.reactor("book").dead_letters()] == [b"no json"]
        await publish(server.url, "fills", *fills(7))
        async with tm.Node(store=store, load=book_of(source, "boundary")) as node:
            assert await reached(node, 301) == Exposure(total=sum(sizes) + 7, fills=301)
