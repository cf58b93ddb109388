"""Reads a source as an accumulator does, and keeps what it delivers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from tidemill.engine.graphs.sources.reader import IteratorReader, SourceListener
from tidemill.graphs.definition import Source
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.sources.interface import Disconnected

DEADLINE = 30.0  # seconds, until a check gives up
CLOSING_LIMIT = 2.0  # seconds, until a cancelled source must have closed its connection
POLL_INTERVAL = 0.01
RETRY_PAUSE = 0.5  # seconds between two tries to connect
SHOWN_NUMBERS = 10  # of the events in the message of a check that has waited in vain
ACCUMULATOR = "numbers"


class Numbered(msgspec.Struct, frozen=True):
    """An event of the contract suite."""

    number: int
    filler: str = ""


class Consumer(SourceListener):
    """Takes what a source delivers: all of it, or the first `limit` events, after which it never returns."""

    def __init__(self, encoding: str, limit: int | None = None) -> None:
        self.events: list[tuple[int, Any]] = []
        """The number and the checkpoint of each event."""
        self.positions: list[tuple[int, Any]] = []
        """Each checkpoint, even one without an event, and the number of the event that follows it."""
        self.gaps: list[str] = []
        self.is_connected = False
        self._encoding = encoding
        self._limit = limit

    @property
    def numbers(self) -> list[int]:
        """The numbers of the delivered events."""
        return [number for number, _ in self.events]

    def on_connected(self) -> None:
        self.is_connected = True

    def on_disconnected(self, reason: str) -> float:
        raise AssertionError(f"only readers of brokers report this way: {reason}")

    def on_gap(self, reason: str) -> None:
        self.gaps.append(reason)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        for event, checkpoint in events:
            await self.on_event(event, checkpoint)

    def on_moved(self, checkpoint: Any) -> None:
        self.positions.append((self.numbers[-1] + 1 if self.events else 0, _as_stored(checkpoint)))

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        self.events.append((_decode(event, self._encoding).number, _as_stored(checkpoint)))
        self.on_moved(checkpoint)
        if self._limit is not None and len(self.events) >= self._limit:
            await asyncio.Event().wait()  # a reactor whose queue is full

    async def until_count(self, count: int) -> None:
        """Return when a number of events have arrived, and wait a moment for any that should not."""
        await wait_until(
            lambda: len(self.events) >= count,
            lambda: f"got {len(self.events)} of {count} events (the last ones: {self.numbers[-SHOWN_NUMBERS:]})",
        )
        if self._limit is None:
            await asyncio.sleep(10 * POLL_INTERVAL)  # real time: another process may send too much


@asynccontextmanager
async def reading(source: Source, checkpoint: Any = None, limit: int | None = None) -> AsyncIterator[Consumer]:
    """Read a source from a checkpoint within the block; an error of the source is raised from it."""
    reader = IteratorReader(source, ACCUMULATOR, Settings(), SystemClock())
    consumer = Consumer(reader.encoding, limit)
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_run(reader, consumer, checkpoint), name="source under test")
            yield consumer
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=CLOSING_LIMIT)
            assert done, f"the source did not end within {CLOSING_LIMIT:g} s after its task was cancelled"
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _run(reader: IteratorReader, consumer: Consumer, checkpoint: Any) -> None:
    """Read a source. A refused connection is tried again, as by a node: the server may still close the last one."""
    tries = int(DEADLINE / RETRY_PAUSE)
    for number in range(1, tries + 1):
        try:
            return await reader.run(consumer, checkpoint)
        except Disconnected:
            if consumer.is_connected or number == tries:
                raise
        await asyncio.sleep(RETRY_PAUSE)  # real time: the server is another process


async def connects(source: Source) -> bool:
    """Start a source once, and return whether it says that it has connected; an error means that it has not."""
    reader = IteratorReader(source, ACCUMULATOR, Settings(), SystemClock())
    consumer = Consumer(reader.encoding)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_swallow_errors(reader.run(consumer, None)), name="source under test")
        await wait_until(
            lambda: consumer.is_connected or task.done(),
            lambda: "the source neither connects nor raises while its server is away",
        )
        task.cancel()
    return consumer.is_connected


async def _swallow_errors(running: Awaitable[None]) -> None:
    with suppress(Exception):
        await running


async def wait_until(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    """Return when a condition holds; fail with a description of what was found after half a minute."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 - whatever the condition reads signals nothing
                await asyncio.sleep(POLL_INTERVAL)  # real time: servers are other processes
    except TimeoutError:
        raise AssertionError(f"{describe()}, after {DEADLINE:g} s") from None


def _decode(event: Any, encoding: str) -> Numbered:
    if isinstance(event, bytes | bytearray | memoryview):
        decode = msgspec.msgpack.decode if encoding == "msgpack" else msgspec.json.decode
        return decode(event, type=Numbered)
    return msgspec.convert(event, Numbered)


def _as_stored(checkpoint: Any) -> Any:
    """Return a checkpoint as it comes back from a store."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(checkpoint))
    except (TypeError, ValueError, OverflowError) as error:
        message = f"the checkpoint {checkpoint!r} cannot be stored ({error}): use numbers, texts, lists and dicts"
        raise AssertionError(message) from error
