"""The five kinds of accumulator at run time: what each does beside, or instead of, one event in, one boundary out."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from tidemill.annotations.admission import MisfitError
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.batch import Batch
from tidemill.engine.graphs.dead_letters import Replayed
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.outlet import Answer, answered
from tidemill.engine.graphs.sites import site_of
from tidemill.engine.graphs.sources.feed import Listener
from tidemill.engine.graphs.sources.opening import open_feed
from tidemill.engine.graphs.step import Step
from tidemill.engine.graphs.target import Target
from tidemill.graphs.definition import Accumulator, Kind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import Receipt
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
            place = site_of(error, self.definition.function)
            logger.warning(events.POLL_FAILED, extra={"accumulator": self.name, "error": repr(error), "place": place})
            self.move(AccumulatorHealth.DISCONNECTED)
            return
        finally:
            self._in_flight_since = self.stuck_since = None
        self.move(AccumulatorHealth.LIVE)
        async with self._turn:
            await self._wait_for_room()
            if self._turned_away() is not None:
                return
            answer = self.hand_in(boundary, boundary)
        await answered(answer)

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
        await self._feed.follow(line, self.offset)
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
        """Take an event of the source, and remember how far it got.

        An event that the store cannot take is offered again until it can, and so is one that comes while the
        accumulator is down or about to end: the source must not go on without it.
        """
        was_told = False
        while (receipt := await self._offer(event, checkpoint)).outcome == "rejected" and self._holds_on:
            if not was_told and not self.is_ending:  # else it is no trouble: the next life is offered it again
                logger.warning(events.SOURCE_HELD, extra={"accumulator": self.name, "reason": receipt.reason})
            was_told = True
            await self.clock.sleep(self.environment.settings.checkpoint_interval)
        if receipt.outcome != "emitted" or not self.commits:  # else the commit brought it
            self._reached(checkpoint)

    @property
    def _holds_on(self) -> bool:
        """Whether an event that was turned away is to be offered again."""
        return self.commits or self.down is not None

    async def _offer(self, event: Any, checkpoint: Any) -> Receipt:
        goes_on = self.is_async and not self.commits  # as it is now: an end takes the reactors away
        try:
            return await self.push(event, offset=checkpoint)
        except asyncio.CancelledError:
            if goes_on:  # the event does, without us, or became a dead letter
                self._reached(checkpoint)
            raise

    async def many(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Take events of the source in their order; where each is to be committed, many in one commit."""
        if not self.commits or self.is_async:
            for event, checkpoint in events:
                await self.event(event, checkpoint)
            return
        waiting = list(events)
        while waiting:
            answers = self._begin(waiting)
            receipts = [await answered(answer) for answer in answers]
            refused = [one for one, receipt in zip(waiting, receipts, strict=False) if receipt.outcome == "rejected"]
            waiting = refused + waiting[len(receipts) :]
            if waiting:
                await self.event(*waiting.pop(0))  # waits for room, or for the store
        if events:  # the last may have come to nothing, and so have brought no commit
            self._reached(events[-1][1])

    def _begin(self, events: Sequence[tuple[Any, Any]]) -> list[Answer]:
        """Begin to commit as many events as there is room for."""
        answers: list[Answer] = []
        for event, checkpoint in events:
            if self._blocked():
                break
            try:
                answer = self._turned_away() or self.take_step(self._admit(event, "json"), checkpoint)
            except MisfitError as error:
                answer = self._dead(event, error)
            answers.append(answer)
        return answers

    def _reached(self, checkpoint: Any) -> None:
        self.offset = checkpoint
        self.note()


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

    async def many(self, events: Sequence[tuple[Any, Any]]) -> None:
        if not self.is_current:
            raise OperationError(f"accumulator '{self._stream.name}' follows its source anew; this feed is over")
        await self._stream.many(events)


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
            self.note()
            return self._receipt("suppressed")
        receipt = self.number()
        self.deliver(list(self.content))
        return receipt

    def take_step(self, value: Any, offset: Any = None) -> Answer:  # noqa: ARG002 - no source feeds a window
        """Begin to commit that a value is appended."""
        return self.commit(Step("held", value), value)

    def emits(self, step: Step) -> bool:  # noqa: ARG002 - whatever is held
        """Return whether the window shows anything."""
        return self.definition.capacity != 0

    def advance(self, step: Step) -> Any:
        """Append a value, and return the whole window if it shows anything."""
        if not self._append(step.value):
            return None
        self.tally.sequence += 1
        return list(self.content)

    def boundary_of(self, step: Step) -> Any:  # noqa: ARG002 - a window only knows how it is now
        """Return the window as it is by now."""
        return list(self.content) if self.definition.capacity != 0 else None

    @property
    def held(self) -> list[Any]:
        return list(self.content)

    def hold(self, content: Any) -> None:
        self.content = deque(content, maxlen=self._limit)

    def feed(self, value: Any, by: Target) -> None:
        if value is None:
            return
        shows = self._append(value)
        by.note()
        if not shows:
            return
        self.number()
        for reactor, index in self.targets:
            if reactor is by:
                reactor.refresh_window(index, list(self.content))
            else:
                reactor.take_in_fed(index, list(self.content))
                reactor.go_on()

    async def _process_again(self, value: Any, replayed: Replayed) -> Receipt:
        return await answered(self.commit(Step("held", value), replayed)) if self.commits else self.take(value)

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
