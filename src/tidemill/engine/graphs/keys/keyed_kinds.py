"""The five kinds of accumulators of a keyed reactor."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.kinds import Passthrough, Window
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.keys.key_states import KeyState
from tidemill.engine.graphs.keys.keyed_ingest import KeyedIngest
from tidemill.engine.graphs.keys.relayed_events import RelayedEvents
from tidemill.engine.graphs.keys.topic_share import KeyedStream
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.outcomes import Receipt
from tidemill.kernel.errors import OperationError


class KeyedPassthrough(KeyedIngest, Passthrough):
    """A passthrough accumulator of a keyed reactor."""


class KeyedPolling(KeyedIngest, Polling):
    """A polling accumulator of a keyed reactor: the key is that of what the function returns."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.relayed = RelayedEvents(self)

    async def emit_answer(self, boundary: Any) -> None:
        """Emit what the function returned to its key; None says nothing about any key."""
        if boundary is None:
            self.keys.deselect()
            self._suppress(None)
            return
        try:
            key_state = await self.keys.activate(self.read_key(boundary))
        except TypeMismatchError as error:
            self.keys.deselect()
            self.dead_letter(boundary, error)
            return
        await self.with_key(key_state, super().emit_answer(boundary))


class KeyedWindow(KeyedIngest, Window):
    """A window of a keyed reactor: one for each key."""

    keeps_content = True

    def take_content(self) -> Any:
        return self.items or None

    def set_content(self, content: Any) -> None:
        if content is None:
            self.replace_buffer(())
        else:
            self.items = content


class KeyedBatch(KeyedIngest, Batch):
    """A batch of a keyed reactor: one buffer for each key. The interval is the same for all keys."""

    keeps_content = True

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.buffering: dict[KeyState, None] = {}  # the keys with events in their buffers

    def take_content(self) -> Any:
        return self.buffer, self._releasing_count, self._is_flushing, self.state, self.committed_state

    def set_content(self, content: Any) -> None:
        if content is None:
            self.buffer, self._releasing_count, self._is_flushing = [], 0, False
            super().set_content(None)
        else:
            self.buffer, self._releasing_count, self._is_flushing, *states = content
            super().set_content(states)

    def replace_buffer(self, content: Any) -> None:
        """Replace the buffered events of the selected key."""
        super().replace_buffer(content)
        self.buffering[self.keys.current] = None

    def _buffer_event(self, value: Any) -> None:
        super()._buffer_event(value)
        self.buffering[self.keys.current] = None

    @property
    def buffered_count(self) -> int:
        """The number of buffered events of all keys."""
        return sum(len(self._buffer_of(one)) for one in self.buffering)

    def is_buffering(self, key_state: KeyState) -> bool:
        """Return whether a key has events in its buffer; one that was flushed is forgotten here."""
        if key_state not in self.buffering:
            return False
        if self._buffer_of(key_state):
            return True
        del self.buffering[key_state]
        return False

    def _buffer_of(self, key_state: KeyState) -> list[Any]:
        content = self.keys.content_of(self, key_state)
        return [] if content is None else content[0]

    def _start_flush(self, flush: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        return super()._start_flush(self.with_key(self.keys.current, flush))

    def _release_later(self, batch: BatchedEvents) -> Callable[[], None]:
        key_state = self.keys.current
        key_state.pins += 1

        def release() -> None:
            key_state.pins -= 1
            self.keys.select(key_state)
            self._release_dead_lettered(batch)

        return release

    async def _flush_in_order(self) -> Receipt | None:
        key_state = self.keys.current
        receipt = await super()._flush_in_order()
        self.keys.select(key_state)
        return receipt

    async def _flush_on_time(self) -> None:
        """Flush the buffers of all keys; journaled ones share commits."""
        pending = [flushed for one in tuple(self.buffering) if (flushed := await self._flush_key(one)) is not None]
        for one in pending:
            await resolve_receipt(one)

    async def _flush_key(self, key_state: KeyState) -> PendingReceipt | None:
        if not self._buffer_of(key_state):
            self.buffering.pop(key_state, None)  # a stop may flush at the same time
            return None
        self.keys.select(key_state)
        if not self.is_async:
            return self.flush()
        work = self.with_key(key_state, self._flush_in_order())
        return await self.runtime.tasks.run_shielded(self._flush_task_name, work)

    async def drain(self) -> None:
        """Flush the buffers of all keys, and wait until that is committed."""
        await asyncio.wait({self.runtime.tasks.start(self._flush_task_name, self._flush_on_time())})
        await self.wait_committed()

    def _drop_buffered(self) -> int:
        return self.buffered_count


KEYED_CLASSES: dict[AccumulatorKind, type[KeyedIngest]] = {
    AccumulatorKind.PASSTHROUGH: KeyedPassthrough,
    AccumulatorKind.STREAM: KeyedStream,
    AccumulatorKind.POLLING: KeyedPolling,
    AccumulatorKind.BATCH: KeyedBatch,
    AccumulatorKind.WINDOW: KeyedWindow,
}


def create_keyed_accumulator(definition: Accumulator, tenant: str, runtime: GraphRuntime) -> KeyedIngest:
    """Create the running accumulator of a declaration in a keyed reactor; it does nothing until started.

    OperationError for a kind that no keyed reactor can have.
    """
    keyed_class = KEYED_CLASSES.get(definition.kind)
    if keyed_class is None:
        message = f"accumulator '{definition.declared_name}': a keyed reactor cannot have one of kind"
        raise OperationError(f"{message} '{definition.kind}'")
    return keyed_class(definition, tenant, runtime)
