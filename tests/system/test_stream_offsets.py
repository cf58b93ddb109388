"""G-6 with real brokers: a stream's offset is stored with its state, and counts more than what the broker remembers."""

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from nats.js.api import ConsumerConfig, RetentionPolicy

import tidemill as tm
from tests.system.brokers import KafkaCluster, nats_server, publish
from tidemill.engine.graphs.sources.kafka import _ConsumerSession
from tidemill.engine.graphs.sources.nats import NatsReader, _covers
from tidemill.engine.graphs.sources.nats import _ConsumerSession as _NatsFollowing
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.graphs.definition import Durability
from tidemill.kernel.clock import SystemClock
from tidemill.testing.faults.stores import fail_next


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


def gaps(node: tm.Node) -> list[str]:
    """Return what the source of the book has reported as missing."""
    return [event.reason for event in node.reactor("book").events()[::-1] if event.action == "gap"]


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
            (gap,) = gaps(node)
            assert "stream 'FILLS' ends at 1, and messages up to 3 were read; it has restarted" in gap


async def test_messages_that_a_nats_stream_has_dropped_are_a_gap(tmp_path: Path) -> None:
    """G-6: the limits of the stream took what no one had read. The gap has its number, and is reported once."""
    store = f"sqlite:///{tmp_path / 'node.db'}"
    async with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="FILLS", subjects=["fills"], max_msgs=3)
        source = tm.Nats(subject="fills", servers=server.url)
        await publish(server.url, "fills", *fills(1, 2, 3))
        async with tm.Node(store=store, load=book_of(source)) as node:
            await reached(node, 3)
            assert gaps(node) == []
        await publish(server.url, "fills", *fills(4, 5, 6, 7, 8))
        async with tm.Node(store=store, load=book_of(source)) as node:
            assert await reached(node, 6) == Exposure(total=6 + 6 + 7 + 8, fills=6)
            (gap,) = gaps(node)
            assert gap.endswith("messages up to 3 were read; the stream has dropped the 2 in between")
        await publish(server.url, "fills", *fills(9))
        async with tm.Node(store=store, load=book_of(source)) as node:
            await reached(node, 7)
            assert gaps(node) == [gap]
        await client.close()


@pytest.mark.parametrize(
    ("retention", "subjects"),
    [(RetentionPolicy.LIMITS, ["fills", "others"]), (RetentionPolicy.WORK_QUEUE, ["fills"])],
)
async def test_messages_that_are_gone_and_not_missing_are_no_gap(
    tmp_path: Path, retention: RetentionPolicy, subjects: list[str]
) -> None:
    """G-6: those of other subjects, and those that a work queue has dropped because they were acknowledged."""
    store = f"sqlite:///{tmp_path / 'node.db'}"
    async with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="FILLS", subjects=subjects, max_msgs=3, retention=retention)
        source = tm.Nats(subject="fills", servers=server.url)
        await publish(server.url, "fills", *fills(1))
        async with tm.Node(store=store, load=book_of(source)) as node:
            await reached(node, 1)
        await publish(server.url, subjects[-1], *fills(*[7] * 3 * (len(subjects) - 1)))
        await publish(server.url, "fills", *fills(2, 3))
        async with tm.Node(store=store, load=book_of(source)) as node:
            assert await reached(node, 3) == Exposure(total=6, fills=3)
            assert gaps(node) == []
        await client.close()


