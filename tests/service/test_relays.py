"""Sources that cannot be split, across a crash of the node that reads them for all partitions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import Order, keyed, order
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relay_sink import RelaySink
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.graphs.result import Receipt
from tidemill.kernel.errors import OperationError
from tidemill.storage.graph_ports import PartKey

KEYS = ["a", "b", "c"]


async def pass_time(node: tm.testing.TestNode) -> None:
    """Let ten seconds pass, in steps that the relay can follow."""
    for _ in range(20):
        await node.advance("500ms")
        for _ in range(20):
            await asyncio.sleep(0)
        await node.settle()


async def test_no_poll_is_lost_after_a_crash_of_the_node_that_polls() -> None:
    """G-24: the answers after the crash are new, though the stored number is older than that of the partitions."""
    polled = 0

    @tm.polling(every="1s")
    def placed() -> Order:
        nonlocal polled
        polled += 1
        return Order(KEYS[polled % 3], polled)

    reactor = tm.Reactor("orders", [placed], strategy="sequential", key="key", partitions=8, durability="boundary")
    graph = tm.Graph("ledger", reactor=reactor)
    seen: list[int] = []

    @graph.node
    def enter(placed: Order) -> None:
        seen.append(placed.number)

    settings = tm.Settings(checkpoint_interval=3.5)  # the crash comes between two writes of the number
    async with tm.testing.node("memory://", load=[reactor, graph], settings=settings) as node:
        await pass_time(node)
        before = len(seen)
        successor = await node.crash()
        await pass_time(successor)
        assert before >= 5
        assert len(seen) >= before + 5
        assert seen == list(range(1, len(seen) + 1))


class Partitions:
    """What the partitions of a reactor have taken from a relay."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.newest: dict[PartKey, int] = {}
        self.failures = 0

    async def push(
        self, part: PartKey, events: Sequence[Any], encoding: str, position: ProducerPosition
    ) -> PushSummary:
        """Take events that are new; the answer is lost as often as there are failures."""
        assert encoding == "json"
        if position.sequence > self.newest.get(part, 0):
            self.newest[part] = position.sequence
            self.taken += [event["number"] for event in events]
        if self.failures:
            self.failures -= 1
            raise OperationError("the answer is lost")
        return PushSummary.of(Receipt(True, 1, "emitted") for _ in events)

    async def last_position(self, part: PartKey) -> int | None:
        """Return the newest number that a partition has taken."""
        return self.newest.get(part)

    def new_sink(self, node: tm.testing.TestNode) -> RelaySink:
        """Return the sink of a node that begins to read the source."""
        runtime = node._scheduler.runtime
        reactor = PartitionedReactor(keyed().reactor, "public", runtime.clock.now())
        return RelaySink(reactor, "placed", runtime=runtime, push=self.push, last_position=self.last_position)


@pytest.mark.parametrize("are_repeatable", [True, False])
async def test_only_a_source_with_offsets_repeats_events(are_repeatable: bool) -> None:
    """G-6: a reader that knows no stored offset reads the events of a source with offsets again, and only those."""
    partitions = Partitions()
    events = [order(key, number) for number, key in enumerate(KEYS, 1)]
    async with tm.testing.node() as node:
        for _ in range(2):
            await partitions.new_sink(node).deliver(events, "json", are_repeatable=are_repeatable)
    assert sorted(partitions.taken) == ([1, 2, 3] if are_repeatable else [1, 1, 2, 2, 3, 3])


async def test_a_push_whose_answer_is_lost_is_not_applied_again() -> None:
    """G-24: the relay asks what the partition has, whatever went wrong."""
    partitions = Partitions()
    partitions.failures = 1
    async with tm.testing.node() as node:
        sink = partitions.new_sink(node)
        async with asyncio.TaskGroup() as group:
            delivery = group.create_task(sink.deliver([order("a", 1)], "json", are_repeatable=True), name="delivery")
            while not delivery.done():
                await node.advance("1s")
                await asyncio.sleep(0)
        await sink.deliver([order("a", 2)], "json", are_repeatable=True)
    assert partitions.taken == [1, 2]
