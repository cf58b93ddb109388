"""A source that cannot be split, read for a keyed reactor by one node of several: another one continues it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.damage import look_at
from tests.system.partition_host import Step, Total
from tidemill.engine.graphs.sources.reader import open_reader

KEYS = [f"key {number}" for number in range(10)]
STEPS = 300  # looks at the nodes until a test gives up


class Log:
    """A log whose events go round the keys. It can be read from any position, up to what has been written."""

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
        super().__init__(*arguments, **options)
        self._graph_runtime.open_reader = open_reader


def counters(log: Log) -> list[Any]:
    """Return a keyed reactor that counts the events of each key of a log, and those out of order."""

    @tm.stream(log, state=Total)
    def steps(event: Step, state: Total) -> Total:
        return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))

    return [tm.Reactor("counters", [steps], durability="boundary", key="key", partitions=4)]


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
    """Return how many events these nodes hold, over all keys."""
    return sum(one["count"] for node in nodes for key in KEYS if (one := held(node, key)) is not None)


def held(node: tm.testing.TestNode, key: str) -> Any:
    """Return what a node has counted for a key; None if it does not run the key's partition, or knows nothing of it."""
    try:
        return node.reactor("counters").state(key=key).cache.get("steps")
    except tm.RequestError:
        return None


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
        totals = [await second.reactor("counters").state_of(key) for key in KEYS]
        assert [one.cache["steps"]["disorder"] for one in totals] == [0] * len(KEYS)
        assert log.starts == [0, 57], "one node at a time reads, and the second one continues after the stored offset"


async def two_nodes(stack: AsyncExitStack, address: str, log: Log) -> tuple[tm.testing.TestNode, tm.testing.TestNode]:
    """Return two nodes that share the partitions of the counters; the first one reads the log."""
    first = await stack.enter_async_context(ReadingNode(address, load=counters(log)))
    second = await stack.enter_async_context(ReadingNode(address, load=counters(log)))
    await until(lambda: len(second.reactor("counters").state().partitions) == 2, first, second)
    return first, second


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
    assert report.reactors == 4