@pytest.mark.parametrize(
    ("wanted", "subject", "covers"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("a.>", "a.>", True),
        ("a.*", "a.*", True),
        ("a.b", "a.*", False),
        ("a.*", "a.>", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a", False),
        ("a", "a.b", False),
    ],
)
def test_a_subject_with_wildcards_covers_others(wanted: str, subject: str, covers: bool) -> None:
    """Of a stream with other subjects, a sequence does not tell whose messages are gone."""
    assert _covers(wanted, subject) == covers


async def test_a_restart_within_a_batch_loses_none_of_it_to_newer_messages(tmp_path: Path) -> None:
    """G-6: what was fetched and not acknowledged comes again before what was published since, and at once."""
    got: list[int] = []
    async with nats_server(tmp_path) as server:
        await publish(server.url, "numbers", *(str(number).encode() for number in range(1, 11)), stream="NUMBERS")
        hangs = asyncio.Event()

        @tm.stream(tm.Nats(subject="numbers", servers=server.url))
        async def numbers(event: int) -> int:
            if event == 6 and not hangs.is_set():
                hangs.set()
                await asyncio.Event().wait()
            return event

        reactor = tm.Reactor("count", [numbers], strategy="sequential")
        graph = tm.Graph("watch", reactor=reactor)

        @graph.node
        def seen(numbers: int) -> int:
            got.append(numbers)
            return numbers

        async with tm.Node(store=f"sqlite:///{tmp_path / 'node.db'}", load=[reactor, graph]) as node:
            await asyncio.wait_for(hangs.wait(), 30)
            await publish(server.url, "numbers", b"11", b"12")
            await node.restart_accumulator("numbers")  # the event that hangs becomes a dead letter
            while 12 not in got:
                await node.reactor("count").next_firing(timeout=20)
    assert got == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("retention", list(RetentionPolicy))
async def test_without_a_place_of_our_own_what_was_not_acknowledged_comes_first(
    tmp_path: Path, retention: RetentionPolicy
) -> None:
    """A life that ended with messages in hand and left no offset: the next goes on behind the acknowledged ones."""
    async with nats_server(tmp_path) as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="NUMBERS", subjects=["numbers"], retention=retention)
        config = ConsumerConfig(durable_name="mine", filter_subject="numbers", ack_wait=1_000, max_ack_pending=7)
        await stream.add_consumer("NUMBERS", config)
        for number in (1, 2, 3):
            await stream.publish("numbers", str(number).encode())
        earlier = await stream.pull_subscribe_bind(durable="mine", stream="NUMBERS")
        first, *_ = await earlier.fetch(3, timeout=5)
        await first.ack_sync()
        await stream.publish("numbers", b"4")
        heard = await _heard(server.url, 3)
        assert heard == [(b"2", 2), (b"3", 3), (b"4", 4)]
        (consumer,) = await stream.consumers_info("NUMBERS")  # the only one, and configured as it was
        assert (consumer.name, consumer.config.ack_wait, consumer.config.max_ack_pending) == ("mine", 1_000, 7)
        await client.close()


async def test_a_delivery_that_never_reached_us_is_not_passed_over(tmp_path: Path) -> None:
    """A lost connection swallows deliveries while the feed lives on: newer messages wait until those came again."""
    async with nats_server(tmp_path) as server:
        await publish(server.url, "numbers", b"1", stream="NUMBERS")
        client = await nats.connect(server.url)
        swallowed = []

        async def swallow() -> None:
            """Take the next message as the feed's own consumer, as a connection does that is about to break."""
            await publish(server.url, "numbers", b"2")
            other = await client.jetstream().pull_subscribe_bind(durable="mine", stream="NUMBERS")
            swallowed.extend(await other.fetch(1, timeout=5))
            await publish(server.url, "numbers", b"3")

        assert await _heard(server.url, 3, swallow) == [(b"1", 1), (b"2", 2), (b"3", 3)]
        assert [message.data for message in swallowed] == [b"2"]
        await client.close()


async def test_a_fetch_that_brings_nothing_is_no_failure() -> None:
    """The client returns an empty list where a server that is about to end refuses a request."""

    class Empty:
        async def fetch(self, batch: int, timeout: float) -> list[Any]:
            return []

    subscription: Any = Empty()
    client: Any = None  # it is asked only for the lag
    following = _NatsFollowing(client, subscription, Hearing(1), last_sequence=5, delivery_count=5)
    assert await following._deliver_batch()
    assert following._last_sequence == 5


class Hearing(SourceListener):
    """Keeps what it hears; after the first event something may happen, before the feed goes on."""

    def __init__(self, count: int, after_first: Any = None) -> None:
        self.heard: list[tuple[Any, Any]] = []
        self.gaps: list[str] = []
        self.is_done = asyncio.Event()
        self._count = count
        self._after_first = after_first

    def on_gap(self, reason: str) -> None:
        self.gaps.append(reason)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        happens = self._after_first is not None and not self.heard
        self.heard += events
        if happens:
            await self._after_first()
        if len(self.heard) >= self._count:
            self.is_done.set()


async def _heard(url: str, count: int, after_first: Any = None) -> list[tuple[Any, Any]]:
    """Follow a subject without an offset of our own until so many events came, and return them with their numbers."""
    listener = Hearing(count, after_first)
    feed = NatsReader(tm.Nats(subject="numbers", durable="mine"), "numbers", url)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(feed.run(listener, None), name="following")
        await listener.is_done.wait()
        following.cancel()
    return listener.heard


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


