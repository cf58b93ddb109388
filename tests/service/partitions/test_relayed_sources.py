"""A source that cannot be split, read for a keyed reactor by one node of several: another one continues it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.damage import look_at
from tests.system.partition_host import Step, Total
from tidemill.access.principal import Caller
from tidemill.engine.graphs.sources.reader import open_reader
from tidemill.telemetry.metrics import Sample

KEYS = [f"key {number}" for number in range(10)]
PUBLIC = Caller("public", "test")
SOURCE_LABELS = (("accumulator", "steps"), ("tenant", "public"))
STEPS = 300  # looks at the nodes until a test gives up


class Log:
    """A log whose events go round the keys. It can be read from any position, up to what has been written."""

    replays: bool | None = True

    def __init__(self) -> None:
        self.written = 0
        self.starts: list[int] = []

    async def start(self, checkpoint: int | None) -> AsyncIterator[tuple[Any, int]]:
        """Yield the events after a position, as they are written."""
        position = checkpoint or 0
        self.starts.append(position)
        while True:
            if position < self.written:
                event = {"key": KEYS[position % len(KEYS)], "number": position // len(KEYS) + 1}
                position += 1
                yield event, position
            else:
                await asyncio.sleep(0.001)


class ReadingNode(tm.testing.TestNode):
    """A test node that reads its sources."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"_profile": {"open_reader": open_reader}})


def counters(log: Log, durability: Any = "boundary") -> list[Any]:
    """Return a keyed reactor that counts the events of each key of a log, and those out of order."""

    @tm.stream(log, state=Total)
    def steps(event: Step, state: Total) -> Total:
        return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))

    return [tm.Reactor("counters", [steps], durability=durability, key="key", partitions=4)]


async def until(condition: Callable[[], bool], *nodes: tm.testing.TestNode) -> None:
    """Let time pass on these nodes until a condition holds."""
    for _ in range(STEPS):
        if condition():
            return
        for node in nodes:
            await node.advance("200ms")
        await asyncio.sleep(0.002)  # the log needs real time
    raise AssertionError([node.reactor("counters").state() for node in nodes])


def processed(*nodes: tm.testing.TestNode) -> int:
    """Return how many events the partitions of these nodes have taken, over all keys."""
    states = (node.reactor("counters").state() for node in nodes)
    return sum(state.accumulators["steps"].emitted for state in states if state.accumulators)


async def check_totals(node: tm.testing.TestNode, log: Log) -> None:
    """Check that the events of each key count once, in order, in the state of a node that runs all partitions."""
    expected = [len(range(index, log.written, len(KEYS))) for index in range(len(KEYS))]
    totals = [(await node.reactor("counters").state_of(key)).cache["steps"] for key in KEYS]
    assert totals == [{"count": count, "last": count, "disorder": 0} for count in expected]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_another_node_continues_the_source_of_a_dead_one(tmp_path: Path, kind: str) -> None:
    """G-6, G-24: from the stored offset. Events that are read again are recognized: each counts once, in order."""
    address = f"memory://{tmp_path.name}" if kind == "memory" else f"sqlite:///{tmp_path}/tidemill.db"
    log = Log()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        first, second = nodes = await two_nodes(stack, address, log)
        log.written = 57
        await until(lambda: processed(*nodes) == 57, *nodes)
        await first.advance("1s")  # stores the offset
        log.written = 80
        while processed(*nodes) == 57:  # noqa: ASYNC110 - until more are delivered; no offset is stored after them
            await asyncio.sleep(0.001)
        await first.kill()
        log.written = 123
        await until(lambda: processed(second) == 123, second)
        await check_totals(second, log)
        assert log.starts == [0, 57], "one node at a time reads, and the second one continues after the stored offset"


async def two_nodes(
    stack: AsyncExitStack, address: str, log: Log, durability: str = "boundary"
) -> tuple[tm.testing.TestNode, tm.testing.TestNode]:
    """Return two nodes that share the partitions of the counters; the first one reads the log."""
    first = await stack.enter_async_context(ReadingNode(address, load=counters(log, durability)))
    second = await stack.enter_async_context(ReadingNode(address, load=counters(log, durability)))
    await until(lambda: len(second.reactor("counters").state().partitions) == 2, first, second)
    return first, second


