"""A snapshot has a stream's state and its offset of one moment, whenever it is taken.

Hypothesis writes what a source delivers, and how the stream takes it. After each step of the event loop the test takes
a snapshot: what the stream holds is then exactly what the events up to the stored offset have changed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.sqlite import create_database
from tidemill.engine.graphs.accumulators.pushes import PUSHES_PER_YIELD
from tidemill.engine.graphs.accumulators.stream import Stream
from tidemill.engine.graphs.checkpoints.capture import CheckpointGroup, checkpoint_groups, take_snapshot
from tidemill.graphs.keys import partition_of
from tidemill.graphs.snapshot import AccumulatorPart, KeyPart, ReactorPart
from tidemill.testing.probes import GraphProbe

Kind = Literal["counted", "suppressed", "raising", "invalid"]
KINDS: tuple[Kind, ...] = ("counted", "suppressed", "raising", "invalid")
FITTING = KINDS[:2]
Delivery = tuple[list[Kind], int]
"""The kinds of the events that a source yields together, and how often they repeat."""
KEYS = 3
PARTITIONS = {"none": 1, "relay": 2, "share": 1}
MANY = PUSHES_PER_YIELD + 10
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Event(tm.Boundary):
    """An event of the source, or a pushed one: its number is 0."""

    number: int
    kind: Kind
    key: int = 0


class Counted(tm.Boundary):
    """The events that a stream has counted: those of its source, by the newest and their number, and pushed ones."""

    newest: int = 0
    read: int = 0
    pushed: int = 0
    key: int = 0


class Numbers:
    """A source of numbered events, from 1 on, in deliveries; the checkpoint of an event is its number."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._deliveries = deliveries
        self.done = asyncio.Event()

    async def start(self, checkpoint: Any) -> AsyncIterator[Any]:
        assert checkpoint is None, "it is read once"
        async for events in self.deliveries():
            yield events if len(events) != 1 else events[0]
        self.done.set()
        await asyncio.Event().wait()

    async def deliveries(self) -> AsyncIterator[list[tuple[Any, int]]]:
        """Yield the events, with their checkpoints."""
        number = 0
        for kinds, times in self._deliveries:
            events = []
            for kind in kinds * times:
                number += 1
                value = {"number": number, "kind": kind, "key": number % KEYS}
                events.append((value if kind != "invalid" else {"key": "?"}, number))
            yield events


class Way(NamedTuple):
    """How a stream takes its events."""

    keys: Literal["none", "relay", "share"] = "none"  # a relay numbers the events for two partitions; a share is of one
    is_async: bool = False
    has_state: bool = True
    is_queued: bool = False


def count(event: Event, state: Counted) -> Counted | None:
    """Count an event."""
    if event.kind == "raising":
        raise ValueError("not this one")
    if event.kind == "suppressed":
        return None
    if not event.number:
        return msgspec.structs.replace(state, pushed=state.pushed + 1, key=event.key)
    return Counted(event.number, state.read + 1, state.pushed, event.key)


def declare(source: Numbers, way: Way) -> list[Any]:
    """Return reactor `r` over stream `numbers`, and a graph."""

    def with_state(event: Event, state: Counted) -> Counted | None:
        return count(event, state)

    async def with_state_later(event: Event, state: Counted) -> Counted | None:
        await asyncio.sleep(0)
        return count(event, state)

    def alone(event: Event) -> Counted | None:
        return count(event, Counted())

    async def alone_later(event: Event) -> Counted | None:
        await asyncio.sleep(0)
        return count(event, Counted())

    functions: list[Callable[..., Any]] = [alone, alone_later, with_state, with_state_later]
    function = functions[2 * way.has_state + way.is_async]
    function.__name__ = "numbers"
    numbers = tm.stream(source, **({"state": Counted} if way.has_state else {}))(function)
    options: dict[str, Any] = {"key": "key", "partitions": PARTITIONS[way.keys]} if way.keys != "none" else {}
    if way.is_queued:
        options |= {"strategy": "sequential", "capacity": 2, "overflow": "block"}
    reactor = tm.Reactor("r", [numbers], **options)
    graph = tm.Graph("g", reactor=reactor)

    async def slow(numbers: Counted) -> None:
        await asyncio.sleep(0)

    def quick(numbers: Counted) -> None:
        pass

    graph.node(slow if way.is_queued else quick)
    return [reactor, graph]


