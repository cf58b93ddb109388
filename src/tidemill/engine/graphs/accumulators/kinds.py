"""The five kinds of running accumulators: passthrough, polling, stream, batch and window."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.dead_letters import ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.error_location import locate_error
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Passthrough(RunningAccumulator):
    """Fed by push alone, and therefore always healthy."""

    allows_fast_path = True


class Polling(RunningAccumulator):
    """Calls the author's function at an interval. A pushed value is the boundary itself."""

    started_health = AccumulatorHealth.LIVE
    has_background_loop = True

    def _apply_definition(self, definition: Accumulator) -> None:
        super()._apply_definition(definition)
        self.is_async = False  # pushes never run the function

    def process(self, value: Any) -> Any:
        """Return a pushed value unchanged."""
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
            pending = self.emit_or_journal(boundary, boundary)
        await resolve_receipt(pending)

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
    """Reads a source; live only while it is connected."""

    allows_fast_path = True
    started_health = AccumulatorHealth.CONNECTING

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        if runtime.open_reader is None:
            self.started_health = AccumulatorHealth.LIVE
        else:
            self.has_background_loop = True
            self.reader = runtime.open_reader(definition, runtime.settings, self.clock)

    def redefine(self, newer: Self) -> None:
        reconnects = self.has_background_loop and self.down_reason is None
        if reconnects:  # the health of the old connection does not apply to the new one
            self.set_health(AccumulatorHealth.STARTING)
        if self.has_background_loop:
            self.reader = newer.reader
        super().redefine(newer)
        if reconnects:
            self.set_health(self.started_health)

    async def run_loop(self) -> None:
        session = _SourceSession(self)
        await self.reader.run(session, self.offset)
        if session.is_current:
            self.set_health(AccumulatorHealth.SOCKET_ONLY)  # the source has ended; pushes are still accepted

    def is_current_reader(self, task: "asyncio.Task[Any] | None") -> bool:
        """Return whether this task is the one that reads the source now."""
        return task is not None and task is self._loop_task

    def on_connected(self) -> None:
        """Set the health to live."""
        self.set_health(AccumulatorHealth.LIVE)

    def on_disconnected(self, reason: str) -> None:
        """Set the health to disconnected, and log the reason."""
        if self.health is not AccumulatorHealth.CONNECTING:
            self.set_health(AccumulatorHealth.DISCONNECTED)
        logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": reason})

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        """Process an event of the source, and store the source's offset.

        A rejected event is retried as long as the store fails, and as long as the accumulator is down or stopping: the
        source must not continue without it.
        """
        was_logged = False
        while (receipt := await self._push_event(event, checkpoint)).outcome == "rejected" and self._retries_rejected:
            if not was_logged and not self.is_closing:  # after a stop the next process reads the event again
                logger.warning(events.SOURCE_STALLED, extra={"accumulator": self.name, "reason": receipt.reason})
            was_logged = True
            await self.clock.sleep(self.runtime.settings.checkpoint_interval)
        if receipt.outcome != "emitted" or not self.is_journaled:  # else the commit advanced it
            self._advance_offset(checkpoint)

    @property
    def _retries_rejected(self) -> bool:
        """Whether a rejected event is retried."""
        return self.is_journaled or self.down_reason is not None

    async def _push_event(self, event: Any, checkpoint: Any) -> Receipt:
        continues = self.is_async and not self.is_journaled  # read now: a stop removes the targets
        try:
            return await self.push(event, offset=checkpoint)
        except asyncio.CancelledError:
            if continues:  # the event is processed without this task, or became a dead letter
                self._advance_offset(checkpoint)
            raise

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Process events of the source in order; journaled ones share commits."""
        if not self.is_journaled or self.is_async:
            for event, checkpoint in events:
                await self.on_event(event, checkpoint)
            return
        waiting = list(events)
        while waiting:
            receipts = [await resolve_receipt(pending) for pending in self._begin_steps(waiting)]
            rejected = [one for one, receipt in zip(waiting, receipts, strict=False) if receipt.outcome == "rejected"]
            waiting = rejected + waiting[len(receipts) :]
            if waiting:
                await self.on_event(*waiting.pop(0))  # waits for queue space, or for the store
        if events:  # the last one may have emitted nothing, and then no commit advanced the offset
            self._advance_offset(events[-1][1])

    def _begin_steps(self, events: Sequence[tuple[Any, Any]]) -> list[PendingReceipt]:
        """Begin to commit as many events as there is queue space for."""
        steps: list[PendingReceipt] = []
        for event, checkpoint in events:
            if self._is_blocked():
                break
            try:
                step = self._rejection() or self.begin_step(self._validate(event, "json"), checkpoint)
            except TypeMismatchError as error:
                step = self._dead_letter(event, error)
            steps.append(step)
        return steps

    def _advance_offset(self, checkpoint: Any) -> None:
        self.offset = checkpoint
        self.mark_changed()


class _SourceSession(SourceListener):
    """The listener of one reader task; ignored after another task has replaced it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._task = asyncio.current_task()

    @property
    def is_current(self) -> bool:
        """Whether this task still reads the source."""
        return self._stream.is_current_reader(self._task)

    def on_connected(self) -> None:
        if self.is_current:
            self._stream.on_connected()

    def on_disconnected(self, reason: str) -> None:
        if self.is_current:
            self._stream.on_disconnected(reason)

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        if not self.is_current:
            raise OperationError(
                f"accumulator '{self._stream.name}' reads its source with another reader; this one has ended"
            )
        await self._stream.on_event(event, checkpoint)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        if not self.is_current:
            raise OperationError(
                f"accumulator '{self._stream.name}' reads its source with another reader; this one has ended"
            )
        await self._stream.on_events(events)