async def test_a_kafka_topic_that_began_anew_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    """An offset that the topic has not reached is another topic's: nothing of this one may be passed over."""
    store = f"sqlite:///{tmp_path / 'node.db'}"
    for sizes, total in (((1, 2, 3), Exposure(total=6, fills=3)), ((4, 5), Exposure(total=15, fills=5))):
        cluster = await asyncio.to_thread(KafkaCluster)  # the second knows nothing of the first
        await asyncio.to_thread(cluster.produce, "fills", *fills(*sizes))
        source = tm.Kafka(topic="fills", servers=cluster.servers)
        async with tm.Node(store=store, load=book_of(source)) as node:
            assert await reached(node, total.fills) == total
            reported = gaps(node)
    (gap,) = reported
    assert "partition 0 ends at offset 2, and messages before 3 were read; it has restarted" in gap


async def test_messages_that_a_kafka_topic_has_dropped_are_a_gap(tmp_path: Path) -> None:
    """Retention took what was not read: the rest is read, and the gap is reported once. The mock keeps 5 MB."""
    store = f"sqlite:///{tmp_path / 'node.db'}"
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "fills", *fills(1))
    first = tm.Kafka(topic="fills", group="first", servers=cluster.servers)
    async with tm.Node(store=store, load=book_of(first)) as node:
        await reached(node, 1)
    await asyncio.to_thread(cluster.produce, "fills", *(fill + b" " * 900_000 for fill in fills(*[1] * 9)))
    second = tm.Kafka(topic="fills", group="second", servers=cluster.servers)
    async with tm.Node(store=store, load=book_of(second)) as node:
        await reached(node, 3)
        (gap,) = gaps(node)
    begin, dropped = map(int, re.findall(r"begins at offset (\d+), .* dropped up to (\d+) messages", gap)[0])
    assert (begin - dropped, "messages before 1 were read" in gap) == (1, True)
    assert 1 < begin < 10
    await asyncio.to_thread(cluster.produce, "fills", *fills(1))
    third = tm.Kafka(topic="fills", group="third", servers=cluster.servers)
    async with tm.Node(store=store, load=book_of(third)) as node:
        await reached(node, 4)
        assert gaps(node) == [gap]


async def test_after_a_rebalance_kafka_offsets_of_our_own_are_checked_and_the_groups_count() -> None:
    """A topic may begin anew between two assignments; what we knew of it must not hide what it has now."""
    cluster = await asyncio.to_thread(KafkaCluster)
    await asyncio.to_thread(cluster.produce, "fills", *fills(1, 2))
    settings = {"bootstrap.servers": cluster.servers, "group.id": "g", "log_level": 0}
    listener = Hearing(1)
    following = _ConsumerSession("fills", settings, listener, SystemClock(), {"0": 500, "1": 1})
    following._was_assigned = True
    place = TopicPartition("fills", 0)
    await asyncio.to_thread(following._assign_stored_offsets, following.consumer, [place])
    assert (place.offset, following._next_offsets) == (OFFSET_INVALID, {"1": 1})
    following._report_gaps()
    assert len(listener.gaps) == 1
    await following.close()


async def test_many_messages_share_a_commit_and_none_is_lost_when_the_store_refuses_some(tmp_path: Path) -> None:
    """G-6, G-24: with "boundary" a source waits for the store; what was refused is offered again, in its order."""
    sizes = range(1, 301)
    async with nats_server(tmp_path) as server:
        source = tm.Nats(subject="fills", servers=server.url)
        await publish(server.url, "fills", b"no json", *fills(*sizes), stream="FILLS")
        store = f"sqlite:///{tmp_path / 'node.db'}"
        async with tm.Node(store=store, load=book_of(source, "boundary")) as node:
            fail_next(node.store, 3)
            assert await reached(node, 300) == Exposure(total=sum(sizes), fills=300)
            newest = node.reactor("book").firings(200)
            assert [firing.inputs["exposure"].fills for firing in newest] == list(range(300, 100, -1))
            assert [letter.event for letter in await node.reactor("book").dead_letters()] == [b"no json"]
        await publish(server.url, "fills", *fills(7))
        async with tm.Node(store=store, load=book_of(source, "boundary")) as node:
            assert await reached(node, 301) == Exposure(total=sum(sizes) + 7, fills=301)
