"""The five kinds of accumulators: passthrough, polling, stream, batch and window."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.engine.graphs.accumulators.emit import PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
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

    @property
    def _max_length(self) -> int | None:
        capacity = self.intake.definition.capacity or 0
        return capacity if capacity >= 0 else None

    def new_events(self) -> deque[Any]:
        return deque(maxlen=self._max_length)

    def replace_events(self, held: Held, events: Iterable[Any]) -> None:
        held.events = deque(events, maxlen=self._max_length)

    def migrate_events(self, held: Held) -> None:
        """Keep the newest values that fit the newer declaration."""
        self.replace_events(held, self.accumulator.fitting_events(held, held.events))

    def process_now(self, value: Any, held: Held) -> Receipt:
        """Append a value, and emit the whole window."""
        if not self._append(value, held):
            self.emitter.mark_changed(held)
            return self.emitter.receipt("suppressed")
        receipt = self.emitter.assign_sequence()
        self.emitter.deliver(list(held.events), held)
        return receipt

    def begin_step(self, value: Any, held: Held, offset: Any = None) -> PendingReceipt:  # noqa: ARG002 - has no source
        """Begin to commit that a value is appended."""
        return self.emitter.append_to_journal(JournalStep("held", value), value, held)

    def apply_step(self, step: JournalStep, held: Held) -> Any:
        """Append a value, and return the whole window unless its capacity is 0."""
        if not self._append(step.value, held):
            return None
        self.emitter.counter.sequence += 1
        return list(held.events)

    def boundary_of(self, step: JournalStep, held: Held) -> Any:  # noqa: ARG002 - a window has only its current content
        """Return the current window."""
        return list(held.events) if self.intake.definition.capacity != 0 else None

    def feed(self, value: Any, source_reactor: FiringLoop, held: Held) -> None:
        if value is None:
            return
        is_visible = self._append(value, held)
        source_reactor.mark_changed(held.key_state)
        if not is_visible:
            return
        self.emitter.counter.sequence += 1
        for reactor, index in self.emitter.targets:
            if reactor is source_reactor:
                reactor.refresh_window(index, list(held.events), held.key_state)
            else:
                reactor.new_series()  # the journal has no entry for this
                reactor.put(index, list(held.events))
                reactor.fire_due()

    async def replay(self, value: Any, dead_letter: DeadLetter, held: Held) -> Receipt:
        """Append the value of a dead letter."""
        if not self.emitter.is_journaled:
            return self.process_now(value, held)
        step = JournalStep("held", value)
        return await resolve_receipt(self.emitter.append_to_journal(step, ReplayedEvent(dead_letter), held))

    def _append(self, value: Any, held: Held) -> bool:
        """Append a value; return whether the window has a content to emit."""
        self.emitter.arrived_at = self.intake.clock.monotonic()
        held.events.append(value)
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
