"""The way out of an accumulator: boundaries to its reactors, at once or when the journal has them.

Where some reactor has durability="boundary", what comes of an event is a step: it is committed to the journal first,
and happens then. Steps do not wait for one another's commit: each is prepared on top of those before it, which are
refused together if the store refuses one. What happens is written so that it can happen again, from the journal.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from tidemill.annotations.codec import UnstorableError
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.durability_backend import AccumulatorCodecs, JournalStep
from tidemill.engine.graphs.event_path.fast_path import SequenceCounter
from tidemill.engine.graphs.event_path.ports import ReactorInput
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.result import Receipt
from tidemill.graphs.snapshot import encode_stored, journal_checksum_seed
from tidemill.storage.graph_ports import JournalKey

PendingReceipt = Receipt | asyncio.Future[Receipt]
"""What became of an event, or will have when it is committed."""


class BoundaryEmitter(ABC):
    """Where one accumulator's boundaries go, and what is kept of it."""

    definition: Accumulator
    boundary_validator: TypeValidator
    buffers_events = False  # whether events are held back until they are summed up

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        self.name = definition.name
        self.tenant = tenant
        self.runtime = runtime
        self.clock = runtime.clock
        self.counter = SequenceCounter()
        self.suppressed = self.buffered = 0
        self.dropped: Counter[str] = Counter()
        self.targets: list[tuple[ReactorInput, int]] = []
        self.is_journaled = False  # whether everything is committed to the journal before it happens
        self.state: Any = definition.state() if definition.state is not None else None
        self.committed_state = self.state  # behind the state by what is being committed
        self.offset: Any = None  # how far the source was read, for those that have one
        self.journal_key = JournalKey(tenant, definition.name)
        self.journal_seed = journal_checksum_seed(*self.journal_key)
        self.position = 0  # of the newest thing in the journal that has happened
        self.checkpointed_position = 0  # the position up to which the newest checkpoint in the store holds it
        self.departed_reactors: dict[
            ReactorInput, int
        ] = {}  # reactors that are being exchanged, and the position when they left
        self.generation = 0  # of its part of the checkpoint
        self._codecs: AccumulatorCodecs | None = None
        self._last_event_time: float | None = None

    def deliver(self, boundary: Any, position: int = 0) -> None:
        """Hand a boundary to every reactor; none fires before all have it, so that all see the same order."""
        targets = self.targets
        for reactor, index in targets:
            reactor.put(index, boundary, position)
        for reactor, _ in targets:
            reactor.fire_due()

    def mark_changed(self) -> None:
        """Let the next checkpoint include what has changed here, although no reactor was told."""
        for reactor, _ in self.targets:
            reactor.mark_changed()

    @property
    def sequence(self) -> int:
        """How many boundaries were emitted; the newest one's number."""
        return self.counter.sequence

    # -- boundaries out

    def emit_or_journal(
        self, boundary: Any, event: Any, offset: Any = None, release_count: int = 0
    ) -> "PendingReceipt":
        """Emit what came of an event; where that is called for, when it is committed."""
        if not self.is_journaled:
            return self.emit(boundary, event, offset)
        self._last_event_time = self.clock.monotonic()
        if boundary is None:
            return self._suppress(None)  # the offset must not overtake what is being committed
        try:
            boundary = self.validate_boundary(boundary)
        except TypeMismatchError as error:
            return self._dead_letter(event, error)
        return self.append_to_journal(JournalStep("boundary", boundary, release_count, offset), event)

    def emit(self, boundary: Any, event: Any, offset: Any = None) -> Receipt:
        """Hand a boundary on at once, unless there is nothing to say or it is not what was declared."""
        self._last_event_time = self.clock.monotonic()
        if boundary is None:
            return self._suppress(offset)
        try:
            boundary = self.validate_boundary(boundary)
        except TypeMismatchError as error:
            return self._dead_letter(event, error)
        if offset is not None:
            self.offset = offset
        if self.definition.state is not None:
            self.state = boundary
        receipt = self.assign_sequence()
        self.deliver(boundary)
        return receipt

    def _suppress(self, offset: Any) -> Receipt:
        self.suppressed += 1
        if offset is not None:
            self.offset = offset
            self.mark_changed()
        return self._receipt("suppressed")

    def assign_sequence(self) -> Receipt:
        """Give the next boundary its number, before it is handed on: what it sets off may push here again."""
        self.counter.sequence = sequence = self.counter.sequence + 1
        return Receipt(True, sequence, "emitted")

    def validate_boundary(self, boundary: Any) -> Any:
        """Return a boundary that is what the function promised, or raise MisfitError."""
        classes = self.boundary_validator.classes
        if classes is None or isinstance(boundary, classes) or (float in classes and type(boundary) is int):
            return boundary
        raise TypeMismatchError(f"'{self.name}' returned {type(boundary).__name__}, which is not what it declares")

    # -- what is committed before it happens

    def append_to_journal(self, step: JournalStep, event: Any) -> "PendingReceipt":
        """Begin to commit a step. What follows it here is built on it, and is refused with it if it is."""
        try:
            payload = encode_stored(self.codecs.to_record(step))
        except UnstorableError as error:
            return self._dead_letter(event, error)
        if step.kind == "boundary" and self.definition.state is not None:
            self.state = step.value
        self._reserve_queue(step, +1)
        return self.runtime.durability.append(self, step, payload)

    def on_committed(self, step: JournalStep, position: int) -> Receipt:
        """Let a step happen that is committed, and say what came of it."""
        self._reserve_queue(step, -1)
        self.position = position
        boundary = self.apply_step(step)
        if boundary is None:
            self.mark_changed()
            return self._receipt("buffered" if self.buffers_events and step.kind == "held" else "suppressed")
        receipt = Receipt(True, self.sequence, "emitted")
        if len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.put_and_fire(index, boundary, position)
        else:
            self.deliver(boundary, position)
        return receipt

    def apply_step(self, step: JournalStep) -> Any:
        """Take a step into account, now or when the journal is read; return the boundary that comes of it, if any."""
        if step.offset is not None:
            self.offset = step.offset
        if self.definition.state is not None:
            self.committed_state = step.value
        self.counter.sequence += 1
        return step.value

    def boundary_of(self, step: JournalStep) -> Any:
        """Return the boundary that came of a step which was taken into account already."""
        return step.value if step.kind == "boundary" else None

    def on_refused(self, step: JournalStep, reason: str) -> Receipt:
        """Take a step back that was not committed, and all that were prepared behind it."""
        self._reserve_queue(step, -1)
        self.state = self.committed_state
        if not self.will_be_retried(step):
            self._count_drop("not_stored")
        return self._receipt("rejected", f"not stored: {reason}")

    def _reserve_queue(self, step: JournalStep, delta: int) -> None:
        if self.emits_boundary(step):
            for reactor, _ in self.targets:
                reactor.queue_gate.reserve(delta)

    def emits_boundary(self, step: JournalStep) -> bool:
        """Return whether a boundary comes of a step."""
        return step.kind == "boundary"

    def will_be_retried(self, step: JournalStep) -> bool:
        """Return whether a step that was refused is tried again by itself: its source still has the event."""
        return step.offset is not None

    @property
    def schema_digest(self) -> bytes:
        """What changes when its annotations do."""
        return self.codecs.digest

    @property
    def codecs(self) -> "AccumulatorCodecs":
        """How what is kept of this accumulator is stored."""
        if self._codecs is None:
            self._codecs = AccumulatorCodecs.for_definition(self.definition)
        return self._codecs

    # -- counting, and answers

    def _receipt(self, outcome: Any, reason: str | None = None) -> Receipt:
        return Receipt(outcome in ("emitted", "suppressed", "buffered"), self.sequence, outcome, reason)

    def _count_drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    @abstractmethod
    def _dead_letter(self, event: Any, error: BaseException, encoding: str = "json") -> Receipt:
        """Put an event aside that cannot be dealt with."""


async def resolve_receipt(pending: PendingReceipt) -> Receipt:
    """Return what became of an event, when that is known."""
    return pending if isinstance(pending, Receipt) else await pending