class Window(RunningAccumulator):
    """Keeps the newest fed values; emits the whole window, oldest first."""

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

    def emits_boundary(self, step: JournalStep) -> bool:  # noqa: ARG002 - any step does
        """Return whether the window has a content to emit."""
        return self.definition.capacity != 0

    def apply_step(self, step: JournalStep) -> Any:
        """Append a value, and return the whole window unless its capacity is 0."""
        if not self._append(step.value):
            return None
        self.counter.sequence += 1
        return list(self.items)

    def boundary_of(self, step: JournalStep) -> Any:  # noqa: ARG002 - a window has only its current content
        """Return the current window."""
        return list(self.items) if self.definition.capacity != 0 else None

    @property
    def buffered_events(self) -> list[Any]:
        return list(self.items)

    def replace_buffer(self, content: Any) -> None:
        self.items = deque(content, maxlen=self._max_length)

    def feed(self, value: Any, source_reactor: FiringLoop) -> None:
        if value is None:
            return
        is_visible = self._append(value)
        source_reactor.mark_changed()
        if not is_visible:
            return
        self.assign_sequence()
        for reactor, index in self.targets:
            if reactor is source_reactor:
                reactor.refresh_window(index, list(self.items))
            else:
                reactor.new_series()  # the journal has no entry for this
                reactor.put(index, list(self.items))
                reactor.fire_due()

    async def _reprocess(self, value: Any, replayed: ReplayedEvent) -> Receipt:
        return (
            await resolve_receipt(self.append_to_journal(JournalStep("held", value), replayed))
            if self.is_journaled
            else self.process_now(value)
        )

    def _append(self, value: Any) -> bool:
        """Append a value; return whether the window has a content to emit."""
        self._last_event_time = self.clock.monotonic()
        self.items.append(value)
        is_visible = self.definition.capacity != 0
        self.suppressed += not is_visible
        return is_visible


ACCUMULATOR_CLASSES: dict[AccumulatorKind, type[RunningAccumulator]] = {
    AccumulatorKind.PASSTHROUGH: Passthrough,
    AccumulatorKind.STREAM: Stream,
    AccumulatorKind.POLLING: Polling,
    AccumulatorKind.BATCH: Batch,
    AccumulatorKind.WINDOW: Window,
}


def create_accumulator(definition: Accumulator, tenant: str, runtime: GraphRuntime) -> RunningAccumulator:
    """Create the running accumulator of a declaration; it does nothing until started."""
    return ACCUMULATOR_CLASSES[definition.kind](definition, tenant, runtime)
