"""The contract of sources, one function per promise."""

import asyncio
import inspect
import sqlite3
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import msgspec

from tidemill.graphs.authoring import stream
from tidemill.graphs.definition import Reactor, Source
from tidemill.graphs.graph import Graph
from tidemill.graphs.health import AccumulatorHealth, ReactorHealth
from tidemill.graphs.state import AccumulatorState
from tidemill.node import Node
from tidemill.testing.sources.reading import ACCUMULATOR, POLL_INTERVAL, Numbered, connects, reading, wait_until
from tidemill.testing.sources.under_test import SourceUnderTest

Check: TypeAlias = Callable[[SourceUnderTest], Awaitable[None]]
"""A check of the contract: an async function that raises AssertionError if the source breaks its promise."""

QUICK_RETRIES = {"backoff_base": "20ms", "backoff_max": "100ms"}
FILLER = "x" * 5_000
FILLED_EVENTS = 4_000  # 20 MB in all
CRASH_EVENTS = 600  # more than those after which a stream gives the event loop a turn
MEMORY_LIMIT = 10_000_000  # bytes that a source may hold while nothing takes its events


def checks(*, resumes: bool = True, server: bool = True, loses: bool = False) -> tuple[Check, ...]:
    """Return the checks for a source. Each takes a fresh `SourceUnderTest`, and raises AssertionError.

    `resumes=False` leaves out what a source cannot promise that has no positions to continue from. `server=False`
    leaves out what needs a server that can be stopped. `loses=True` adds what needs a server that can drop events.
    """
    found: list[Check] = [delivers_in_order, ends_when_cancelled, survives_invalid_events]
    if resumes:
        found += [resumes_after_every_checkpoint, repeats_nothing, acknowledges_after_delivery]
        found += [waits_for_a_slow_consumer, reports_no_false_gap, counts_once_after_a_crash]
    if server:
        found += [reports_an_unreachable_server, reports_a_lost_connection]
    if server and resumes:
        found += [loses_nothing_when_the_server_dies]
    if loses:
        found += [reports_a_gap]
    return tuple(found)


async def delivers_in_order(subject: SourceUnderTest) -> None:
    """Every event arrives, once, in the order in which it was appended; every checkpoint can be stored."""
    source = subject.make_source()
    async with reading(source) as consumer:
        await _receive_first(subject, source, lambda: consumer.is_connected, consumer.events)
        await _append(subject, range(1, 51))
        await consumer.until_count(51)
        _compare(consumer.numbers, range(51))


async def resumes_after_every_checkpoint(subject: SourceUnderTest) -> None:
    """A source that is started with the checkpoint of an event, or with one that came alone, continues after it."""
    await _append(subject, range(8))
    async with reading(subject.make_source()) as consumer:
        await consumer.until_count(8)
    for following, checkpoint in consumer.positions:
        if following < 8:
            async with reading(subject.make_source(), checkpoint) as later:
                await later.until_count(8 - following)
                _compare(later.numbers, range(following, 8))


async def repeats_nothing(subject: SourceUnderTest) -> None:
    """A source that is started at the end delivers only what was appended since."""
    await _append(subject, range(5))
    async with reading(subject.make_source()) as consumer:
        await consumer.until_count(5)
    async with reading(subject.make_source(), consumer.events[-1][1]) as later:
        await _append(subject, range(5, 8))
        await later.until_count(3)
        _compare(later.numbers, range(5, 8))


async def acknowledges_after_delivery(subject: SourceUnderTest) -> None:
    """An event whose delivery did not end comes again: from the last checkpoint, and without any."""
    await _append(subject, range(6))
    source = subject.make_source()
    async with reading(source, limit=1) as first:
        await first.until_count(1)
    async with reading(source, limit=4) as second:  # nothing was acknowledged yet
        await second.until_count(4)
        _compare(second.numbers, range(4))
    async with reading(source, second.events[2][1]) as third:
        await third.until_count(3)
        _compare(third.numbers, range(3, 6))


async def reports_no_false_gap(subject: SourceUnderTest) -> None:
    """A source that misses no event reports no gap: not while it reads, and not when it continues."""
    await _append(subject, range(5))
    async with reading(subject.make_source()) as first:
        await first.until_count(5)
    await _append(subject, range(5, 8))
    async with reading(subject.make_source(), first.events[-1][1]) as second:
        await second.until_count(3)
        await _append(subject, range(8, 10))
        await second.until_count(5)
        _compare(second.numbers, range(5, 10))
    gaps = [*first.gaps, *second.gaps]
    assert not gaps, f"no event is missing, and the source reports a gap: {gaps}"