class Snapshots:
    """Takes a snapshot after each step of the loop, and compares it with what the source has delivered."""

    def __init__(self, node: tm.Node, kinds: Sequence[Kind], way: Way) -> None:
        self._groups = checkpoint_groups(GraphProbe.of(node).reactors)
        self._counted = [number for number, kind in enumerate(kinds, 1) if kind == "counted"]
        self._way = way
        self._stored_keys: list[dict[bytes, KeyPart]] = [{} for _ in self._groups]
        self.offset = 0
        self.problems: list[str] = []

    @property
    def streams(self) -> list[Stream]:
        """The stream, or its partitions."""
        return [one.kind for group in self._groups for one in group.accumulators if isinstance(one.kind, Stream)]

    def check(self) -> None:
        """Take one of each partition."""
        for partition, group in enumerate(self._groups):
            self._check_group(partition, group)

    def _check_group(self, partition: int, group: CheckpointGroup) -> None:
        snapshot = take_snapshot(group, 1, AT)
        snapshot.mark_failed()
        stored = self._stored_keys[partition]  # a snapshot has only the keys that have changed
        rows = [row for one in snapshot.keys for row in one.rows]
        stored.update((row.key, msgspec.msgpack.decode(row.payload, type=KeyPart)) for row in rows)
        reactor = msgspec.msgpack.decode(snapshot.parts[0].payload, type=ReactorPart)
        accumulator = msgspec.msgpack.decode(snapshot.parts[1].payload, type=AccumulatorPart)
        keys = list(stored.values())
        offset = accumulator.offset or 0
        self.offset = max(self.offset, offset)
        expected = [one for one in self._counted if one <= offset and self._partition_of(one) == partition]
        name = group.accumulators[0].name
        if self._way.has_state:
            states = [one.states[name] for one in keys] if self._way.keys != "none" else [accumulator.state or b""]
            found = sum(msgspec.msgpack.decode(one, type=Counted).read for one in states)
            wanted = len(expected)
        else:
            caches = [one.cache for one in (reactor, *keys)]  # type: ignore[attr-defined]
            values = [msgspec.msgpack.decode(one[name], type=Counted) for one in caches if name in one]
            found, wanted = max((one.newest for one in values), default=0), max(expected, default=0)
        if found != wanted:
            self.problems.append(f"partition {partition}, offset {offset}: {found} instead of {wanted}")

    def _partition_of(self, number: int) -> int:
        return partition_of(number % KEYS, PARTITIONS[self._way.keys])

    @contextmanager
    def after_each_step(self) -> Iterator[None]:
        """Take one after each callback of the event loop within the block."""
        run = asyncio.Handle._run

        def run_and_check(handle: asyncio.Handle) -> None:
            run(handle)
            self.check()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", run_and_check)
            yield


async def play(deliveries: Sequence[Delivery], way: Way, pushes: int) -> None:
    """Let a node read the deliveries, with pushes in between."""
    source = Numbers(deliveries)
    kinds = [kind for kinds, times in deliveries for kind in kinds * times]
    definitions = declare(Numbers([]) if way.keys == "share" else source, way)
    async with new_store() as store, tm.Node(store, load=definitions, settings={"checkpoint_interval": "1h"}) as node:
        snapshots = Snapshots(node, kinds, way)
        with snapshots.after_each_step():
            for number in range(pushes if way.has_state else 0):
                await node.push("numbers", {"number": 0, "kind": "counted", "key": number % KEYS})
                await asyncio.sleep(0)
            if way.keys == "share":  # as the reader of a partition's share of a topic delivers it
                await deliver_to(snapshots.streams[0], source)
            async with asyncio.timeout(20):
                await source.done.wait()
            snapshots.check()
        assert sum(one.accumulator.dead_letters.total for one in snapshots.streams) == len(kinds) - sum(
            map(FITTING.count, kinds)
        )
    assert snapshots.problems == []
    assert snapshots.offset == len(kinds)


