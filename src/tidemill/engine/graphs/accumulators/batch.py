"""Batches: buffer events, and process them together by time, by size, after each firing, and at an orderly stop.

With a journal an event is buffered by a commit, and released by the same commit that records the batch's boundary:
whenever the process dies, each event is either still buffered or already part of a boundary, never both.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.dead_letters import BatchedEvents, ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS


class Batch(Kind):
    """Buffers events until they are processed together."""

    started_health = AccumulatorHealth.LIVE
    flushes_after_firing = True
    has_background_loop = True
    holds_events = True
    buffers_events = True
    accumulator: RunningAccumulator

    def __init__(self, accumulator: EventIngest) -> None:
        super().__init__(accumulator)
        self.buffer: list[Any] = []
        self._releasing_count = 0  # events at the front of the buffer whose boundary is being committed
        self._is_flushing = False  # a flush because of the size is running
        self._failed_batches = 0

    def migrate_buffer(self) -> None:
        """Keep the buffered events that fit the newer declaration."""
        releasing, remaining = self.buffer[: self._releasing_count], self.buffer[self._releasing_count :]
        self.buffer = [
            *releasing,
            *self.accumulator.migrate_events(remaining),
        ]  # released events are dropped by their count

    @property
    def event_count(self) -> int:
        """How many single events were taken; a failed batch does not count as another one."""
        return self.emitter.buffered + self.accumulator.dead_letters.total - self._failed_batches

    @property
    def buffered_count(self) -> int:
        return len(self.buffer)

    @property
    def buffered_events(self) -> list[Any]:
        return self.buffer.copy()

    def replace_buffer(self, content: Any) -> None:
        self.buffer = list(content)

    def take_content(self) -> Any:
        is_idle = not (self.buffer or self._releasing_count or self._is_flushing)
        return None if is_idle else (self.buffer, self._releasing_count, self._is_flushing)

    def set_content(self, content: Any) -> None:
        self.buffer, self._releasing_count, self._is_flushing = ([], 0, False) if content is None else content

    # -- buffering

    def process_now(self, value: Any) -> Receipt:
        """Buffer an event, and flush the batch if it is full."""
        self._buffer_event(value)
        if self._is_full():
            flushed = self.flush()
            if isinstance(flushed, Receipt):
                return flushed
        return self.emitter.receipt("buffered")

    def begin_step(self, value: Any, offset: Any = None) -> PendingReceipt:
        """Begin to commit that an event is buffered."""
        return self.emitter.append_to_journal(JournalStep("held", value, offset=offset), value)

    def apply_step(self, step: JournalStep) -> Any:
        """Buffer an event, or release those that became a boundary or a dead letter."""
        if step.kind == "held":
            self._buffer_event(step.value)
            return None
        self._drop_released(step.count)
        return self.emitter.apply_boundary(step) if step.kind == "boundary" else None

    def after_commit(self) -> None:
        """Flush the batch if a committed event fills it."""
        if self._is_full() and not self._is_flushing:
            self._is_flushing = True
            self._start_flush(self._flush_while_full())

    def before_refusal(self, step: JournalStep) -> None:
        """Let the events of a refused flush be flushed again."""
        if step.kind != "held":
            self._releasing_count = 0

    async def process_in_order(self, value: Any, offset: Any = None) -> Receipt:
        if self.emitter.is_journaled:
            return await self.accumulator.process_journaled(value, offset)
        async with self.accumulator.process_lock:
            if self._is_full(with_another=True):
                await self.accumulator.wait_for_queue_space()
            if (rejection := self.accumulator.rejection()) is not None:
                return rejection
            return await self._process_async(value)

    async def _process_async(self, value: Any) -> Receipt:
        self._buffer_event(value)
        return (await self._flush_async() if self._is_full() else None) or self.emitter.receipt("buffered")

    def _buffer_event(self, value: Any) -> None:
        self.buffer.append(value)
        self.emitter.buffered += 1
        self.emitter.arrived_at = self.accumulator.clock.monotonic()
        self.emitter.mark_changed()

    def _is_full(self, *, with_another: bool = False) -> bool:
        size = self.accumulator.definition.max_size
        return size is not None and len(self.buffer) + with_another >= size

    def is_blocked(self) -> bool:
        """Only the event that fills the batch may have to wait: the others are only buffered."""
        if self.accumulator.waiting_pushers:
            return True
        return self._is_full(with_another=True) and self.accumulator.is_queue_blocked()

    # -- flushing

    def flush(self) -> PendingReceipt | None:
        """Process the buffered events and emit the boundary; do nothing without events or without queue space."""
        batch = self._take_batch()
        if batch is None:
            return None
        try:
            boundary = self.accumulator.process(batch.events)
        except AUTHOR_ERRORS as error:
            return self.accumulator.dead_letter(batch, error)
        return self.emit_or_journal(boundary, batch)

    def _take_batch(self) -> BatchedEvents | None:
        """Return the events to process. With a journal they stay in the buffer until the boundary is committed."""
        if not self.buffer or self._releasing_count or self._is_queue_blocked():
            return None
        if self.emitter.is_journaled:
            events = self.buffer[: self.accumulator.definition.max_size]
            self._releasing_count = len(events)
        else:
            events, self.buffer = self.buffer, []
            self.emitter.mark_changed()  # even if the function returns None
        return BatchedEvents(events, self._releasing_count)

    def emit_or_journal(self, boundary: Any, event: Any, offset: Any = None) -> PendingReceipt:
        """Emit a batch's boundary and release its events with it, even if the boundary is None."""
        emitter, release_count = self.emitter, event.count if isinstance(event, BatchedEvents) else 0
        if release_count and not emitter.is_journaled:  # the reactor was redefined without a journal
            self._drop_released(release_count)
            release_count = 0
        if release_count and boundary is None:
            emitter.suppressed += 1
            return emitter.append_to_journal(JournalStep("released", count=release_count), event)
        return emitter.emit_or_journal(boundary, event, offset, release_count)

    def _drop_released(self, count: int) -> None:
        del self.buffer[:count]
        self._releasing_count = 0

    def requeue(self, event: Any) -> None:
        """Return the events of a batch whose boundary was rejected to the buffer."""
        if isinstance(event, BatchedEvents):
            self._releasing_count = 0
            if not event.count:
                self.buffer[:0] = event.events

    def _is_queue_blocked(self) -> bool:
        gates = self.emitter.queue_gates
        return not self.accumulator.flowing.is_set() or any(one.is_blocked or one.is_rejecting for one in gates)

    def on_dead_letter(self, event: Any) -> None:
        """Keep the events of a batch buffered until the dead letter is stored."""
        if isinstance(event, BatchedEvents):
            self._failed_batches += 1
            if event.count:
                self.accumulator.runtime.durability.on_next_write(self._release_later(event))

    def _release_later(self, batch: BatchedEvents) -> Callable[[], None]:
        return lambda: self._release_dead_lettered(batch)

    def _release_dead_lettered(self, batch: BatchedEvents) -> None:
        if self.emitter.is_journaled:
            self.emitter.append_to_journal(JournalStep("released", count=batch.count), batch)
        else:
            self._drop_released(batch.count)

    async def _flush_async(self) -> Receipt | None:
        batch = self._take_batch()
        if batch is None:
            return None
        return await resolve_receipt(
            await self.accumulator.await_author(lambda: self.accumulator.process(batch.events), batch)
        )

    async def _flush_while_full(self) -> None:
        try:
            while self._is_full():
                receipt = await self._flush_in_order()
                if receipt is None or receipt.outcome == "rejected" or self._releasing_count:
                    return  # no space, no store, or a dead letter to wait for: the next event or the timer flushes
        finally:
            self._is_flushing = False

    async def _flush_in_order(self) -> Receipt | None:
        async with self.accumulator.process_lock:
            if self.accumulator.is_async:
                return await self._flush_async()
            pending = self.flush()
            return None if pending is None else await resolve_receipt(pending)

    def after_firing(self) -> None:
        if self._flushes_in_task:
            if self.buffer:
                self._flush_soon()
        else:
            self.flush()

    @property
    def _flushes_in_task(self) -> bool:
        """Whether a flush has to wait for the function, or for a commit."""
        return self.accumulator.is_async or self.emitter.is_journaled

    def _flush_soon(self) -> None:
        self._start_flush(self._flush_in_order())

    def _start_flush(self, flush: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return self.accumulator.runtime.tasks.start(self._flush_task_name, flush)

    @property
    def _flush_task_name(self) -> str:
        return f"accumulator {self.accumulator.name}: flush"

    async def run_loop(self) -> None:
        while True:
            await self.accumulator.clock.sleep(self.accumulator.definition.every or 0.0)
            await self._flush_on_time()

    async def _flush_on_time(self) -> None:
        if self._flushes_in_task:
            await self.accumulator.runtime.tasks.run_shielded(self._flush_task_name, self._flush_in_order())
        else:
            self.flush()

    # -- stopping

    async def drain(self) -> None:
        if self._flushes_in_task:  # if that hangs, `stop` dead-letters the events
            await asyncio.wait({self._start_flush(self._flush_in_order())})
        else:
            self.flush()
        await self.emitter.wait_committed()

    def before_stop(self) -> None:
        if not self.emitter.feeds_durable:
            for _ in range(self._drop_buffered()):
                self.emitter.count_drop("unloaded")

    def _drop_buffered(self) -> int:
        unprocessed, self.buffer = self.buffer, []
        return len(unprocessed)

    async def replay(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        """Buffer the single event of a dead letter."""
        if self.emitter.is_journaled:
            step = JournalStep("held", value)
            return await resolve_receipt(self.emitter.append_to_journal(step, ReplayedEvent(dead_letter)))
        self.accumulator.dead_letters.remove(dead_letter.id)  # from now on the event is part of its batch
        return await self._process_async(value) if self.accumulator.is_async else self.process_now(value)
