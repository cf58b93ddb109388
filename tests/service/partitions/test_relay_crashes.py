"""Sources that cannot be split, across a crash of the node that reads them for all partitions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, Order, keyed, order
from tidemill.access.principal import Caller
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relay_sink import RelaySink, SourceMark, WentBackError, sendable_forms
from tidemill.engine.graphs.partitions.relays import ReaderListener, SourceRelays
from tidemill.graphs.pushes import RelayProgress
from tidemill.kernel.errors import OperationError, RequestError, StoreError
from tidemill.storage.graph_ports import PartKey

KEYS = ["a", "b", "c"]
PUBLIC = Caller("public", "test")


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
        self.stored: dict[PartKey, int] = {}
        self.failures = 0

    async def bring(
        self, part: PartKey, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Take events that are new; the answer is lost as often as there are failures."""
        assert encoding == "json"
        newest = self.newest.get(part, 0)
        if newest >= after:
            self.taken += [event["number"] for event, at in zip(events, numbers, strict=True) if at > newest]
            self.newest[part] = max([newest, *numbers])
        if self.failures and events:
            self.failures -= 1
            raise OperationError("the answer is lost")
        return RelayProgress(self.newest[part] if newest >= after else newest, self.stored.get(part, 0))

    def new_sink(self, node: tm.testing.TestNode) -> RelaySink:
        """Return the sink of a node that begins to read the source."""
        runtime = node._scheduler.runtime
        reactor = PartitionedReactor(keyed().reactor, "public", runtime.clock.now())
        return RelaySink(reactor, "placed", runtime=runtime, bring=self.bring)


class NarrowPartitions(Partitions):
    """Partitions of another node, to which only small requests can be sent."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    async def bring(
        self, part: PartKey, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Refuse what is too large."""
        if len(msgspec.msgpack.encode(events)) > self.limit:
            raise RequestError("too large", code="invalid_value")
        known = [event if isinstance(event, dict) else {"number": "dead letter"} for event in events]
        return await super().bring(part, known, encoding, numbers, after)


