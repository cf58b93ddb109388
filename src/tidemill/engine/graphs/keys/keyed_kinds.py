"""The kinds of accumulators of a keyed reactor: those that differ from the kind without keys."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.batch import Batch, Flushes
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.accumulators.kinds import Passthrough, Window, find_kind
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator, KeyedIngest
from tidemill.engine.graphs.keys.relayed_events import RelayedEvents
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind


class KeyedPolling(Polling):
    """A polling accumulator of a keyed reactor: the key is that of what the function returns."""

    accumulator: KeyedAccumulator
    intake: KeyedIngest

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        super().__init__(accumulator)
        self.relayed = RelayedEvents(self.accumulator)

    async def emit_answer(self, boundary: Any) -> None:
        """Emit what the function returned to its key; None says nothing about any key."""
        intake = self.intake
        if boundary is None:
            self.emitter.suppress(intake.held)
            return
        try:
            key_state = await intake.memory.activate(intake.read_key(boundary))
        except TypeMismatchError as error:
            intake.dead_letter(boundary, error, intake.held)
            return
        await intake.keys.pinned(key_state, self.emit_polled(boundary, intake.emitter.held_of(key_state)))


class KeyedBatch(Batch):
    """A batch of a keyed reactor: one buffer for each key. The interval is the same for all keys."""

    accumulator: KeyedAccumulator
    intake: KeyedIngest

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        super().__init__(accumulator)
        self.buffering: dict[KeyState, None] = {}  # the keys with events in their buffers

    def replace_events(self, held: Held, events: Iterable[Any]) -> None:
        """Replace the buffered events of a key."""
        super().replace_events(held, events)
        self._add_buffering(held)

    def buffer_event(self, value: Any, held: Held) -> None:
        super().buffer_event(value, held)
        self._add_buffering(held)

    def _add_buffering(self, held: Held) -> None:
        if held.key_state is not None:
            self.buffering[held.key_state] = None

    @property
    def buffered_count(self) -> int:
        """The number of buffered events of all keys."""
        return sum(len(self.intake.emitter.held_of(one).events) for one in self.buffering)

    def is_buffering(self, key_state: KeyState) -> bool:
        """Return whether a key has events in its buffer; one that was flushed is forgotten here."""
        if key_state not in self.buffering:
            return False
        if self.intake.emitter.held_of(key_state).events:
            return True
        del self.buffering[key_state]
        return False

    def create_flushes(self) -> "KeyedFlushes":
        return KeyedFlushes(self)


class KeyedFlushes(Flushes):
    """Runs the flushes of a keyed batch, each of one key, which stays active meanwhile."""

    batch: KeyedBatch
    intake: KeyedIngest

    def start(self, flush: Coroutine[Any, Any, Any], held: Held) -> "asyncio.Task[Any]":
        assert held.key_state is not None, "events of a keyed accumulator have a key"
        return super().start(self.intake.keys.pinned(held.key_state, flush), held)

    def release_later(self, batch: BatchedEvents, held: Held) -> Callable[[], None]:
        key_state = held.key_state
        assert key_state is not None, "events of a keyed accumulator have a key"
        key_state.pins += 1

        def release() -> None:
            key_state.pins -= 1
            self.release_dead_lettered(batch, held)

        return release

    async def run_on_time(self) -> None:
        """Flush the buffers of all keys; journaled ones share commits."""
        pending = [
            flushed for one in tuple(self.batch.buffering) if (flushed := await self._flush_key(one)) is not None
        ]
        for one in pending:
            await resolve_receipt(one)

    async def _flush_key(self, key_state: KeyState) -> PendingReceipt | None:
        intake = self.intake
        held = intake.emitter.held_of(key_state)
        if not held.events:
            self.batch.buffering.pop(key_state, None)  # a stop may flush at the same time
            return None
        if not intake.is_async:
            return self.batch.flush(held)
        return await intake.runtime.tasks.run_shielded(
            self.task_name, intake.keys.pinned(key_state, self.run_in_order(held))
        )

    async def drain(self) -> None:
        """Flush the buffers of all keys, before an orderly stop."""
        tasks = self.intake.runtime.tasks
        await asyncio.wait({tasks.start(self.task_name, self.run_on_time())})


KEYED_KINDS: dict[AccumulatorKind, type[Kind]] = {
    AccumulatorKind.PASSTHROUGH: Passthrough,
    AccumulatorKind.STREAM: KeyedStream,
    AccumulatorKind.POLLING: KeyedPolling,
    AccumulatorKind.BATCH: KeyedBatch,
    AccumulatorKind.WINDOW: Window,
}


def create_keyed_accumulator(definition: Accumulator, tenant: str, runtime: GraphRuntime) -> KeyedAccumulator:
    """Create the running accumulator of a declaration in a keyed reactor; it does nothing until started."""
    return KeyedAccumulator(definition, tenant, runtime, find_kind(KEYED_KINDS, definition, "a keyed reactor"))
