"""The five kinds of running accumulators: passthrough, polling, stream, batch and window."""

from collections import deque
from typing import Any, Self

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.accumulators.stream import Stream
from tidemill.engine.graphs.dead_letters import ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import Receipt


class Passthrough(RunningAccumulator):
    """Fed by push alone, and therefore always healthy."""

    allows_fast_path = True


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
        self.migrate_buffer()

    def migrate_buffer(self) -> None:
        """Keep the newest values that fit the newer declaration."""
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
        self.counter.sequence += 1
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