async def test_events_that_are_too_large_together_are_sent_in_parts() -> None:
    """G-4: in order, and each once. One that is too large alone becomes a dead letter."""
    partitions = NarrowPartitions(limit=1_200)
    async with tm.testing.node("memory://") as node:
        events = [order("a", number) | {"filler": "x" * (2_000 if number == 9 else 400)} for number in range(1, 20)]
        await partitions.new_sink(node).deliver(events, "json", "offset", replays=True)
    expected: list[Any] = list(range(1, 20))
    assert partitions.taken == expected, "only the field that the annotation does not name was too large"
    partitions = NarrowPartitions(limit=1_200)
    async with tm.testing.node("memory://") as node:
        events = [order("a" * 2_000 if number == 9 else "a", number) for number in range(1, 20)]
        await partitions.new_sink(node).deliver(events, "json", "offset", replays=True)
    expected[8] = "dead letter"
    assert sorted(partitions.taken, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("annotation", [bytes, Any, str, dict[str, Any], bytes | None, Order])
async def test_an_event_that_cannot_be_sent_becomes_a_dead_letter_of_any_annotation(
    annotation: Any, encoding: str
) -> None:
    """G-7: what its partition gets instead must not reach the author's function as an event."""
    seen: list[Any] = []

    def placed(event: Any) -> Any:
        seen.append(event)
        return event

    placed.__annotations__ = {"event": annotation, "return": annotation}
    reactor = tm.Reactor("orders", [tm.passthrough(placed)], key=lambda _: "a", partitions=4)
    async with tm.testing.node("memory://", load=[reactor]) as node:
        partitioner = node._scheduler.loaded.keyed["public", "orders"].partitioners["placed"]
        *_, last = sendable_forms(partitioner, b"x" * 2_000, encoding)
        receipt = (
            await node._scheduler.loaded.reactor("public", "orders[3]").accumulators[0].pushes.push(last, encoding)
        )
        assert (receipt.outcome, seen) == ("dead_lettered", [])
        (dead_letter,) = await node.graph_client.dead_letters.list_of(PUBLIC, "accumulator", "placed")
        assert "cannot be sent to the node of its partition" in str(dead_letter.event)


@pytest.mark.parametrize("offset", [3, None])
@pytest.mark.parametrize("replays", [True, None, False])
async def test_only_a_source_that_replays_repeats_events(offset: int | None, replays: bool | None) -> None:
    """G-4: after a crash, events of other sources are new; a relay that takes them for repeated ones loses them."""
    partitions = Partitions()
    events = [order(key, number) for number, key in enumerate(KEYS, 1)]
    async with tm.testing.node("memory://") as node:
        for _ in range(2):
            await partitions.new_sink(node).deliver(events, "json", offset, replays)
    assert sorted(partitions.taken) == ([1, 2, 3] if offset and replays else [1, 1, 2, 2, 3, 3])


async def test_events_after_a_gap_are_new() -> None:
    """G-4: a source that has lost the events after its offset sends newer ones, whose numbers others had."""
    partitions = Partitions()
    async with tm.testing.node("memory://") as node:
        await partitions.new_sink(node).deliver([order("a", 1), order("a", 2)], "json", "offset 2", replays=True)
        sink = partitions.new_sink(node)
        sink.on_history_lost()
        await sink.deliver([order("a", 3)], "json", "offset 3", replays=True)
        assert partitions.taken == [1, 2, 3]
        part = max(partitions.newest, key=lambda one: partitions.newest[one])
        partitions.newest[part] = 2  # its host dies before it has stored the third
        with pytest.raises(WentBackError):
            await sink.ask_unstored()
        sink.go_to(sink.find_stored())
        await sink.deliver([order("a", 3)], "json", "offset 3", replays=True)
    assert partitions.taken == [1, 2, 3, 3], "the numbers after the gap are the same when they are read again"


async def test_a_restart_between_a_gap_and_the_next_event_loses_none() -> None:
    """G-4: the stored offset stays before the gap until an event has got its number, so the next reader meets it."""
    partitions = Partitions()
    async with tm.testing.node("memory://") as node:
        sink = partitions.new_sink(node)
        await sink.deliver([order("a", 1)], "json", "offset 1", replays=True)
        (part,) = partitions.newest
        partitions.stored[part] = 1
        await sink.ask_unstored()
        stored = sink.find_stored()
        await sink.deliver([order("a", 2)], "json", "offset 2", replays=True)
        sink = partitions.new_sink(node)  # its predecessor crashed before it stored the second offset
        sink.go_to(stored)
        sink.on_history_lost()
        sink.move_to("start of the new history")
        assert sink.find_stored() == stored == (1, "offset 1")
        sink = partitions.new_sink(node)
        assert sink.go_to(stored) == "offset 1"
        sink.on_history_lost()
        sink.move_to("start of the new history")
        await sink.deliver([order("a", 3)], "json", "offset 3", replays=True)
        assert partitions.taken == [1, 2, 3]
        partitions.stored[part] = 3
        await sink.ask_unstored()
        assert sink.find_stored() == (3, "offset 3"), "the gap has passed"


class SilentPartitions(Partitions):
    """Partitions that do not answer at first."""

    is_silent = True

    async def bring(
        self, part: PartKey, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Answer what a relay asks, unless silent."""
        if self.is_silent and not events:
            raise OperationError("no answer")
        return await super().bring(part, events, encoding, numbers, after)


async def test_the_offset_after_a_gap_is_stored_once_the_numbers_continue() -> None:
    """G-4: a source that began anew may have passed the older offset at the next start, and show no gap there."""
    partitions = SilentPartitions()
    async with tm.testing.node("memory://") as node:
        partitions.is_silent = False
        await partitions.new_sink(node).deliver([order("a", 1), order("a", 2)], "json", "offset 2", replays=True)
        sink = partitions.new_sink(node)
        sink.go_to(SourceMark(1, "offset 1"))
        sink.on_history_lost()
        sink.move_to("start of the new history")
        partitions.is_silent = True
        await sink.pass_gap()
        assert sink.find_stored() == (1, "offset 1"), "no partition has said what it has taken"
        partitions.is_silent = False
        await sink.pass_gap()
        stored = sink.find_stored()
        assert stored == (2, "start of the new history")
        sink = partitions.new_sink(node)
        sink.go_to(stored)
        await sink.deliver([order("a", 3)], "json", "offset 3", replays=True)
    assert partitions.taken == [1, 2, 3]


class HeldPartitions(Partitions):
    """Partitions whose answers a test holds back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.waiting = 0
        self.asked, self.delivered = asyncio.Event(), asyncio.Event()

    async def bring(
        self, part: PartKey, events: Sequence[Any], encoding: str, numbers: Sequence[int], after: int
    ) -> RelayProgress:
        """Hold what a relay asks now, and the answer to events."""
        if self.holds and not events:
            self.waiting += 1
            await self.asked.wait()
        progress = await super().bring(part, events, encoding, numbers, after)
        if events:
            await self.delivered.wait()
        return progress


async def test_an_event_that_comes_while_a_gap_is_passed_keeps_its_number() -> None:
    """G-4: the partitions may have taken it when they answer; the offset before it must not count as after it."""
    partitions = HeldPartitions()
    async with asyncio.timeout(10), tm.testing.node("memory://") as node:
        sink = partitions.new_sink(node)
        sink.on_history_lost()
        sink.move_to("start of the new history")
        async with asyncio.TaskGroup() as group:
            partitions.holds = True
            passing = group.create_task(sink.pass_gap(), name="gap")
            while partitions.waiting < PARTITIONS:  # noqa: ASYNC110 - until all are asked
                await asyncio.sleep(0)
            partitions.holds = False
            group.create_task(sink.deliver([order("a", 1)], "json", "offset 1", replays=True), name="delivery")
            while not partitions.taken:  # noqa: ASYNC110 - until it is taken, and its answer is held
                await asyncio.sleep(0)
            partitions.asked.set()
            await passing
            partitions.delivered.set()
        assert (sink.number, partitions.taken) == (1, [1])


async def test_a_delivery_that_is_cut_off_costs_no_later_event() -> None:
    """G-4: a source that cannot go back may continue with other events than those that were taken."""
    partitions = Partitions()
    async with tm.testing.node("memory://") as node:
        sink = partitions.new_sink(node)
        await sink.deliver([order("a", 1)], "json", None, replays=False)
        partitions.failures = 1
        async with asyncio.TaskGroup() as group:
            work = sink.deliver([order("a", 2)], "json", None, replays=False)
            delivery = group.create_task(work, name="cut off")
            while partitions.failures:  # noqa: ASYNC110 - until it has been taken, and the answer is lost
                await asyncio.sleep(0)
            delivery.cancel()
        await sink.deliver([order("a", 3)], "json", None, replays=False)
    assert partitions.taken == [1, 2, 3]


async def test_a_push_whose_answer_is_lost_is_not_applied_again() -> None:
    """G-24: the relay asks what the partition has, whatever went wrong."""
    partitions = Partitions()
    partitions.failures = 1
    async with tm.testing.node() as node:
        sink = partitions.new_sink(node)
        async with asyncio.TaskGroup() as group:
            delivery = group.create_task(sink.deliver([order("a", 1)], "json", 1, replays=True), name="delivery")
            while not delivery.done():
                await node.advance("1s")
                await asyncio.sleep(0)
        await sink.deliver([order("a", 2)], "json", 2, replays=True)
    assert partitions.taken == [1, 2]


async def test_the_stored_offset_waits_for_the_slowest_partition() -> None:
    """G-6: what a crash makes a partition forget is read again."""
    partitions = Partitions()
    async with tm.testing.node("memory://") as node:
        sink = partitions.new_sink(node)
        for number, key in enumerate("acac", 1):
            await sink.deliver([order(key, number)], "json", f"offset {number}", replays=True)
        first, second = sorted(partitions.newest, key=lambda part: partitions.newest[part])
        assert sink.find_stored() == (0, None)
        partitions.stored = {first: 3, second: 2}
        await sink.ask_unstored()
        assert sink.find_stored() == (2, "offset 2")
        partitions.stored[second] = 4
        await sink.ask_unstored()
        assert sink.find_stored() == (4, "offset 4")


async def test_a_partition_that_comes_back_older_gets_its_events_again() -> None:
    """G-6: also if the source has sent nothing for it since; the offset does not pass what it has lost."""
    partitions = Partitions()
    async with tm.testing.node("memory://") as node:
        sink = partitions.new_sink(node)
        await sink.deliver([order("a", 1), order("a", 2)], "json", "offset 2", replays=True)
        (part,) = partitions.newest
        partitions.newest[part] = partitions.stored[part] = 1
        with pytest.raises(WentBackError, match=r"partition .* has its events up to 1, and had those up to 2"):
            await sink.ask_unstored()
        with pytest.raises(WentBackError):
            await sink.deliver([order("a", 3)], "json", "offset 3", replays=True)
        assert sink.go_to(sink.find_stored()) is None, "the source is read from its start"
        await sink.deliver([order("a", number) for number in (1, 2, 3)], "json", "offset 3", replays=True)
    assert partitions.taken == [1, 2, 2, 3]


class OffsetStore:
    """Stores offsets; the first reads fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.reads = 0

    async def read_parts(self, keys: Sequence[PartKey]) -> list[Any]:
        """Return that nothing is stored."""
        assert keys
        self.reads += 1
        if self.reads <= self.failures:
            raise StoreError("the database does not answer")
        return []


def relays_of(node: tm.testing.TestNode, store: Any) -> tuple[SourceRelays, PartitionedReactor]:
    """Return relays on a store of offsets, and a reactor with a poll."""

    @tm.polling(every="1h")
    def placed() -> Order:
        return Order("a", 1)

    runtime = node._scheduler.runtime
    relays = SourceRelays(runtime, store, node._parts.foundation.ownership, listener=ReaderListener())
    relays.bring = Partitions().bring
    relays.mark_source = node._scheduler.sharing.relays.mark_source
    reactor = tm.Reactor("orders", [placed], key="key", partitions=4)
    return relays, PartitionedReactor(reactor, "public", runtime.clock.now())


async def test_a_relay_starts_when_the_store_answers_again() -> None:
    """G-19: the reader of a source shows as starting until then."""
    async with tm.testing.node("memory://") as node:
        relays, reactor = relays_of(node, store := OffsetStore(failures=2))
        for _ in range(2):
            with pytest.raises(StoreError):
                await relays.run_for(reactor)
            assert [one.reader.health for one in relays.of(reactor.key)] == ["starting"]
        for _ in range(2):
            await relays.run_for(reactor)
            assert [one.reader.health for one in relays.of(reactor.key)] == ["live"]
        await relays.stop_for(reactor)
    assert store.reads == 3


async def test_a_relay_that_stops_and_starts_at_once_has_one_writer_of_its_offset() -> None:
    """G-6: two would overwrite each other's offset."""
    async with tm.testing.node("memory://") as node:
        relays, reactor = relays_of(node, OffsetStore())
        for _ in range(5):
            await relays.run_for(reactor)
            writers = [one for one in asyncio.all_tasks() if one.get_name() == "relays of orders"]
            assert len(writers) == 1
            await relays.stop_for(reactor)
        assert not [one for one in asyncio.all_tasks() if one.get_name() == "relays of orders"]


async def test_a_relay_that_has_not_read_its_offset_writes_none() -> None:
    """G-6: the partitions may not have stored what the reader before it has delivered."""
    async with tm.testing.node("memory://") as node:
        relays, reactor = relays_of(node, OffsetStore(failures=1))
        with pytest.raises(StoreError):
            await relays.run_for(reactor)
        (relay,) = relays.of(reactor.key)
        relay.continue_at(SourceMark(5, "delivered, and not stored"))
        assert relay.mark == SourceMark(0, None)
        await relays.run_for(reactor)
        assert relay.mark == SourceMark(0, None)
        await relays.stop_for(reactor)
