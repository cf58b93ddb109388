"""Batches: buffer events, and process them together by time, by size, after each firing, and at an orderly stop.

With a journal an event is buffered by a commit, and released by the same commit that records the batch's boundary:
whenever the process dies, each event is either still buffered or already part of a boundary, never both.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
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
    intake: EventIngest

    def __init__(self, accumulator: RunningAccumulator) -> None:
        super().__init__(accumulator)
        self._failed_batches = 0
        self.flushes = self.create_flushes()

    def create_flushes(self) -> "Flushes":
        """Create the part that runs its flushes."""
        return Flushes(self)

    def new_events(self) -> list[Any]:
        return []

    def replace_events(self, held: Held, events: Iterable[Any]) -> None:
        held.events = list(events)

    def migrate_events(self, held: Held) -> None:
        """Keep the buffered events that fit the newer declaration; released ones are dropped by their count."""
        remaining = held.events[held.releasing_count :]
        held.events[held.releasing_count :] = self.accumulator.fitting_events(held, remaining)

    @property
    def event_count(self) -> int:
        """How many single events were taken; a failed batch does not count as another one."""
        return self.emitter.buffered + self.intake.dead_letters.total - self._failed_batches

    @property
    def buffered_count(self) -> int:
        return len(self.emitter.held.events)

    # -- buffering

    def process_now(self, value: Any, held: Held) -> Receipt:
        """Buffer an event, and flush the batch if it is full."""
        self.buffer_event(value, held)
        if self.is_full(held):
            flushed = self.flush(held)
            if isinstance(flushed, Receipt):
                return flushed
        return self.emitter.receipt("buffered")

    def begin_step(self, value: Any, held: Held, offset: Any = None) -> PendingReceipt:
        """Begin to commit that an event is buffered."""
        return self.emitter.append_to_journal(JournalStep("held", value, offset=offset), value, held)

    def apply_step(self, step: JournalStep, held: Held) -> Any:
        """Buffer an event, or release those that became a boundary or a dead letter."""
        if step.kind == "held":
            self.buffer_event(step.value, held)
            return None
        self.drop_released(step.count, held)
        return self.emitter.apply_boundary(step, held) if step.kind == "boundary" else None

    def after_commit(self, held: Held) -> None:
        """Flush the batch if a committed event fills it."""
        if self.is_full(held) and not held.is_flushing:
            held.is_flushing = True
            self.flushes.start(self.flushes.run_while_full(held), held)

    def before_refusal(self, step: JournalStep, held: Held) -> None:
        """Let the events of a refused flush be flushed again."""
        if step.kind != "held":
            held.releasing_count = 0

    async def process_in_order(self, value: Any, held: Held, offset: Any = None) -> Receipt:
        if self.emitter.is_journaled:
            return await self.intake.process_journaled(value, held, offset)
        async with self.intake.process_lock:
            if self.is_full(held, with_another=True):
                await self.intake.wait_for_queue_space(held)
            if (rejection := self.intake.rejection(held)) is not None:
                return rejection
            return await self.flushes.take(value, held)

    def buffer_event(self, value: Any, held: Held) -> None:
        """Hold an event until the next flush."""
        held.events.append(value)
        self.emitter.buffered += 1
        self.emitter.arrived_at = self.intake.clock.monotonic()
        self.emitter.mark_changed(held)

    def is_full(self, held: Held, *, with_another: bool = False) -> bool:
        """Return whether the batch has its size, or would have it with another event."""
        size = self.intake.definition.max_size
        return size is not None and len(held.events) + with_another >= size

    def is_blocked(self, held: Held) -> bool:
        """Only the event that fills the batch may have to wait: the others are only buffered."""
        if self.intake.waiting_pushers:
            return True
        return self.is_full(held, with_another=True) and self.intake.is_queue_blocked(held)

    # -- flushing

    def flush(self, held: Held) -> PendingReceipt | None:
        """Process the buffered events and emit the boundary; do nothing without events or without queue space."""
        batch = self.take_batch(held)
        if batch is None:
            return None
        try:
            boundary = self.intake.process(batch.events, held)
        except AUTHOR_ERRORS as error:
            return self.intake.dead_letter(batch, error, held)
        return self.emit_or_journal(boundary, batch, held)

    def take_batch(self, held: Held) -> BatchedEvents | None:
        """Return the events to process. With a journal they stay in the buffer until the boundary is committed."""
        if not held.events or held.releasing_count or self.flushes.is_blocked(held):
            return None
        if self.emitter.is_journaled:
            events = held.events[: self.intake.definition.max_size]
            held.releasing_count = len(events)
        else:
            events, held.events = held.events, []
            self.emitter.mark_changed(held)  # even if the function returns None
        return BatchedEvents(events, held.releasing_count)

    def emit_or_journal(self, boundary: Any, event: Any, held: Held, offset: Any = None) -> PendingReceipt:
        """Emit a batch's boundary and release its events with it, even if the boundary is None."""
        emitter, release_count = self.emitter, event.count if isinstance(event, BatchedEvents) else 0
        if release_count and not emitter.is_journaled:  # the reactor was redefined without a journal
            self.drop_released(release_count, held)
            release_count = 0
        if release_count and boundary is None:
            emitter.suppressed += 1
            return emitter.append_to_journal(JournalStep("released", count=release_count), event, held)
        return emitter.emit_or_journal(boundary, event, held, offset, release_count)

    def drop_released(self, count: int, held: Held) -> None:
        """Drop the first events, which are part of a boundary or of a dead letter."""
        del held.events[:count]
        held.releasing_count = 0

    def requeue(self, event: Any, held: Held) -> None:
        """Return the events of a batch whose boundary was rejected to the buffer."""
        if isinstance(event, BatchedEvents):
            held.releasing_count = 0
            if not event.count:
                held.events[:0] = event.events

    def on_dead_letter(self, event: Any, held: Held) -> None:
        """Keep the events of a batch buffered until the dead letter is stored."""
        if isinstance(event, BatchedEvents):
            self._failed_batches += 1
            if event.count:
                self.intake.runtime.durability.on_next_write(self.flushes.release_later(event, held))

    def after_firing(self, held: Held) -> None:
        if self.flushes.need_task:
            if held.events:
                self.flushes.start(self.flushes.run_in_order(held), held)
        else:
            self.flush(held)

    async def run_loop(self) -> None:
        while True:
            await self.intake.clock.sleep(self.intake.definition.every or 0.0)
            await self.flushes.run_on_time()

    # -- stopping

    async def drain(self) -> None:
        await self.flushes.drain()
        await self.emitter.wait_committed()

    def before_stop(self) -> None:
        if not self.emitter.feeds_durable:
            for held in self.emitter.held_now():
                for _ in held.events:
                    self.emitter.count_drop("unloaded")
                held.events.clear()

    async def replay(self, value: Any, dead_letter: DeadLetter, held: Held) -> Receipt:
        """Buffer the single event of a dead letter."""
        if self.emitter.is_journaled:
            step = JournalStep("held", value)
            return await resolve_receipt(self.emitter.append_to_journal(step, ReplayedEvent(dead_letter), held))
        self.intake.dead_letters.remove(dead_letter.id)  # from now on the event is part of its batch
        return await self.flushes.take(value, held) if self.intake.is_async else self.process_now(value, held)