class Session:
    """A session at a broker, which sends each event until it is acknowledged, and never again."""

    def __init__(self, replays: bool | None, checkpoint: Any) -> None:
        self.replays = replays
        self.checkpoint = checkpoint
        self.waiting: deque[int] = deque()
        self.acknowledged: list[int] = []

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Yield what waits in the session, whatever the checkpoint is."""
        assert checkpoint in (None, self.checkpoint)
        while True:
            while self.waiting:
                number = self.waiting[0]
                yield {"key": KEYS[number % len(KEYS)], "number": number}, self.checkpoint
                self.acknowledged.append(self.waiting.popleft())
            await asyncio.sleep(0.001)


def readers_of(session: Session, durability: str, seen: list[int]) -> list[Any]:
    """Return a keyed reactor on a session, and a graph that notes what it sees."""

    @tm.stream(session)
    def steps(event: Step) -> Step:
        return event

    options: dict[str, Any] = {"durability": durability, "key": "key", "partitions": 4}
    reactor = tm.Reactor("counters", [steps], strategy="sequential", **options)
    graph = tm.Graph("notes", reactor=reactor)

    @graph.node
    def note(steps: Step) -> None:
        seen.append(steps.number)

    return [reactor, graph]


SLOW_WRITES = {"checkpoint_interval": "3s"}


@pytest.mark.parametrize("checkpoint", [None, "session"])
@pytest.mark.parametrize("replays", [None, False])
@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
async def test_no_event_is_taken_for_a_repeated_one_after_an_orderly_stop(
    tmp_path: Path, durability: str, replays: bool | None, checkpoint: Any
) -> None:
    """G-4: a source that cannot go back continues with new events, and all count."""
    session, seen = Session(replays, checkpoint), list[int]()
    for life in range(3):
        load = readers_of(session, durability, seen)
        async with ReadingNode(f"sqlite:///{tmp_path}/tidemill.db", load=load, settings=SLOW_WRITES) as node:
            session.waiting.extend(range(30 * life, 30 * life + 30))
            await until(lambda: not session.waiting, node)
    assert session.acknowledged == list(range(90))
    assert set(seen) == set(range(90))


@pytest.mark.parametrize("checkpoint", [None, "session"])
@pytest.mark.parametrize("replays", [None, False])
async def test_no_acknowledged_event_of_a_source_that_cannot_go_back_is_lost_in_a_crash(
    replays: bool | None, checkpoint: Any
) -> None:
    """G-24: "boundary" stores an event before it is acknowledged, and the next ones are new."""
    session, seen = Session(replays, checkpoint), list[int]()
    node: tm.testing.TestNode = ReadingNode(
        "memory://", load=readers_of(session, "boundary", seen), settings=SLOW_WRITES
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(node)
        for life in range(3):
            session.waiting.extend(range(30 * life, 30 * life + 30))
            await until(lambda: not session.waiting, node)
            node = await node.crash()
        await node.settle()
    assert session.acknowledged == list(range(90))
    assert set(seen) == set(range(90))


class OddLog(Log):
    """A log with a column that no other node can be sent, and with some events that are nothing else."""

    async def start(self, checkpoint: int | None) -> AsyncIterator[Any]:
        """Yield all events that are written so far at once."""
        while not self.written:  # noqa: ASYNC110 - the log needs real time
            await asyncio.sleep(0.001)
        first = checkpoint or 0
        events = [({"key": KEYS[n % len(KEYS)], "number": n, "odd": object()}, n) for n in range(first, self.written)]
        yield [(object(), at) if at % 10 == 7 else (event, at) for event, at in events]
        await asyncio.Event().wait()


async def test_an_event_that_cannot_be_sent_stops_none_behind_it(tmp_path: Path) -> None:
    """G-7: what its annotation does not need stays behind; what is no event at all becomes a dead letter."""
    log = OddLog()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        nodes = await two_nodes(stack, f"memory://{tmp_path.name}", log)
        log.written = 100
        await until(lambda: processed(*nodes) == 90, *nodes)
        states = [node.reactor("counters").state().accumulators["steps"] for node in nodes]
        assert sum(one.dead_letters for one in states) == 10


class BrokenLog(Log):
    """A log that has lost events, and is refused after its first event."""

    async def start(self, checkpoint: int | None, context: tm.sources.SourceContext) -> AsyncIterator[Any]:  # type: ignore[override]
        """Report a gap, yield one event, and fail."""
        self.starts.append(checkpoint or 0)
        if self.written:
            context.report_gap("five are missing")
            yield {"key": KEYS[0], "number": 1}, 1
            raise tm.Fail("refused")
        await asyncio.Event().wait()


async def test_a_relayed_source_that_has_failed_shows_on_every_node_and_is_revived(tmp_path: Path) -> None:
    """G-9, G-20: as that of a reactor without a key, from nodes that do not read it, too."""
    log = BrokenLog()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        nodes = await two_nodes(stack, f"memory://{tmp_path.name}", log)
        log.written = 1
        await nodes[1].restart_accumulator("steps")
        await until(lambda: nodes[0].reactor("counters").state().health == "degraded", *nodes)
        for node in nodes:
            client = node.graph_client
            report = (await client.health_reports(PUBLIC))["counters"]
            assert [(one.name, one.health) for one in report.unhealthy] == [("steps", "failed")]
            view = await client.accumulator(PUBLIC, "steps")
            assert (view.health, "refused" in (view.reason or "")) == ("failed", True)
            state = await client.reactor_state(PUBLIC, "counters")
            assert (state.health, state.disconnected) == ("degraded", ["steps"])
            actions = [one.action for one in await client.recoveries(PUBLIC, "counters") if one.name == "steps"]
            assert actions == ["failed", "gap", "restarted"]
        events = nodes[0].reactor("counters").events()[::-1]
        assert [one.action for one in events if one.name == "steps"] == ["restarted", "gap", "failed"]
        assert Sample("accumulator_gaps_total", 1, SOURCE_LABELS) in nodes[0]._metrics.samples()
        for revive in (lambda: nodes[1].restart_accumulator("steps"), nodes[1].reactor("counters").restart):
            starts = len(log.starts)
            await revive()
            await until(lambda: len(log.starts) > starts, *nodes)  # noqa: B023 - awaited here
            await until(lambda: nodes[0].reactor("counters").state().health == "degraded", *nodes)


class UnsteadyLog(Log):
    """A log that cannot be reached at times."""

    is_away = False

    async def start(self, checkpoint: int | None) -> AsyncIterator[Any]:
        """Yield the events after a position, as long as the log can be reached."""
        async with aclosing(super().start(checkpoint)) as events:
            async for event in events:
                yield event
                while self.written == event[1]:  # all are read
                    if self.is_away:
                        raise tm.sources.Disconnected("the log is away")
                    await asyncio.sleep(0.001)


async def test_firings_of_all_partitions_say_that_their_source_is_lost(tmp_path: Path) -> None:
    """G-9: on every node, from the loss of the source until it is back."""
    log = UnsteadyLog()

    async def find_degraded(nodes: Sequence[tm.testing.TestNode]) -> set[bool]:
        return {(await nodes[0].reactor("counters").force_fire(key)).degraded for key in KEYS}

    async with asyncio.timeout(30), AsyncExitStack() as stack:
        nodes = await two_nodes(stack, f"memory://{tmp_path.name}", log)
        for written in (10, 20):
            log.written, log.is_away = written, False
            await until(lambda count=written: processed(*nodes) == count, *nodes)  # type: ignore[misc]
            while await find_degraded(nodes) != {False}:  # the other node may not know it yet
                await nodes[0].advance("200ms")
            log.is_away = True
            while await find_degraded(nodes) != {True}:
                await nodes[0].advance("200ms")


class FilteredLog(Log):
    """A log whose events are left out by a filter: its position moves without an event."""

    async def start(self, checkpoint: int | None) -> AsyncIterator[Any]:
        """Yield the positions up to which there was nothing to deliver."""
        self.starts.append(checkpoint or 0)
        while True:
            yield tm.sources.Moved(self.written)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("durability", ["interval", "boundary"])
async def test_a_position_that_moved_without_an_event_is_continued(tmp_path: Path, durability: str) -> None:
    """G-6: the next process does not read again what the source has left out."""
    log = FilteredLog()
    for _ in range(2):
        log.written += 40
        async with ReadingNode(f"sqlite:///{tmp_path}/tidemill.db", load=counters(log, durability)) as node:
            for _ in range(3):
                await node.advance("1s")
                await asyncio.sleep(0.005)  # the log needs real time
    assert log.starts == [0, 40]


@pytest.mark.parametrize("victim", [0, 1], ids=["reader", "other host"])
@pytest.mark.parametrize("durability", ["interval", "fire"])
async def test_each_event_of_a_source_counts_once_although_a_host_dies(
    tmp_path: Path, durability: str, victim: int
) -> None:
    """G-6: partitions store the numbers of the events with their state, and the source is read again after the oldest.

    The host that dies has taken events that it has not stored. Those of the other one are not applied again.
    """
    log = Log()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        nodes = list(await two_nodes(stack, f"memory://{tmp_path.name}-{durability}", log, durability))
        log.written = 57
        await until(lambda: processed(*nodes) == 57, *nodes)
        for node in nodes:
            await node.advance("1s")
        log.written = 83
        for _ in range(200):  # no time passes on the nodes' clocks: with "interval", nothing is stored
            await asyncio.sleep(0.001)
            if processed(*nodes) == 83:
                break
        await nodes.pop(victim).kill()
        (last,) = nodes
        await until(lambda: processed(last) == 83, last)
        log.written = 123
        await until(lambda: processed(last) == 123, last)
        await check_totals(last, log)


@pytest.mark.parametrize("step", ["0ms", "110ms", "190ms"])
@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_each_event_of_a_source_counts_once_over_many_crashes(durability: str, step: str) -> None:
    """G-6: whenever the crashes come between the writes of the partitions and of the source's offset."""
    log = Log()
    node: tm.testing.TestNode = ReadingNode("memory://", load=counters(log, durability))
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        await stack.enter_async_context(node)
        for count in range(1, 13):
            log.written = count
            for _ in range(5):
                await asyncio.sleep(0.001)  # the log needs real time
            await node.advance(step)
            if count % 3 == 0:
                node = await node.crash()
        await until(lambda: processed(node) >= log.written, node)
        await check_totals(node, log)


