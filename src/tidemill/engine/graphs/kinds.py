"""The five kinds of accumulator at run time: what each does beside, or instead of, one event in, one boundary out."""

import asyncio
import logging
from collections import deque
from typing import Any

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.push_path import AUTHOR_ERRORS
from tidemill.engine.graphs.sources.feed import Listener
from tidemill.engine.graphs.sources.opening import open_feed
from tidemill.engine.graphs.target import Target
from tidemill.graphs.definition import Accumulator, Kind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.concurrency import in_thread
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Passthrough(RunningAccumulator):
    """Fed by push alone, and so healthy by definition."""

    is_plain = True


class Polling(RunningAccumulator):
    """Asks the author's function every so often. A pushed value is the boundary itself."""

    healthy_as = AccumulatorHealth.LIVE
    works = True

    def _define(self, definition: Accumulator) -> None:
        super()._define(definition)
        self.is_async = False  # pushes never run the function

    def process(self, value: Any) -> Any:
        return value

    async def work(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            await self._poll()

    async def _poll(self) -> None:
        self._in_flight_since = self.clock.monotonic()
        try:
            with self.environment.activity:
                boundary = await self._ask()
        except AUTHOR_ERRORS as error:
            logger.warning(events.POLL_FAILED, extra={"accumulator": self.name, "error": repr(error)})
            self.move(AccumulatorHealth.DISCONNECTED)
            return
        finally:
            self._in_flight_since = self.stuck_since = None
        self.move(AccumulatorHealth.LIVE)
        async with self._turn:
            await self._wait_for_room()
            if self._turned_away() is None:
                self.emit(boundary, boundary)

    async def _ask(self) -> Any:
        function = self.definition.function
        assert function is not None
        arguments = () if self.definition.state is None else (self.state,)
        if function.is_async:
            return await function.call(*arguments)
        if self.definition.thread:
            return await in_thread(function.call, *arguments)
        return function.call(*arguments)


class Stream(RunningAccumulator, Listener):
    """Follows a source; live only while it is really connected."""

    is_plain = True
    healthy_as = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.checkpoint: Any = None
        if not environment.connects:
            self.healthy_as = AccumulatorHealth.LIVE
        self.works = environment.connects

    def _define(self, definition: Accumulator) -> None:
        super()._define(definition)
        if self.environment.connects:
            self._feed = open_feed(definition, self.environment.settings, self.clock)

    async def work(self) -> None:
        await self._feed.follow(self, self.checkpoint)
        self.move(AccumulatorHealth.SOCKET_ONLY)  # the source has ended; pushes are still welcome

    def connected(self) -> None:
        self.move(AccumulatorHealth.LIVE)

    def lost(self, reason: str) -> None:
        if self.health is not AccumulatorHealth.CONNECTING:
            self.move(AccumulatorHealth.DISCONNECTED)
        logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": reason})

    async def event(self, event: Any, checkpoint: Any) -> None:
        try:
            await self.push(event)
        except asyncio.CancelledError:
            if self.is_async:  # the event goes on without us, or became a dead letter
                self.checkpoint = checkpoint
            raise
        self.checkpoint = checkpoint


class Batch(RunningAccumulator):
    """Gathers events, and sums them up by time, by size, after each firing, and at an orderly end."""

    healthy_as = AccumulatorHealth.LIVE
    flushes_after_firing = True
    works = True

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.buffer: list[Any] = []
        self._failed = 0

    @property
    def events(self) -> int:
        return self.buffered + self.letters.total - self._failed

    def take(self, value: Any) -> Receipt:
        self.buffer.append(value)
        self.buffered += 1
        self._last_event = self.clock.monotonic()
        if self._is_large():
            flushed = self.flush()
            if flushed is not None:
                return flushed
        return self._receipt("buffered")

    async def _take_in_turn(self, value: Any) -> Receipt:
        async with self._turn:
            if self._is_large(with_another=True):
                await self._wait_for_room()
            if (turned_away := self._turned_away()) is not None:
                return turned_away
            self.buffer.append(value)
            self.buffered += 1
            self._last_event = self.clock.monotonic()
            return (await self._flush_async() if self._is_large() else None) or self._receipt("buffered")

    def _is_large(self, *, with_another: bool = False) -> bool:
        size = self.definition.max_size
        return size is not None and len(self.buffer) + with_another >= size

    def _blocked(self) -> bool:
        """Only the event that fills the batch may have to wait: the others are merely kept."""
        return self._waiting > 0 or (self._is_large(with_another=True) and super()._blocked())

    def flush(self) -> Receipt | None:
        """Sum up what is buffered and hand it on; nothing happens without events or without room for the result."""
        if not self.buffer or self._has_no_room():
            return None
        gathered, self.buffer = self.buffer, []
        try:
            boundary = self.process(gathered)
        except AUTHOR_ERRORS as error:
            return self._dead(gathered, error)
        return self.emit(boundary, gathered)

    def _has_no_room(self) -> bool:
        return any(target.room.is_blocked or target.room.refuses for target, _ in self.targets)

    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        self._failed += isinstance(event, list)
        return super()._dead(event, error, form)

    async def _flush_async(self) -> Receipt | None:
        if not self.buffer or self._has_no_room():
            return None
        gathered, self.buffer = self.buffer, []
        return await self.watch_over(lambda: self.process(gathered), gathered)

    async def _flush_in_turn(self) -> None:
        async with self._turn:
            await self._flush_async()

    def after_firing(self) -> None:
        if not self.is_async:
            self.flush()
        elif self.buffer:
            self.environment.tasks.start(self._flush_title, self._flush_in_turn())

    @property
    def _flush_title(self) -> str:
        return f"accumulator {self.name}: flush"

    async def work(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            if self.is_async:
                await self.environment.tasks.see_through(self._flush_title, self._flush_in_turn())
            else:
                self.flush()

    async def drain(self) -> None:
        if self.is_async:
            await self._flush_in_turn()
        else:
            self.flush()

    async def replay(self, letter: DeadLetter, form: str) -> Receipt:
        """Try a batch that failed, or a single event that did not fit, again."""
        if not isinstance(letter.event, list):
            return await super().replay(letter, form)
        try:
            boundary = self.process(letter.event)
            boundary = await boundary if asyncio.iscoroutine(boundary) else boundary
        except AUTHOR_ERRORS as error:
            self.letters.failed_again(letter, f"{type(error).__name__}: {error}")
            return self._receipt("dead_lettered", str(error))
        self.letters.remove(letter.id)
        return self.emit(boundary, letter.event)


class Window(RunningAccumulator):
    """Keeps the newest of what is fed to it; emits the whole window, oldest first."""

    healthy_as = AccumulatorHealth.LIVE

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.content: deque[Any] = deque(maxlen=self._limit)

    @property
    def _limit(self) -> int | None:
        capacity = self.definition.capacity or 0
        return capacity if capacity >= 0 else None

    def redefine(self, definition: Accumulator) -> None:
        super().redefine(definition)
        self.content = deque(self.content, maxlen=self._limit)

    def take(self, value: Any) -> Receipt:
        if not self._append(value):
            return self._receipt("suppressed")
        receipt = self.number()
        self.deliver(list(self.content))
        return receipt

    def feed(self, value: Any, by: Target) -> None:
        if value is None or not self._append(value):
            return
        self.number()
        for reactor, index in self.targets:
            if reactor is by:
                reactor.refresh_window(index, list(self.content))
            else:
                reactor.receive(index, list(self.content))

    def _append(self, value: Any) -> bool:
        """Keep a value; return whether the window shows anything."""
        self._last_event = self.clock.monotonic()
        self.content.append(value)
        shows = self.definition.capacity != 0
        self.suppressed += not shows
        return shows


KINDS: dict[Kind, type[RunningAccumulator]] = {
    Kind.PASSTHROUGH: Passthrough,
    Kind.STREAM: Stream,
    Kind.POLLING: Polling,
    Kind.BATCH: Batch,
    Kind.WINDOW: Window,
}


def spawn(definition: Accumulator, tenant: str, environment: Environment) -> RunningAccumulator:
    """Bring a declared accumulator to life; it does nothing until started."""
    return KINDS[definition.kind](definition, tenant, environment)