class Flushes:
    """Runs the flushes of one batch: now, or in a task that waits for the author's function or for a commit."""

    def __init__(self, batch: "Batch") -> None:
        self.batch = batch
        self.intake = batch.intake
        self.emitter = batch.emitter

    def is_blocked(self, held: Held) -> bool:
        """Return whether the queue of a reactor has no space, or the accumulator is quiesced."""
        gates, key_state = self.emitter.queue_gates, held.key_state
        is_full = any(one.is_blocked(key_state) or one.is_rejecting(key_state) for one in gates)
        return is_full or not self.intake.flowing.is_set()

    def release_later(self, batch: BatchedEvents, held: Held) -> Callable[[], None]:
        """Return the function that drops the events of a dead batch when that is stored."""
        return lambda: self.release_dead_lettered(batch, held)

    def release_dead_lettered(self, batch: BatchedEvents, held: Held) -> None:
        """Drop the events of a dead batch."""
        if self.emitter.is_journaled:
            self.emitter.append_to_journal(JournalStep("released", count=batch.count), batch, held)
        else:
            self.batch.drop_released(batch.count, held)

    async def take(self, value: Any, held: Held) -> Receipt:
        """Buffer an event, and flush the batch with an asynchronous function if it is full, within a turn."""
        self.batch.buffer_event(value, held)
        return (await self.run_async(held) if self.batch.is_full(held) else None) or self.emitter.receipt("buffered")

    async def run_async(self, held: Held) -> Receipt | None:
        """Flush with an asynchronous function, within a turn."""
        batch = self.batch.take_batch(held)
        if batch is None:
            return None
        call = partial(self.intake.process, batch.events, held)
        return await resolve_receipt(await self.intake.await_author(call, batch, held))

    async def run_while_full(self, held: Held) -> None:
        """Flush until the batch is no longer full."""
        try:
            while self.batch.is_full(held):
                receipt = await self.run_in_order(held)
                if receipt is None or receipt.outcome == "rejected" or held.releasing_count:
                    return  # no space, no store, or a dead letter to wait for: the next event or the timer flushes
        finally:
            held.is_flushing = False

    async def run_in_order(self, held: Held) -> Receipt | None:
        """Flush after what came before; return the receipt, None if there was nothing to do."""
        async with self.intake.process_lock:
            if self.intake.is_async:
                return await self.run_async(held)
            pending = self.batch.flush(held)
            return None if pending is None else await resolve_receipt(pending)

    @property
    def need_task(self) -> bool:
        """Whether a flush has to wait for the function, or for a commit."""
        return self.intake.is_async or self.emitter.is_journaled

    def start(self, flush: Coroutine[Any, Any, Any], held: Held) -> "asyncio.Task[Any]":  # noqa: ARG002 - without keys
        """Start a task that flushes what is held."""
        return self.intake.runtime.tasks.start(self.task_name, flush)

    @property
    def task_name(self) -> str:
        """The name of tasks that flush."""
        return f"accumulator {self.intake.name}: flush"

    async def run_on_time(self) -> None:
        """Flush because the interval is over."""
        held = self.emitter.held
        if self.need_task:
            await self.intake.runtime.tasks.run_shielded(self.task_name, self.run_in_order(held))
        else:
            self.batch.flush(held)

    async def drain(self) -> None:
        """Flush, before an orderly stop."""
        held = self.emitter.held
        if self.need_task:  # if that hangs, `stop` dead-letters the events
            await asyncio.wait({self.start(self.run_in_order(held), held)})
        else:
            self.batch.flush(held)
