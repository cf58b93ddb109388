"""Streams: accumulators that read a source, and read it again when it is lost.

A source that cannot be reached is not a crash: the stream accepts pushes meanwhile, and tries again without end, at
growing intervals. It fails only if its source says that a retry cannot help, by raising `tm.Fail`.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.sources.reader import SourceListener
from tidemill.engine.graphs.supervisor import SHORTEST_SOURCE_RETRY
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, Fail, is_cancelled_here
from tidemill.kernel.errors import OperationError
from tidemill.sources.interface import Disconnected, Encoding
from tidemill.telemetry import events
from tidemill.telemetry.logs import FAILURES_PER_REMINDER

logger = logging.getLogger(__name__)

GAP_RECORD_INTERVAL = 60.0  # seconds


class SourceConnection:
    """The connection of a stream to its source: health, tries, and what the source has lost."""

    def __init__(self, accumulator: RunningAccumulator) -> None:
        self.accumulator = accumulator
        self._gap_recorded_at: float | None = None
        self._unrecorded_gaps = 0

    def on_connected(self) -> None:
        """Set the health to live."""
        if self.accumulator.health is AccumulatorHealth.LIVE:
            return
        if self.accumulator.restart_state.failures:
            facts = {"accumulator": self.accumulator.name, "failures": self.accumulator.restart_state.failures}
            logger.info(events.SOURCE_RECOVERED, extra=facts)
        self.accumulator.restart_state.record_start(self.accumulator.clock.monotonic())
        self.accumulator.set_health(AccumulatorHealth.LIVE)

    def on_disconnected(self, reason: str) -> float:
        """Count a failed try, and return the delay before the next one.

        A stream that never was connected is disconnected only after the tries that the settings allow.
        """
        accumulator = self.accumulator
        delay = accumulator.runtime.supervisor.on_source_lost(accumulator, reason)
        tries, failures = accumulator.restart_state, accumulator.restart_state.failures
        is_connecting = accumulator.health is AccumulatorHealth.CONNECTING and tries.has_tries_left
        accumulator.set_health(accumulator.health if is_connecting else AccumulatorHealth.DISCONNECTED, reason)
        if failures == 1 or failures % FAILURES_PER_REMINDER == 0:
            facts = {"accumulator": accumulator.name, "reason": reason, "failures": failures}
            logger.warning(events.SOURCE_LOST, extra=facts)
        return delay

    async def back_off(self, reason: str) -> None:
        """Count a failed try, and wait for the next."""
        delay, accumulator = self.on_disconnected(reason), self.accumulator
        accumulator.set_health(AccumulatorHealth.DISCONNECTED)
        await accumulator.clock.sleep(delay)
        accumulator.runtime.supervisor.on_source_retry(accumulator, delay)
        if accumulator.restart_state.has_tries_left:
            accumulator.set_health(AccumulatorHealth.CONNECTING)

    async def pause(self, reason: str, delay: float) -> None:
        """Wait because the other side has asked for it: no failure.

        It stays disconnected until an answer comes: pauses may be short, and follow one another for days.
        """
        accumulator = self.accumulator
        if accumulator.health is not AccumulatorHealth.DISCONNECTED or accumulator.unhealthy_reason != reason:
            logger.info(events.SOURCE_PAUSED, extra={"accumulator": accumulator.name, "reason": reason, "delay": delay})
        accumulator.set_health(AccumulatorHealth.DISCONNECTED, reason)
        await accumulator.clock.sleep(max(delay, SHORTEST_SOURCE_RETRY))

    def record_gap(self, reason: str) -> None:
        """Record that the source has lost events, at most once a minute: a feed may do so all the time."""
        self._unrecorded_gaps += 1
        now = self.accumulator.clock.monotonic()
        if self._gap_recorded_at is not None and now - self._gap_recorded_at < GAP_RECORD_INTERVAL:
            return
        if self._unrecorded_gaps > 1:
            reason = f"{reason}; {self._unrecorded_gaps - 1} more since the last record"
        self._gap_recorded_at, self._unrecorded_gaps = now, 0
        self.accumulator.runtime.supervisor.on_source_gap(self.accumulator, reason)


class UnfinishedCalls:
    """The asynchronous calls of a stream that have not ended, by the checkpoints of their events, oldest first."""

    def __init__(self, accumulator: RunningAccumulator) -> None:
        self._accumulator = accumulator
        self._running: list[Any] = []
        self._outliving: list[Any] = []
        """Those of them whose reader was cancelled meanwhile."""

    def newest(self, otherwise: Any) -> Any:
        """Return the checkpoint that the next reader begins after."""
        return self._outliving[-1] if self._outliving else otherwise

    async def push(self, event: Any, encoding: str, checkpoint: Any) -> Receipt:
        """Push an event whose call may outlive its reader."""
        self._running.append(checkpoint)
        try:
            receipt = await self._accumulator.pushes.push(event, encoding, checkpoint)
        except asyncio.CancelledError:
            if checkpoint in self._running:  # its call continues: the next reader begins after it, and waits
                self._outliving.append(checkpoint)
                self._accumulator.intake.waiting_pushers += 1
            raise
        self.finish(checkpoint)
        return receipt

    def finish(self, checkpoint: Any) -> None:
        """Forget an event whose call has ended."""
        if checkpoint in self._running:
            self._running.remove(checkpoint)
        if checkpoint in self._outliving:
            self._outliving.remove(checkpoint)
            self._accumulator.intake.waiting_pushers -= 1


class Stream(Kind):
    """Reads a source; live only while it is connected."""

    allows_fast_path = True
    started_health = AccumulatorHealth.CONNECTING
    accumulator: RunningAccumulator
    intake: EventIngest

    def __init__(self, accumulator: RunningAccumulator) -> None:
        super().__init__(accumulator)
        definition, runtime = accumulator.definition, accumulator.runtime
        self.connection = SourceConnection(accumulator)
        self.unfinished = UnfinishedCalls(accumulator)
        self._reconnects = False  # whether the version that is being loaded reads the source in another way
        reader = None  # a partition gets the events of its source
        if definition.source is not None:
            reader = runtime.open_reader(definition, accumulator.tenant, runtime.settings, accumulator.clock)
        if reader is None:
            self.started_health = AccumulatorHealth.LIVE
        else:
            self.has_background_loop = True
            self.reader = reader

    @property
    def upstream_lag(self) -> int | None:
        return self.reader.upstream_lag if self.has_background_loop else None

    @property
    def encoding(self) -> Encoding:
        """How the bytes of its events are decoded; a stream that reads no source gets them from elsewhere, as JSON."""
        return self.reader.encoding if self.has_background_loop else "json"

    def before_redefine(self, newer: Kind) -> None:
        assert isinstance(newer, Stream), "a newer version is of the same kind"
        accumulator = self.accumulator
        self._reconnects = (
            self.has_background_loop or newer.has_background_loop
        ) and accumulator.intake.down_reason is None
        if self._reconnects:  # the health of the old connection does not apply to the new one
            accumulator.set_health(AccumulatorHealth.STARTING)
        self.has_background_loop, self.started_health = newer.has_background_loop, newer.started_health
        if newer.has_background_loop:
            self.reader = newer.reader

    def after_redefine(self) -> None:
        if self._reconnects:
            self.accumulator.set_health(self.started_health)

    async def run_loop(self) -> None:
        """Read the source until it ends; a source that fails is read again after a growing delay."""
        session = SourceSession(self)
        while (error := await self._read_source(session)) is not None:
            if isinstance(error, Disconnected) and error.retry_after is not None:
                await self.connection.pause(str(error), error.retry_after)
            else:
                await self.connection.back_off(str(error) if isinstance(error, Disconnected) else repr(error))
        if session.is_current:
            self.accumulator.set_health(AccumulatorHealth.SOCKET_ONLY)  # it has ended; pushes are still accepted

    async def _read_source(self, session: "SourceSession") -> BaseException | None:
        """Read the source until it ends (None) or is lost: then return the error of the source."""
        try:
            await self.reader.run(session, self.unfinished.newest(self.emitter.offset))
        except AUTHOR_ERRORS as error:  # author code: a source may raise anything
            if is_cancelled_here(error) or error is session.engine_error or not session.is_current:
                raise
            if isinstance(error, Fail):
                raise  # `crash` ends the accumulator
            return error
        return None

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        """Process an event of the source, and store the source's offset.

        A rejected event is retried as long as the store fails, and as long as the accumulator is down or stopping: the
        source must not continue without it.
        """
        was_logged, accumulator = False, self.accumulator
        while True:
            is_awaited = self.intake.is_async and not self.emitter.is_journaled
            push = self.unfinished.push if is_awaited else accumulator.pushes.push
            receipt = await push(event, self.encoding, checkpoint)
            is_retried = self.emitter.is_journaled or self.intake.down_reason is not None
            if receipt.outcome != "rejected" or not is_retried:
                break
            if not was_logged and not accumulator.is_closing:  # after a stop the next process reads the event again
                logger.warning(events.SOURCE_STALLED, extra={"accumulator": accumulator.name, "reason": receipt.reason})
            was_logged = True
            await accumulator.clock.sleep(accumulator.runtime.settings.checkpoint_interval)
        # No await since an event without a commit has happened: a snapshot has the event and its offset, or neither.
        if receipt.outcome != "emitted" or not self.emitter.is_journaled:  # else the commit advanced it
            self.emitter.move_offset(checkpoint)
        await self.accumulator.pushes.yield_in_turn()

    async def process_in_order(self, value: Any, held: Held, offset: Any = None) -> Receipt:
        """Process an event; its offset moves with what becomes of it, even if its reader is gone meanwhile."""
        if offset is None or self.emitter.is_journaled:
            return await super().process_in_order(value, held, offset)
        is_taken = False
        try:
            receipt = await super().process_in_order(value, held, offset)
            is_taken = receipt.outcome != "rejected"
            return receipt
        finally:
            if is_taken or self.intake.interrupted_event is value:
                self.emitter.move_offset(offset)
            self.unfinished.finish(offset)

    def on_gap(self, reason: str) -> None:
        """Count that the source has lost events, and record it."""
        self.gap_count += 1
        self.connection.record_gap(reason)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        """Process events of the source in order; journaled ones share commits."""
        if not self.emitter.is_journaled or self.intake.is_async:
            for event, checkpoint in events:
                await self.on_event(event, checkpoint)
            return
        waiting = list(events)
        while waiting:
            receipts = [await resolve_receipt(pending) for pending in _begin_steps(self, waiting)]
            rejected = [one for one, receipt in zip(waiting, receipts, strict=False) if receipt.outcome == "rejected"]
            waiting = rejected + waiting[len(receipts) :]
            if waiting:
                await self.on_event(*waiting.pop(0))  # waits for queue space, or for the store
        if events:  # the last one may have emitted nothing, and then no commit advanced the offset
            self.emitter.move_offset(events[-1][1])

    def on_moved(self, checkpoint: Any) -> None:
        """Store an offset that has moved without an event."""
        self.emitter.move_offset(checkpoint)

    def on_history_lost(self) -> None:
        """Do nothing: events that are read here need no numbers."""


def _begin_steps(stream: "Stream", events: Sequence[tuple[Any, Any]]) -> list[PendingReceipt]:
    """Begin to commit as many events as there is queue space for."""
    steps: list[PendingReceipt] = []
    for event, checkpoint in events:
        if (pending := stream.intake.begin_unblocked(event, stream.encoding, checkpoint)) is None:
            break
        steps.append(pending)
    return steps


class SourceSession(SourceListener):
    """The listener of one reader task; ignored after another task has replaced it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._task = asyncio.current_task()
        self.engine_error: Exception | None = None

    @property
    def is_current(self) -> bool:
        """Whether this task still reads the source."""
        return self._task is not None and self._task is self._stream.accumulator.loop_task

    def on_connected(self) -> None:
        if self.is_current:
            self._stream.connection.on_connected()

    def on_disconnected(self, reason: str) -> float:
        return self._stream.connection.on_disconnected(reason) if self.is_current else 0.0

    def on_gap(self, reason: str) -> None:
        if self.is_current:
            self._stream.on_gap(reason)

    def on_history_lost(self) -> None:
        if self.is_current:
            self._stream.on_history_lost()

    def on_moved(self, checkpoint: Any) -> None:
        if self.is_current:
            self._stream.on_moved(checkpoint)

    async def on_event(self, event: Any, checkpoint: Any) -> None:
        with self._delivering():
            await self._stream.on_event(event, checkpoint)

    async def on_events(self, events: Sequence[tuple[Any, Any]]) -> None:
        with self._delivering():
            await self._stream.on_events(events)

    @contextmanager
    def _delivering(self) -> Iterator[None]:
        """Reject events of a replaced reader, and remember an error of the engine: it is not the source's."""
        if not self.is_current:
            name = self._stream.accumulator.name
            raise OperationError(f"accumulator '{name}' reads its source with another reader; this one has ended")
        try:
            yield
        except Exception as error:  # raised again: `run_loop` distinguishes it from an error of the source
            self.engine_error = error
            raise
