"""The five kinds of accumulator at run time: what each does beside, or instead of, one event in, one boundary out."""

import asyncio
import logging
from collections import deque
from typing import Any, Self

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.dead_letters import Gathered, Replayed
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.sources.feed import Listener
from tidemill.engine.graphs.sources.opening import open_feed
from tidemill.engine.graphs.target import Target
from tidemill.graphs.admission import MisfitError
from tidemill.graphs.definition import Accumulator, Kind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
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
    works = True

    def _define(self, definition: Accumulator) -> None:
        super()._define(definition)
        self.is_async = False  # pushes never run the function

    def process(self, value: Any) -> Any:
        """Take a pushed value as it is."""
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
            if is_cut_off(error):
                raise
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


class Stream(RunningAccumulator):
    """Follows a source; live only while it is really connected."""

    is_plain = True
    healthy_as = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.checkpoint: Any = None
        self.works = environment.connects
        if self.works:
            self._feed = open_feed(definition, environment.settings, self.clock)
        else:
            self.healthy_as = AccumulatorHealth.LIVE

    def redefine(self, newer: Self) -> None:
        reconnects = self.works and self.down is None
        if reconnects:  # what the old connection was worth says nothing about the new one
            self.move(AccumulatorHealth.STARTING)
        if self.works:
            self._feed = newer._feed
        super().redefine(newer)
        if reconnects:
            self.move(self.healthy_as)

    async def work(self) -> None:
        line = _Line(self)
        await self._feed.follow(line, self.checkpoint)
        if line.is_current:
            self.move(AccumulatorHealth.SOCKET_ONLY)  # the source has ended; pushes are still welcome

    def is_following(self, loop: "asyncio.Task[Any] | None") -> bool:
        """Return whether this task is the one that follows the source now."""
        return loop is not None and loop is self._loop

    def connected(self) -> None:
        """The source is there."""
        self.move(AccumulatorHealth.LIVE)

    def lost(self, reason: str) -> None:
        """The source is gone for now."""
        if self.health is not AccumulatorHealth.CONNECTING:
            self.move(AccumulatorHealth.DISCONNECTED)
        logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": reason})

    async def event(self, event: Any, checkpoint: Any) -> None:
        """Take an event of the source, and remember how far it got."""
        try:
            await self.push(event)
        except asyncio.CancelledError:
            if self.is_async:  # the event goes on without us, or became a dead letter
                self.checkpoint = checkpoint
            raise
        self.checkpoint = checkpoint


class _Line(Listener):
    """What one following of the source reports to; cut when another takes its place, so that it cannot mislead."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._loop = asyncio.current_task()

    @property
    def is_current(self) -> bool:
        """Whether it is still this following that counts."""
        return self._stream.is_following(self._loop)

    def connected(self) -> None:
        if self.is_current:
            self._stream.connected()

    def lost(self, reason: str) -> None:
        if self.is_current:
            self._stream.lost(reason)

    async def event(self, event: Any, checkpoint: Any) -> None:
        if not self.is_current:
            raise OperationError(f"accumulator '{self._stream.name}' follows its source anew; this feed is over")
        await self._stream.event(event, checkpoint)


class Batch(RunningAccumulator):
    """Gathers events, and sums them up by time, by size, after each firing, and at an orderly end."""

    healthy_as = AccumulatorHealth.LIVE
    flushes_after_firing = True
    works = True

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.buffer: list[Any] = []
        self._failed = 0

    def redefine(self, newer: Self) -> None:
        super().redefine(newer)
        self.buffer = self._migrated(self.buffer)

    @property
    def events(self) -> int:
        """How many single events were taken in; a batch that failed is not one more."""
        return self.buffered + self.letters.total - self._failed

    def take(self, value: Any) -> Receipt:
        """Keep an event, and sum up what is kept if that is enough."""
        self._keep(value)
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
            return await self._take_async(value)

    async def _take_async(self, value: Any) -> Receipt:
        self._keep(value)
        return (await self._flush_async() if self._is_large() else None) or self._receipt("buffered")

    def _keep(self, value: Any) -> None:
        self.buffer.append(value)
        self.buffered += 1
        self._last_event = self.clock.monotonic()

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
        whole = Gathered(gathered)
        try:
            boundary = self.process(gathered)
        except AUTHOR_ERRORS as error:
            return self._dead(whole, error)
        return self.emit(boundary, whole)

    def _has_no_room(self) -> bool:
        return any(target.room.is_blocked or target.room.refuses for target, _ in self.targets)

    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        self._failed += isinstance(event, Gathered)
        return super()._dead(event, error, form)

    async def _flush_async(self) -> Receipt | None:
        if not self.buffer or self._has_no_room():
            return None
        gathered, self.buffer = self.buffer, []
        return await self.watch_over(lambda: self.process(gathered), Gathered(gathered))

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
        if self.is_async:  # in a task of its own: if it hangs, `stop` puts the events aside
            await asyncio.wait({self.environment.tasks.start(self._flush_title, self._flush_in_turn())})
        else:
            self.flush()

    async def stop(self) -> None:
        left, self.buffer = self.buffer, []
        for _ in left:
            self._count_drop("unloaded")
        await super().stop()

    async def _take_again(self, letter: DeadLetter, detail: Any) -> Receipt:
        """Take a batch that failed, or a single event that did not fit."""
        if isinstance(detail, Gathered):
            return await self._process_again(detail.events, Replayed(letter))
        try:
            value = self._admit(letter.event, detail)
        except MisfitError as error:
            return self._dead(Replayed(letter), error)
        self.letters.remove(letter.id)  # from now on the event shares the fate of its batch
        return await self._take_async(value) if self.is_async else self.take(value)


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

    def redefine(self, newer: Self) -> None:
        super().redefine(newer)
        self.content = deque(self._migrated(self.content), maxlen=self._limit)

    def take(self, value: Any) -> Receipt:
        """Append a value, and emit the whole window."""
        if not self._append(value):
            return self._receipt("suppressed")
        receipt = self.number()
        self.deliver(list(self.content))
        return receipt

    def refill(self, content: Any) -> None:
        self.content = deque(content, maxlen=self._limit)

    def feed(self, value: Any, by: Target) -> None:
        if value is None or not self._append(value):
            return
        self.number()
        for reactor, index in self.targets:
            if reactor is by:
                reactor.refresh_window(index, list(self.content))
            else:
                reactor.take_in(index, list(self.content))
                reactor.go_on()

    async def _process_again(self, value: Any, replayed: Replayed) -> Receipt:
        self.letters.remove(replayed.letter.id)  # a window digests whatever was admitted
        return self.take(value)

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