async def reports_a_gap(subject: SourceUnderTest) -> None:
    """A source whose server has dropped events before they were read reports it, and delivers the others."""
    await _append(subject, range(5))
    async with reading(subject.make_source()) as first:
        await first.until_count(5)
    await subject.lose_events()
    await _append(subject, range(5, 8))
    async with reading(subject.make_source(), first.events[2][1]) as second:
        await second.until_count(3)
        _compare(second.numbers, range(5, 8))
    assert second.gaps, "events are missing, and the source reports no gap: use `context.report_gap`"


async def counts_once_after_a_crash(subject: SourceUnderTest) -> None:
    """After a crash of a node with durability "interval", the stored state is that of each event once, in order."""
    source = subject.make_source()
    with TemporaryDirectory() as folder:
        store, crashed = Path(folder, "node.db"), Path(folder, "crashed.db")
        async with _counting(source, store) as node:
            await _connect(source, lambda: _health(node) is AccumulatorHealth.LIVE)
            await _append(subject, range(10))
            await wait_until(lambda: len(_tally(node)) >= 10, lambda: "the first events did not arrive")
            await node.settle()  # a position is stored: without one, a source may begin where it likes
            await _append(subject, range(10, CRASH_EVENTS))
            await wait_until(lambda: len(_tally(node)) > CRASH_EVENTS // 2, lambda: "the events did not arrive")
            _copy_database(store, crashed)  # what a crash leaves behind now
        await _append(subject, range(CRASH_EVENTS, CRASH_EVENTS + 10))
        async with _counting(source, crashed) as node:
            await wait_until(
                lambda: CRASH_EVENTS + 9 in _tally(node),
                lambda: f"the events after the crash did not arrive: {_tally(node)[-10:]}",
            )
            _compare(_tally(node), range(CRASH_EVENTS + 10))


async def ends_when_cancelled(subject: SourceUnderTest) -> None:
    """A source that waits for events closes its connection as soon as its task is cancelled."""
    source = subject.make_source()
    async with reading(source) as consumer:
        await _receive_first(subject, source, lambda: consumer.is_connected, consumer.events)
    for _ in range(100):
        if not (count := await subject.open_connections()):
            return
        await asyncio.sleep(POLL_INTERVAL)  # real time: the server notices it a moment later
    raise AssertionError(f"the server still has {count} connection(s) after the source was cancelled")


async def survives_invalid_events(subject: SourceUnderTest) -> None:
    """An event that does not fit is a dead letter; the source stays connected, and delivers the next one."""
    source = subject.make_source()
    definitions, seen = _watch(source)
    async with Node(load=definitions) as node:
        await _receive_first(subject, source, lambda: _health(node) is AccumulatorHealth.LIVE, seen)
        await subject.append_invalid()
        await _append(subject, [1])
        await wait_until(lambda: seen[-1] == 1, lambda: f"the event after an invalid one did not arrive: {seen}")
        state = _state(node)
        found = (state.health, state.dead_letters, state.restarts)
        expected = (AccumulatorHealth.LIVE, 1, 0)
        assert found == expected, f"health, dead letters and restarts are {found}, not {expected}"


async def waits_for_a_slow_consumer(subject: SourceUnderTest) -> None:
    """While nothing takes its events, a source holds only a few of them."""
    await _append(subject, range(FILLED_EVENTS), FILLER)
    source = subject.make_source()
    async with reading(source, limit=1) as consumer:  # its first start may import a client, which takes memory, too
        await consumer.until_count(1)
    tracemalloc.start()
    try:
        async with reading(source, limit=1) as consumer:
            await consumer.until_count(1)
            for _ in range(50):
                await asyncio.sleep(POLL_INTERVAL)  # real time: what the server sends meanwhile must not pile up
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    total = FILLED_EVENTS * len(FILLER)
    assert peak < MEMORY_LIMIT, f"the source took {peak:,} bytes of {total:,} while its first event was not taken yet"


async def reports_an_unreachable_server(subject: SourceUnderTest) -> None:
    """Without its server the accumulator is never live, and says why; with it, it is."""
    await subject.stop_server()
    source = subject.make_source()
    assert not await connects(source), (
        "the source is live while its server is away: `start` must connect before it returns the iterator"
    )
    definitions, seen = _watch(source)
    async with Node(load=definitions, settings=QUICK_RETRIES) as node:
        await _until_health(node, AccumulatorHealth.DISCONNECTED)
        assert _state(node).reason, "a source without its server must raise an error that says so"
        await subject.start_server()
        await _receive_first(subject, source, lambda: _health(node) is AccumulatorHealth.LIVE, seen)
        await _until_health(node, AccumulatorHealth.LIVE)


async def reports_a_lost_connection(subject: SourceUnderTest) -> None:
    """The accumulator is disconnected while its server is away, its reactor degraded; both are live again after."""
    source = subject.make_source()
    definitions, seen = _watch(source)
    async with Node(load=definitions, settings=QUICK_RETRIES) as node:
        await _receive_first(subject, source, lambda: _health(node) is AccumulatorHealth.LIVE, seen)
        await subject.stop_server()
        await _until_health(node, AccumulatorHealth.DISCONNECTED)
        state = node.reactor("contract").state()
        assert (state.health, state.disconnected) == (ReactorHealth.DEGRADED, [ACCUMULATOR])
        await subject.start_server()
        await _until_health(node, AccumulatorHealth.LIVE)
        assert node.reactor("contract").state().health is ReactorHealth.LIVE


async def loses_nothing_when_the_server_dies(subject: SourceUnderTest) -> None:
    """Events from before and after a crash of the server arrive once, in order, without a gap."""
    source = subject.make_source()
    definitions, seen = _watch(source)
    async with Node(load=definitions, settings=QUICK_RETRIES) as node:
        for life in range(3):
            await _append(subject, range(40 * life, 40 * life + 20))
            await _until_count(seen, 40 * life + 1)
            await subject.stop_server()  # within the delivery
            await _until_health(node, AccumulatorHealth.DISCONNECTED)
            await subject.start_server()
            await _append(subject, range(40 * life + 20, 40 * life + 40))
        await _until_count(seen, 120)
    _compare(seen, range(120))


# -- what the checks share


def _watch(source: Source) -> tuple[list[Reactor | Graph], list[int]]:
    """Return a reactor on the source with a graph, and the list of numbers that the graph sees."""
    seen: list[int] = []

    @stream(source)
    def numbers(event: Numbered) -> Numbered:
        return event

    reactor = Reactor("contract", [numbers], strategy="sequential")
    graph = Graph("watch", reactor=reactor)

    @graph.node
    def see(numbers: Numbered) -> int:
        seen.append(numbers.number)
        return numbers.number

    return [reactor, graph], seen


class Tally(msgspec.Struct, frozen=True):
    """The numbers of the events that a running state has counted."""

    numbers: tuple[int, ...] = ()


def _counting(source: Source, store: Path) -> Node:
    """Return a node with a reactor that counts the events of a source in a running state, and stores it often."""

    @stream(source, state=Tally)
    def numbers(event: Numbered, state: Tally) -> Tally:
        return Tally((*state.numbers, event.number))

    settings = {**QUICK_RETRIES, "checkpoint_interval": "10ms"}
    return Node(f"sqlite:///{store}", load=[Reactor("contract", [numbers], durability="interval")], settings=settings)


def _tally(node: Node) -> list[int]:
    """Return the numbers of the events that were counted."""
    cached = node.reactor("contract").state().cache.get(ACCUMULATOR)
    return [] if cached is None else list(cached["numbers"])


def _copy_database(store: Path, copy: Path) -> None:
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


async def _append(subject: SourceUnderTest, numbers: Iterable[int], filler: str = "") -> None:
    await subject.append([{"number": number, "filler": filler} for number in numbers])


async def _receive_first(
    subject: SourceUnderTest, source: Source, is_connected: Callable[[], bool], received: Sequence[Any]
) -> None:
    """Append event 0, and wait for it. A `start` that says when it has connected is waited for before."""
    await _connect(source, is_connected)
    await _append(subject, [0])
    await wait_until(lambda: bool(received), lambda: "the first event did not arrive")


async def _connect(source: Source, is_connected: Callable[[], bool]) -> None:
    """Wait until a source has connected, if its `start` says so."""
    if inspect.iscoroutinefunction(source.start):
        await wait_until(is_connected, lambda: "the source did not connect")


def _state(node: Node) -> AccumulatorState:
    return node.reactor("contract").state().accumulators[ACCUMULATOR]


def _health(node: Node) -> AccumulatorHealth:
    return _state(node).health


async def _until_health(node: Node, health: AccumulatorHealth) -> None:
    await wait_until(
        lambda: _health(node) is health,
        lambda: f"the accumulator is {_health(node)}, not {health} (reason: {_state(node).reason})",
    )


async def _until_count(seen: Sequence[int], count: int) -> None:
    await wait_until(lambda: len(seen) >= count, lambda: f"got {len(seen)} of {count} events")


def _compare(found: Sequence[int], expected: Sequence[int]) -> None:
    if list(found) == list(expected):
        return
    missing = sorted(set(expected) - set(found))
    repeated = sorted({number for number in found if list(found).count(number) > 1})
    raise AssertionError(
        f"expected the events {expected[0]} to {expected[-1]} in order; got {list(found)[:60]} "
        f"(missing: {missing[:60]}, repeated: {repeated[:60]})"
    )
