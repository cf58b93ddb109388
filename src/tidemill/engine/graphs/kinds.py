"""The five kinds of accumulator at run time: what each does beside, or instead of, one event in, one boundary out."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any

from tidemill.engine.graphs.accumulator import AUTHOR_ERRORS, RunningAccumulator, Target
from tidemill.engine.graphs.environment import Environment
from tidemill.graphs.definition import Accumulator, Kafka, Kind, Nats
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import Receipt
from tidemill.kernel.concurrency import in_thread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Passthrough(RunningAccumulator):
    """Fed by push alone, and so healthy by definition."""

    is_plain = True


class Polling(RunningAccumulator):
    """Asks the author's function every so often. A pushed value is the boundary itself."""

    healthy_as = AccumulatorHealth.LIVE

    def _define(self, definition: Accumulator) -> None:
        super()._define(definition)
        self.is_async = False  # pushes never run the function

    def process(self, value: Any) -> Any:
        return value

    def work(self) -> Coroutine[Any, Any, None]:
        return self._poll_for_ever()

    async def _poll_for_ever(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            async with self._turn:
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


class Stream(RunningAccumulator):
    """Follows a source; live only while it is really connected."""

    is_plain = True
    healthy_as = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.checkpoint: Any = None
        if not environment.connects:
            self.healthy_as = AccumulatorHealth.LIVE

    def work(self) -> Coroutine[Any, Any, None] | None:
        return self._follow() if self.environment.connects else None

    async def _follow(self) -> None:
        source = self.definition.source
        if source is None or isinstance(source, Kafka | Nats):
            raise OperationError(f"accumulator '{self.name}': {type(source).__name__} sources need a broker client")
        async for event, checkpoint in source.start(self.checkpoint):
            self.move(AccumulatorHealth.LIVE)
            await self.push(event)
            self.checkpoint = checkpoint
        self.move(AccumulatorHealth.SOCKET_ONLY)  # the source has ended; pushes are still welcome


class Batch(RunningAccumulator):
    """Gathers events, and sums them up by time, by size, after each firing, and at an orderly end."""

    healthy_as = AccumulatorHealth.LIVE
    flushes_after_firing = True

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
            self.buffer.append(value)
            self.buffered += 1
            return (await self._flush_async() if self._is_large() else None) or self._receipt("buffered")

    def _is_large(self) -> bool:
        return self.definition.max_size is not None and len(self.buffer) >= self.definition.max_size

    def _blocked(self) -> bool:
        """Only the event that fills the batch may have to wait: the others are merely kept."""
        fills = self.definition.max_size is not None and len(self.buffer) + 1 >= self.definition.max_size
        return self._turn.locked() or (fills and super()._blocked())

    def flush(self) -> Receipt | None:
        """Sum up what is buffered and hand it on; nothing happens without events or without room for the result."""
        if not self.buffer or any(target.is_blocked or target.refuses for target, _ in self.targets):
            return None
        gathered, self.buffer = self.buffer, []
        try:
            boundary = self.process(gathered)
        except AUTHOR_ERRORS as error:
            return self._dead(gathered, error)
        return self.emit(boundary, gathered)

    def _dead(self, event: Any, error: BaseException) -> Receipt:
        self._failed += isinstance(event, list)
        return super()._dead(event, error)

    async def _flush_async(self) -> Receipt | None:
        if not self.buffer:
            return None
        await self._wait_for_room()
        gathered, self.buffer = self.buffer, []
        return await self.watch_over(lambda: self.process(gathered), gathered)

    async def _flush_in_turn(self) -> None:
        async with self._turn:
            await self._flush_async()

    def after_firing(self) -> None:
        if self.is_async:
            if self.buffer:
                self.environment.tasks.start(f"accumulator {self.name}: flush", self._flush_in_turn())
        else:
            self.flush()

    def work(self) -> Coroutine[Any, Any, None]:
        return self._flush_for_ever()

    async def _flush_for_ever(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            if self.is_async:
                await self._flush_in_turn()
            else:
                self.flush()

    async def drain(self) -> None:
        if self.is_async:
            await self._flush_in_turn()
        else:
            self.flush()

    async def replay(self, letter: Any) -> Receipt:
        """Try a batch that failed, or a single event that did not fit, again."""
        if not isinstance(letter.event, list):
            return await super().replay(letter)
        try:
            boundary = self.process(letter.event)
            boundary = await boundary if asyncio.iscoroutine(boundary) else boundary
        except AUTHOR_ERRORS as error:
            self.letters.failed_again(letter.id, f"{type(error).__name__}: {error}")
            return self._receipt("dead_lettered", str(error))
        self.letters.remove(letter.id)
        return self.emit(boundary, letter.event)


class Window(RunningAccumulator):
    """Keeps the newest of what is fed to it; emits the whole window, oldest first."""

    healthy_as = AccumulatorHealth.LIVE

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        capacity = definition.capacity or 0
        self.content: deque[Any] = deque(maxlen=capacity if capacity >= 0 else None)

    def take(self, value: Any) -> Receipt:
        if not self._append(value):
            return self._receipt("suppressed")
        self.deliver(list(self.content))
        return self._receipt("emitted")

    def feed(self, value: Any, by: Target) -> None:
        if value is None or not self._append(value):
            return
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
        self.tally.sequence += shows
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