@asynccontextmanager
async def new_store() -> AsyncIterator[str]:
    """Make an empty store: without one, no reactor notes which keys have changed."""
    with TemporaryDirectory() as folder:
        create_database(Path(folder, "tidemill.db"))
        yield f"sqlite:///{folder}/tidemill.db"


async def deliver_to(stream: Stream, source: Numbers) -> None:
    """Deliver everything that a source has."""
    async for delivery in source.deliveries():
        await stream.on_events(delivery)
    source.done.set()


KEYED = st.sampled_from(["none", "relay", "share"])
WAYS = st.builds(Way, KEYED, st.booleans(), st.just(True), st.booleans()) | st.builds(
    Way, KEYED, st.booleans(), st.just(False), st.just(False)
)
FEW = st.tuples(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.just(1))
LONG = st.tuples(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2), st.just(MANY))


@example([(["counted"], MANY)], Way(), 0)
@example([(["counted"], MANY)], Way("share"), 0)
@example([(["counted"], MANY)], Way(has_state=False), 0)
@example([(["counted"], MANY)], Way("share", has_state=False), 0)
@settings(max_examples=25)
@given(st.lists(FEW | LONG, min_size=1, max_size=3), WAYS, st.integers(0, 5))
def test_state_and_offset_of_every_snapshot_are_of_one_moment(
    deliveries: list[Delivery], way: Way, pushes: int
) -> None:
    """G-6, G-23: plain and keyed streams, with and without a running state, a queue and an asynchronous function."""
    asyncio.run(play(deliveries, way, pushes))


class Endless:
    """A source of numbers, which continues after a checkpoint until it has sent the last one."""

    async def start(self, checkpoint: int | None) -> AsyncIterator[tuple[dict[str, Any], int]]:
        for number in range((checkpoint or 0) + 1, 6):
            yield {"number": number, "kind": "counted"}, number
        await asyncio.Event().wait()


@pytest.mark.parametrize("is_async_later", [True, False])
async def test_a_call_that_outlives_its_reader_moves_the_offset_when_it_ends(is_async_later: bool) -> None:
    """G-6: a newer version reads on, and its events wait; a crash until then repeats the event, and loses none."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(event: Event, state: Counted) -> Counted | None:
        if event.number == 2:
            begun.set()
            await go.wait()
        return count(event, state)

    async def later(event: Event, state: Counted) -> Counted | None:
        return count(event, state)

    def at_once(event: Event, state: Counted) -> Counted | None:
        return count(event, state)

    def reactor_with(function: Callable[..., Any]) -> tm.Reactor:
        function.__name__ = "numbers"
        return tm.Reactor("r", [tm.stream(Endless(), state=Counted)(function)])

    async with new_store() as store, tm.Node(store, load=[reactor_with(slow)]) as node:
        await asyncio.wait_for(begun.wait(), 10)
        await node.load(reactor_with(later if is_async_later else at_once))
        snapshots = Snapshots(node, ["counted"] * 5, Way())
        with snapshots.after_each_step():
            for _ in range(20):
                await asyncio.sleep(0)
            assert snapshots.offset == 1
            go.set()
            async with asyncio.timeout(10):
                while snapshots.offset < 5:  # noqa: ASYNC110 - a source says nothing when it is read
                    await asyncio.sleep(0)
        assert snapshots.problems == []
        assert node.reactor("r").state().cache["numbers"] == {"newest": 5, "read": 5, "pushed": 0, "key": 0}
