"""The five kinds of accumulator at run time: what each does beside, or instead of, one event in, one boundary out."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.dead_letters import ReplayedEvent
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.durability_backend import JournalStep
from tidemill.engine.graphs.error_location import locate_error
from tidemill.engine.graphs.event_path.ports import ReactorInput
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.sources.reader import SourceListener, open_reader
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Passthrough(RunningAccumulator):
    """Fed by push alone, and so healthy by definition."""

    allows_fast_path = True


class Polling(RunningAccumulator):
    """Asks the author's function every so often. A pushed value is the boundary itself."""

    started_health = AccumulatorHealth.LIVE
    has_background_loop = True

    def _apply_definition(self, definition: Accumulator) -> None:
        super()._apply_definition(definition)
        self.is_async = False  # pushes never run the function

    def process(self, value: Any) -> Any:
        """Take a pushed value as it is."""
        return value

    async def run_loop(self) -> None:
        while True:
            await self.clock.sleep(self.definition.every or 0.0)
            await self._poll()

    async def _poll(self) -> None:
        self._in_flight_since = self.clock.monotonic()
        try:
            with self.runtime.in_flight:
                boundary = await self._call_function()
        except AUTHOR_ERRORS as error:
            if is_cancelled_here(error):
                raise
            place = locate_error(error, self.definition.function)
            logger.warning(events.POLL_FAILED, extra={"accumulator": self.name, "error": repr(error), "place": place})
            self.set_health(AccumulatorHealth.DISCONNECTED)
            return
        finally:
            self._in_flight_since = self.stuck_since = None
        self.set_health(AccumulatorHealth.LIVE)
        async with self._process_lock:
            await self._wait_for_queue_space()
            if self._rejection() is not None:
                return
            answer = self.emit_or_journal(boundary, boundary)
        await resolve_receipt(answer)

    async def _call_function(self) -> Any:
        function = self.definition.function
        assert function is not None
        arguments = () if self.definition.state is None else (self.state,)
        if function.is_async:
            return await function.call(*arguments)
        if self.definition.thread:
            return await call_in_thread(function.call, *arguments)
        return function.call(*arguments)


