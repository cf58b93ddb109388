"""The five kinds of accumulators: passthrough, polling, stream, batch and window."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.accumulators.polling import Polling
from tidemill.engine.graphs.accumulators.stream import Stream
from tidemill.engine.graphs.dead_letters import ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.kernel.errors import OperationError


class Passthrough(Kind):
    """Fed by push alone, and therefore always healthy."""

    allows_fast_path = True


class Window(Kind):
    """Keeps the newest fed values; emits the whole window, oldest first."""

    started_health = AccumulatorHealth.LIVE
    holds_events = True
    accumulator: RunningAccumulator
    intake: EventIngest

    def __init__(self, accumulator: RunningAccumulator) -> None:
        super().__init__(accumulator)
        self.items: deque[Any] = deque(maxlen=self._max_length)

    @property
    def _max_length(self) -> int | None:
        capacity = self.intake.definition.capacity or 0
        return capacity if capacity >= 0 else None

    def migrate_buffer(self) -> None:
        """Keep the newest values that fit the newer declaration."""
        self.items = deque(self.accumulator.migrate_events(self.items), maxlen=self._max_length)

    def process_now(self, value: Any) -> Receipt:
        """Append a value, and emit the whole window."""
        if not self._append(value):
            self.emitter.mark_changed()
            return self.emitter.receipt("suppressed")
        receipt = self.emitter.assign_sequence()
        self.emitter.deliver(list(self.items))
        return receipt

    def begin_step(self, value: Any, offset: Any = None) -> PendingReceipt:  # noqa: ARG002 - no source feeds a window
        """Begin to commit that a value is appended."""
        return self.emitter.append_to_journal(JournalStep("held", value), value)

    def apply_step(self, step: JournalStep) -> Any:
        """Append a value, and return the whole window unless its capacity is 0."""
        if not self._append(step.value):
            return None
        self.emitter.counter.sequence += 1
        return list(self.items)

    def boundary_of(self, step: JournalStep) -> Any:  # noqa: ARG002 - a window has only its current content
        """Return the current window."""
        return list(self.items) if self.intake.definition.capacity != 0 else None

    @property
    def buffered_events(self) -> list[Any]:
        return list(self.items)

    def replace_buffer(self, content: Any) -> None:
        self.items = deque(content, maxlen=self._max_length)

    def take_content(self) -> Any:
        return self.items or None

    def set_content(self, content: Any) -> None:
        if content is None:
            self.replace_buffer(())
        else:
            self.items = content

    def feed(self, value: Any, source_reactor: FiringLoop) -> None:
        if value is None:
            return
        is_visible = self._append(value)
        source_reactor.mark_changed()
        if not is_visible:
            return
        self.emitter.counter.sequence += 1
        for reactor, index in self.emitter.targets:
            if reactor is source_reactor:
                reactor.refresh_window(index, list(self.items))
            else:
                reactor.new_series()  # the journal has no entry for this
                reactor.put(index, list(self.items))
                reactor.fire_due()

    async def replay(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        """Append the value of a dead letter."""
        if not self.emitter.is_journaled:
            return self.process_now(value)
        step = JournalStep("held", value)
        return await resolve_receipt(self.emitter.append_to_journal(step, ReplayedEvent(dead_letter)))

    def _append(self, value: Any) -> bool:
        """Append a value; return whether the window has a content to emit."""
        self.emitter.arrived_at = self.intake.clock.monotonic()
        self.items.append(value)
        is_visible = self.intake.definition.capacity != 0
        self.emitter.suppressed += not is_visible
        return is_visible


KINDS: dict[AccumulatorKind, type[Kind]] = {
    AccumulatorKind.PASSTHROUGH: Passthrough,
    AccumulatorKind.STREAM: Stream,
    AccumulatorKind.POLLING: Polling,
    AccumulatorKind.BATCH: Batch,
    AccumulatorKind.WINDOW: Window,
}


def find_kind(kinds: Mapping[AccumulatorKind, type[Kind]], definition: Accumulator, what: str) -> type[Kind]:
    """Return the kind of a declaration; OperationError if such a reactor cannot have it."""
    found = kinds.get(definition.kind)
    if found is None:
        message = f"accumulator '{definition.declared_name}': {what} cannot have one of kind '{definition.kind}'"
        raise OperationError(message)
    return found


def create_accumulator(definition: Accumulator, tenant: str, runtime: GraphRuntime) -> RunningAccumulator:
    """Create the running accumulator of a declaration; it does nothing until started."""
    return RunningAccumulator(definition, tenant, runtime, find_kind(KINDS, definition, "a reactor"))
