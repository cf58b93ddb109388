"""Keyed streams whose source is exchanged while they run: between one that is relayed, and a topic that is split."""

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import tidemill as tm
from tests.service.keyed_samples import Order, order
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.sources.reader import SourceListener, SourceReader, open_reader
from tidemill.graphs.definition import Accumulator, KafkaShare
from tidemill.graphs.keys import partition_of
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings

TOPIC = tm.Kafka(topic="orders", servers="nowhere")
PARTITIONS = 2
OWN = partition_of("a", PARTITIONS)  # where the orders of key "a" are


class Feed:
    """A source that cannot be split: brings one order, and can then be lost."""

    replays = True

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_away = False

    async def start(self, checkpoint: Any) -> AsyncIterator[Any]:
        """Yield the order, and wait until the source is lost."""
        if not self.is_away:
            yield order("a", self.number), self.number
        while not self.is_away:  # noqa: ASYNC110 - the feed needs real time
            await asyncio.sleep(0.001)
        raise tm.sources.Disconnected("the feed is away")


class ShareReader(SourceReader):
    """Reads a share of a topic: brings one order of its key."""

    def __init__(self, share: KafkaShare, checkpoints: list[Any]) -> None:
        self._share = share
        self.checkpoints = checkpoints

    async def run(self, listener: SourceListener, checkpoint: Any) -> None:
        offsets = dict(checkpoint or {})  # as the reader of Kafka: offsets by partition
        listener.on_connected()
        if self._share.number == OWN:
            self.checkpoints.append(checkpoint)
            await listener.on_events([(order("a", 100), {**offsets, "0": 1})])
        await asyncio.Event().wait()


class ReadingNode(tm.testing.TestNode):
    """A test node that reads its sources; those of topics without Kafka."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.checkpoints: list[Any] = []
        super().__init__(*arguments, **options | {"_profile": {"open_reader": self._open}})

    def _open(self, accumulator: Accumulator, tenant: str, settings: Settings, clock: Clock) -> SourceReader:
        if isinstance(accumulator.source, KafkaShare):
            return ShareReader(accumulator.source, self.checkpoints)
        return open_reader(accumulator, tenant, settings, clock)


def shop(source: Any, seen: list[int]) -> ModuleType:
    """Return a package with reactor `orders`, which reads this source."""

    @tm.stream(source)
    def placed(event: Order) -> Order:
        seen.append(event.number)
        return event

    module = ModuleType("shop")
    reactor = tm.Reactor("orders", [placed], key="key", partitions=PARTITIONS, strategy="sequential")
    module.__dict__["reactor"] = reactor
    return module


async def until_seen(node: ReadingNode, seen: list[int], expected: list[int]) -> None:
    """Let time pass until these orders have come."""
    for _ in range(200):
        if seen == expected:
            return
        await node.advance("200ms")
        await asyncio.sleep(0.002)  # the feed needs real time
    raise AssertionError(seen)


async def test_the_source_of_a_keyed_stream_is_exchanged_for_a_topic_and_back() -> None:
    """P-6: what the older version read does not matter; each version reads its own source from its own offset."""
    seen: list[int] = []
    async with asyncio.timeout(30), ReadingNode("memory://", load=[]) as node:
        await node.load(shop(Feed(1), seen))
        await until_seen(node, seen, [1])
        await node.load(shop(TOPIC, seen))
        await until_seen(node, seen, [1, 100])
        assert node.checkpoints == [None], "the number of a relayed event is no offset of a topic"
        stream = node.probe.graphs.accumulator(f"placed[{OWN}]")
        assert isinstance(stream.kind, KeyedStream)
        assert (stream.health, stream.emitter.offset) == ("live", {"0": 1})
        await node.load(shop(Feed(2), seen))
        await until_seen(node, seen, [1, 100, 2])
        assert (stream.health, stream.kind.has_background_loop) == ("live", False)


async def test_firings_forget_the_loss_of_a_source_that_was_exchanged() -> None:
    """G-9: no relay reads a topic, so none says that the older source is back; a late one may say it is lost."""
    seen: list[int] = []
    feed = Feed(1)

    async def find_degraded(node: ReadingNode) -> bool:
        return (await node.reactor("orders").force_fire("a")).degraded

    async with asyncio.timeout(30), ReadingNode("memory://", load=[]) as node:
        await node.load(shop(feed, seen))
        await until_seen(node, seen, [1])
        feed.is_away = True
        while not await find_degraded(node):
            await node.advance("200ms")
            await asyncio.sleep(0.002)
        await node.load(shop(TOPIC, seen))
        await until_seen(node, seen, [1, 100])
        assert not await find_degraded(node)
        keyed = node._scheduler.loaded.keyed["public", "orders"]
        relays = node._scheduler.sharing.relays
        await relays.mark_source(keyed, "placed", is_lost=True)  # as a node that still runs the older version
        assert not await find_degraded(node)