async def test_each_event_of_a_source_counts_once_after_days_without_a_node() -> None:
    """G-6: a producer is forgotten after a day, and a source is none of those."""
    log = Log()
    node: tm.testing.TestNode = ReadingNode("memory://", load=counters(log), settings=SLOW_WRITES)
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        await stack.enter_async_context(node)
        log.written = 57
        while processed(node) < 57:  # noqa: ASYNC110 - no time passes on the node's clock: no offset is stored
            await asyncio.sleep(0.001)
        node.clock.step("72h")
        node = await node.crash()
        log.written = 60
        await until(lambda: processed(node) >= 60, node)
        await check_totals(node, log)
    assert log.starts == [0, 0]


async def test_the_doctor_finds_nothing_wrong_with_relayed_partitions(tmp_path: Path) -> None:
    """Neither while the nodes run, nor after one was killed, nor after all have closed."""
    path, log = tmp_path / "tidemill.db", Log()
    async with asyncio.timeout(30), AsyncExitStack() as stack:
        nodes = list(await two_nodes(stack, f"sqlite:///{path}", log))
        for count in (25, 50, 75):
            log.written = count
            await until(lambda: processed(*nodes) == log.written, *nodes)
            assert (await look_at(path)).findings == []
        await nodes.pop(0).kill()
        assert (await look_at(path)).findings == []
        log.written = 100
        await until(lambda: processed(*nodes) == 100, *nodes)
    report = await look_at(path)
    assert report.findings == []
    assert (report.reactors, report.accumulators) == (1, 1)  # the four partitions are one reactor