class Stream(RunningAccumulator):
    """Follows a source; live only while it is really connected."""

    allows_fast_path = True
    started_health = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.has_background_loop = runtime.connects_sources
        if self.has_background_loop:
            self._reader = open_reader(definition, runtime.settings, self.clock)
        else:
            self.started_health = AccumulatorHealth.LIVE

    def redefine(self, newer: Self) -> None:
        reconnects = self.has_background_loop and self.down_reason is None
        if reconnects:  # what the old connection was worth says nothing about the new one
            self.set_health(AccumulatorHealth.STARTING)
        if self.has_background_loop:
            self._reader = newer._reader
        super().redefine(newer)
        if reconnects:
            self.set_health(self.started_health)

    async def run_loop(self) -> None:
        line = _SourceSession(self)
        await self._reader.run(line, self.offset)
        if line.is_current:
            self.set_health(AccumulatorHealth.SOCKET_ONLY)  # the source has ended; pushes are still welcome

    def is_current_reader(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return whether this task is the one that follows the source now."""
        return task is not None and task is self._loop_task

    def on_connected(self) -> None:
        """The source is there."""
        self.set_health(AccumulatorHealth.LIVE)

    def on_disconnected(self, reason: str) -> None:
        """The source is gone for now."""
        if self.health is not AccumulatorHealth.CONNECTING:
            self.set_health(AccumulatorHealth.DISCONNECTED)
        logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": reason})

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        """Take an event of the source, and remember how far it got.

        An event that the store cannot take is offered again until it can, and so is one that comes while the
        accumulator is down or about to end: the source must not go on without it.
        """
        was_told = False
        while (receipt := await self._push_event(event, checkpoint)).outcome == "rejected" and self._retries_rejected:
            if not was_told and not self.is_closing:  # else it is no trouble: the next life is offered it again
                logger.warning(events.SOURCE_STALLED, extra={"accumulator": self.name, "reason": receipt.reason})
            was_told = True
            await self.clock.sleep(self.runtime.settings.checkpoint_interval)
        if receipt.outcome != "emitted" or not self.is_journaled:  # else the commit brought it
            self._advance_offset(checkpoint)

    @property
    def _retries_rejected(self) -> bool:
        """Whether an event that was turned away is to be offered again."""
        return self.is_journaled or self.down_reason is not None

    async def _push_event(self, event: Any, checkpoint: Any) -> Receipt:
        goes_on = self.is_async and not self.is_journaled  # as it is now: an end takes the reactors away
        try:
            return await self.push(event, offset=checkpoint)
        except asyncio.CancelledError:
            if goes_on:  # the event does, without us, or became a dead letter
                self._advance_offset(checkpoint)
            raise

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Take events of the source in their order; where each is to be committed, many in one commit."""
        if not self.is_journaled or self.is_async:
            for event, checkpoint in events:
                await self.on_event(event, checkpoint)
            return
        waiting = list(events)
        while waiting:
            answers = self._begin_steps(waiting)
            receipts = [await resolve_receipt(answer) for answer in answers]
            refused = [one for one, receipt in zip(waiting, receipts, strict=False) if receipt.outcome == "rejected"]
            waiting = refused + waiting[len(receipts) :]
            if waiting:
                await self.on_event(*waiting.pop(0))  # waits for room, or for the store
        if events:  # the last may have come to nothing, and so have brought no commit
            self._advance_offset(events[-1][1])

    def _begin_steps(self, events: Sequence[tuple[Any, Any]]) -> list[PendingReceipt]:
        """Begin to commit as many events as there is room for."""
        answers: list[PendingReceipt] = []
        for event, checkpoint in events:
            if self._is_blocked():
                break
            try:
                answer = self._rejection() or self.begin_step(self._validate(event, "json"), checkpoint)
            except TypeMismatchError as error:
                answer = self._dead_letter(event, error)
            answers.append(answer)
        return answers

    def _advance_offset(self, checkpoint: Any) -> None:
        self.offset = checkpoint
        self.mark_changed()


class _SourceSession(SourceListener):
    """What one following of the source reports to; cut when another takes its place, so that it cannot mislead."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._task = asyncio.current_task()

    @property
    def is_current(self) -> bool:
        """Whether it is still this following that counts."""
        return self._stream.is_current_reader(self._task)

    def on_connected(self) -> None:
        if self.is_current:
            self._stream.on_connected()

    def on_disconnected(self, reason: str) -> None:
        if self.is_current:
            self._stream.on_disconnected(reason)

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        if not self.is_current:
            raise OperationError(f"accumulator '{self._stream.name}' follows its source anew; this feed is over")
        await self._stream.on_event(event, checkpoint)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        if not self.is_current:
            raise OperationError(f"accumulator '{self._stream.name}' follows its source anew; this feed is over")
        await self._stream.on_events(events)


class Window(RunningAccumulator):
    """Keeps the newest of what is fed to it; emits the whole window, oldest first."""

    started_health = AccumulatorHealth.LIVE

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.items: deque[Any] = deque(maxlen=self._max_length)

    @property
    def _max_length(self) -> int | None:
        capacity = self.definition.capacity or 0
        return capacity if capacity >= 0 else None

    def redefine(self, newer: Self) -> None:
        super().redefine(newer)
        self.items = deque(self._migrate_events(self.items), maxlen=self._max_length)

    def process_now(self, value: Any) -> Receipt:
        """Append a value, and emit the whole window."""
        if not self._append(value):
            self.mark_changed()
            return self._receipt("suppressed")
        receipt = self.assign_sequence()
        self.deliver(list(self.items))
        return receipt

    def begin_step(self, value: Any, offset: Any = None) -> PendingReceipt:  # noqa: ARG002 - no source feeds a window
        """Begin to commit that a value is appended."""
        return self.append_to_journal(JournalStep("held", value), value)

    def emits_boundary(self, step: JournalStep) -> bool:  # noqa: ARG002 - whatever is held
        """Return whether the window shows anything."""
        return self.definition.capacity != 0

    def apply_step(self, step: JournalStep) -> Any:
        """Append a value, and return the whole window if it shows anything."""
        if not self._append(step.value):
            return None
        self.counter.sequence += 1
        return list(self.items)

    def boundary_of(self, step: JournalStep) -> Any:  # noqa: ARG002 - a window only knows how it is now
        """Return the window as it is by now."""
        return list(self.items) if self.definition.capacity != 0 else None

    @property
    def buffered_events(self) -> list[Any]:
        return list(self.items)

    def replace_buffer(self, content: Any) -> None:
        self.items = deque(content, maxlen=self._max_length)

    def feed(self, value: Any, source_reactor: ReactorInput) -> None:
        if value is None:
            return
        shows = self._append(value)
        source_reactor.mark_changed()
        if not shows:
            return
        self.assign_sequence()
        for reactor, index in self.targets:
            if reactor is source_reactor:
                reactor.refresh_window(index, list(self.items))
            else:
                reactor.put_from_feed(index, list(self.items))
                reactor.fire_due()

    async def _reprocess(self, value: Any, replayed: ReplayedEvent) -> Receipt:
        return (
            await resolve_receipt(self.append_to_journal(JournalStep("held", value), replayed))
            if self.is_journaled
            else self.process_now(value)
        )

    def _append(self, value: Any) -> bool:
        """Keep a value; return whether the window shows anything."""
        self._last_event_time = self.clock.monotonic()
        self.items.append(value)
        shows = self.definition.capacity != 0
        self.suppressed += not shows
        return shows


ACCUMULATOR_CLASSES: dict[AccumulatorKind, type[RunningAccumulator]] = {
    AccumulatorKind.PASSTHROUGH: Passthrough,
    AccumulatorKind.STREAM: Stream,
    AccumulatorKind.POLLING: Polling,
    AccumulatorKind.BATCH: Batch,
    AccumulatorKind.WINDOW: Window,
}


def create_accumulator(definition: Accumulator, tenant: str, runtime: GraphRuntime) -> RunningAccumulator:
    """Bring a declared accumulator to life; it does nothing until started."""
    return ACCUMULATOR_CLASSES[definition.kind](definition, tenant, runtime)
