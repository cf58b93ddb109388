"""The kinds of accumulators of a keyed reactor: those that differ from the kind without keys."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.batch import Batch, Flushes
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.accumulators.kinds import Passthrough, Window, find_kind
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.keys.key_states import KeyState
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator, KeyedIngest
from tidemill.engine.graphs.keys.relayed_events import RelayedEvents
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.outcomes import Receipt


class KeyedPolling(Polling):
    """A polling accumulator of a keyed reactor: the key is that of what the function returns."""

    accumulator: KeyedAccumulator
    intake: KeyedIngest

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        super().__init__(accumulator)
        self.relayed = RelayedEvents(self.accumulator)

    async def emit_answer(self, boundary: Any) -> None:
        """Emit what the function returned to its key; None says nothing about any key."""
        accumulator = self.accumulator
        if boundary is None:
            accumulator.intake.keys.deselect()
            self.emitter.suppress(None)
            return
        try:
            key_state = await accumulator.intake.keys.activate(accumulator.intake.read_key(boundary))
        except TypeMismatchError as error:
            accumulator.intake.keys.deselect()
            accumulator.intake.dead_letter(boundary, error)
            return
        await accumulator.intake.keys.with_key(key_state, super().emit_answer(boundary))


class KeyedBatch(Batch):
    """A batch of a keyed reactor: one buffer for each key. The interval is the same for all keys."""

    accumulator: KeyedAccumulator
    intake: KeyedIngest

    def __init__(self, accumulator: KeyedAccumulator) -> None:
        super().__init__(accumulator)
        self.buffering: dict[KeyState, None] = {}  # the keys with events in their buffers

    def replace_buffer(self, content: Any) -> None:
        """Replace the buffered events of the selected key."""
        super().replace_buffer(content)
        self.buffering[self.intake.keys.current] = None

    def buffer_event(self, value: Any) -> None:
        super().buffer_event(value)
        self.buffering[self.intake.keys.current] = None

    @property
    def buffered_count(self) -> int:
        """The number of buffered events of all keys."""
        return sum(len(self.buffer_of(one)) for one in self.buffering)

    def is_buffering(self, key_state: KeyState) -> bool:
        """Return whether a key has events in its buffer; one that was flushed is forgotten here."""
        if key_state not in self.buffering:
            return False
        if self.buffer_of(key_state):
            return True
        del self.buffering[key_state]
        return False

    def buffer_of(self, key_state: KeyState) -> list[Any]:
        """Return the buffered events of a key."""
        keys = self.intake.keys
        if key_state is keys.current:
            return self.buffer
        content = keys.content_of(self.accumulator, key_state)
        return [] if content is None or content[2] is None else content[2][0]

    def _drop_buffered(self) -> int:
        return self.buffered_count

    def create_flushes(self) -> "KeyedFlushes":
        return KeyedFlushes(self)


class KeyedFlushes(Flushes):
    """Runs the flushes of a keyed batch, each with its key selected."""

    batch: KeyedBatch
    intake: KeyedIngest

    def start(self, flush: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return super().start(self.intake.keys.with_key(self.intake.keys.current, flush))

    def release_later(self, batch: BatchedEvents) -> Callable[[], None]:
        keys = self.intake.keys
        key_state = keys.current
        key_state.pins += 1

        def release() -> None:
            key_state.pins -= 1
            keys.select(key_state)
            self.release_dead_lettered(batch)

        return release

    async def run_in_order(self) -> Receipt | None:
        keys = self.intake.keys
        key_state = keys.current
        receipt = await super().run_in_order()
        keys.select(key_state)
        return receipt

    async def run_on_time(self) -> None:
        """Flush the buffers of all keys; journaled ones share commits."""
        pending = [
            flushed for one in tuple(self.batch.buffering) if (flushed := await self._flush_key(one)) is not None
        ]
        for one in pending:
            await resolve_receipt(one)

    async def _flush_key(self, key_state: KeyState) -> PendingReceipt | None:
        intake = self.intake
        if not self.batch.buffer_of(key_state):
            self.batch.buffering.pop(key_state, None)  # a stop may flush at the same time
            return None
        intake.keys.select(key_state)
        if not intake.is_async:
            return self.batch.flush()
        work = intake.keys.with_key(key_state, self.run_in_order())
        return await intake.runtime.tasks.run_shielded(self.task_name, work)

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
