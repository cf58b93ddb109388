"""Emitting boundaries: an accumulator's boundaries go to its reactors, directly or after a commit to the journal.

Where some reactor has durability="boundary", the outcome of an event is a step: it is committed to the journal first,
and happens then. Steps do not wait for one another's commit: each is prepared on top of those before it, and they are
refused together if the store refuses one. Steps are written so that a restart can apply them again from the journal.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, build_codec, encode_msgpack
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.durability.journal import JournalStep, JournalWriter, StepKind
from tidemill.engine.graphs.durability.journal_blocks import journal_checksum_seed
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.push_paths.one_graph import SequenceCounter
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator, AccumulatorKind
from tidemill.graphs.keys import Key, decode_key, encode_key
from tidemill.graphs.outcomes import Outcome, Receipt, Rejection, RejectionCode
from tidemill.graphs.snapshot import JournalRecord, KeyedJournalRecord, compute_digest
from tidemill.storage.graph_ports import JournalKey, PartKey

PendingReceipt = Receipt | asyncio.Future[Receipt]
"""The receipt of an event, or its future if the event is being committed."""


class AccumulatorCodecs(msgspec.Struct, frozen=True):
    """The codecs of one accumulator's boundaries, buffered events and running state."""

    boundary: Codec
    buffered: Codec
    state: Codec | None
    digest: bytes
    """Changes when one of the annotations does."""

    @classmethod
    def for_definition(cls, definition: Accumulator) -> "AccumulatorCodecs":
        """Build the codecs of a declaration, or raise UnstorableError."""
        state = None if definition.state is None else build_codec(definition.state)
        buffers = definition.kind in (AccumulatorKind.BATCH, AccumulatorKind.WINDOW)
        boundary = build_codec(definition.boundary_type)
        buffered = build_codec(definition.event_type) if buffers else boundary
        digest = compute_digest([boundary.schema, buffered.schema, None if state is None else state.schema])
        return cls(boundary, buffered, state, digest)

    def encode_step(self, step: JournalStep) -> bytes:
        """Return a step as the bytes of a `JournalRecord`, or raise UnstorableError: also if it could not be read back.

        A tuple is encoded as the record would be, and costs less: this is done for each event.
        """
        value = b""
        if step.kind != "released":
            codec = self._codec_for(step.kind)
            value = codec.encode(step.value)
            try:
                codec.decode(value)
            except TypeMismatchError as error:
                message = f"it does not fit its own annotation, and would not come back: {error}"
                raise UnstorableError(message) from error
        if step.key is None:
            return encode_msgpack((step.kind, value, step.count, step.offset))
        return encode_msgpack((step.kind, value, step.count, step.offset, encode_key(step.key)))

    def from_record(self, record: JournalRecord, read: Callable[[Codec, bytes], Any]) -> JournalStep:
        """Return the step of a record whose value `read` decodes, or raise TypeMismatchError."""
        value = None if record.kind == "released" else read(self._codec_for(record.kind), record.value)
        key = decode_key(record.key) if isinstance(record, KeyedJournalRecord) else None
        return JournalStep(record.kind, value, record.count, record.offset, key)

    def _codec_for(self, kind: StepKind) -> Codec:
        return self.boundary if kind == "boundary" else self.buffered


class EmittingKind(Protocol):
    """The kind of an accumulator, as its emitter sees it: kinds differ in what a step changes."""

    holds_events: bool
    buffers_events: bool

    def new_events(self) -> Any:
        """Return an empty collection of the events that it keeps."""

    def apply_step(self, step: JournalStep, held: Held) -> Any:
        """Update the accumulator by a step, after its commit or in a restore; return the boundary it emits, if any."""

    def after_commit(self, held: Held) -> None:
        """React to a step that was committed and applied."""

    def before_refusal(self, step: JournalStep, held: Held) -> None:
        """Take back what was prepared for a step that was not committed."""


DeadLetterEvent = Callable[[Any, BaseException, Held], Receipt]
"""Dead-letters an event that cannot be processed."""


class Emitter:
    """Delivers one accumulator's boundaries to its reactors, after a commit if it is journaled; has what it holds."""

    kind: EmittingKind

    def __init__(
        self, dead_letter: DeadLetterEvent, definition: Accumulator, tenant: str, runtime: GraphRuntime
    ) -> None:
        self._dead_letter = dead_letter
        self._durability = runtime.durability
        self._clock = runtime.clock
        self.redefine(definition)
        self.counter = SequenceCounter()
        self.suppressed = self.buffered = 0
        self.dropped: Counter[str] = Counter()
        self.targets: list[tuple[FiringLoop, int]] = []  # with the accumulator's index among the reactor's inputs
        self.queue_gates: list[QueueGate] = []  # of the targets that queue boundaries
        self.may_reject = False  # whether one of them rejects boundaries when its queue is full
        self.is_journaled = False  # whether every step is committed to the journal before it happens
        self.held = Held(self.new_state())
        """What it holds; with keys, what it holds for none: each has its own."""
        self.offset: Any = None  # how far the source has been read, for accumulators that have one
        key = JournalKey(tenant, definition.name)
        part = PartKey(tenant, "accumulator", definition.name)
        self.journal_writer = JournalWriter(
            key, part, journal_checksum_seed(*key), self.on_committed, self.on_refused, self.emits_boundary
        )
        self.position = 0  # of the newest journal step that has happened
        self.checkpointed_position = 0  # the position that the newest checkpoint in the store has reached
        self.checkpointed_offset: Any = None  # the offset in the newest checkpoint in the store
        self.departed_reactors: dict[FiringLoop, int] = {}  # reactors being replaced, and the position when they left
        self.arrived_at: float | None = None  # the last event, in monotonic seconds, apart from those on a fast path

    def redefine(self, definition: Accumulator) -> None:
        """Emit by a newer declaration."""
        self._definition = definition
        self.boundary_validator = TypeValidator(definition.boundary_type)
        self._codecs: AccumulatorCodecs | None = None

    def set_kind(self, kind: EmittingKind) -> None:
        """Hold the events that this kind keeps."""
        self.kind = kind
        self.held.events = kind.new_events()

    def new_state(self) -> Any:
        """Return the running state of the start; None without one."""
        return None if self._definition.state is None else self._definition.state()

    def held_now(self) -> list[Held]:
        """Return everything that it holds: with keys, for each key in memory."""
        return [self.held]

    def committed_held(self, key: Key) -> Held:  # noqa: ARG002 - without keys
        """Return what it holds for the key of a step whose commit has ended."""
        return self.held

    def update_targets(self) -> None:
        """Recompute everything that depends on which reactors the accumulator feeds."""
        was_journaled = self.is_journaled
        journaled = [target.reactor for target, _ in self.targets if target.reactor.durability.is_journaled]
        self.is_journaled = bool(journaled)
        self.journal_writer.write_health = [reactor.write_health for reactor in journaled]
        self.queue_gates = [target.queue_gate for target, _ in self.targets if target.inputs.is_sequential]
        self.may_reject = any(gate.rejects for gate in self.queue_gates)
        if self.is_journaled and not was_journaled:
            for held in self.held_now():
                held.committed_state = held.state

    def deliver(self, boundary: Any, held: Held, position: int = 0) -> None:
        """Deliver a boundary to every reactor; none fires before all have it, so that all see the same order."""
        targets = self.targets
        if len(targets) == 1:
            reactor, index = targets[0]
            if reactor.fast_path_state.credit:
                return reactor.fast.put_and_fire(index, boundary, position, held.key_state)
            reactor.put(index, boundary, position, held.key_state)
            return reactor.fire_due()
        for reactor, index in targets:
            reactor.put(index, boundary, position)
        for reactor, _ in targets:
            reactor.fire_due()

    def mark_changed(self, held: Held) -> None:
        """Include a change of what is held in the next checkpoint, although no reactor has received a boundary."""
        for reactor, _ in self.targets:
            reactor.mark_changed(held.key_state)

    def move_offset(self, offset: Any) -> None:
        """Store how far the source has been read."""
        self.offset = offset
        self.mark_changed(self.held)

    @property
    def sequence(self) -> int:
        """How many boundaries were emitted, which is the newest one's number."""
        return self.counter.sequence

    # -- emitting

    def emit_or_journal(
        self, boundary: Any, event: Any, held: Held, offset: Any = None, release_count: int = 0
    ) -> "PendingReceipt":
        """Emit the boundary of an event, after its commit if the accumulator is journaled."""
        if not self.is_journaled:
            return self.emit(boundary, event, held, offset)
        self.arrived_at = self._clock.monotonic()
        if boundary is None:
            return self.suppress(held)  # the offset must not pass steps that are being committed
        try:
            boundary = self.validate_boundary(boundary)
        except TypeMismatchError as error:
            return self._dead_letter(event, error, held)
        return self.append_to_journal(JournalStep("boundary", boundary, release_count, offset), event, held)

    def emit(self, boundary: Any, event: Any, held: Held, offset: Any = None) -> Receipt:
        """Deliver a boundary now, unless it is None or not of the declared type."""
        self.arrived_at = self._clock.monotonic()
        if boundary is None:
            return self.suppress(held, offset)
        try:
            boundary = self.validate_boundary(boundary)
        except TypeMismatchError as error:
            return self._dead_letter(event, error, held)
        if offset is not None:
            self.offset = offset
        if self._definition.state is not None:
            held.state = boundary
        # its number before it is delivered: its firing may push here again
        self.counter.sequence = sequence = self.counter.sequence + 1
        self.deliver(boundary, held)
        return Receipt(True, sequence, "emitted")

    def suppress(self, held: Held, offset: Any = None) -> Receipt:
        """Count an event that has emitted nothing."""
        self.suppressed += 1
        if offset is not None:
            self.offset = offset
            self.mark_changed(held)
        return self.receipt("suppressed")

    def assign_sequence(self) -> Receipt:
        """Assign the next boundary its number before it is delivered: its firing may push here again."""
        self.counter.sequence = sequence = self.counter.sequence + 1
        return Receipt(True, sequence, "emitted")

    def validate_boundary(self, boundary: Any) -> Any:
        """Return a boundary of the declared type, or raise TypeMismatchError."""
        classes = self.boundary_validator.classes
        if classes is None or isinstance(boundary, classes) or (float in classes and type(boundary) is int):
            return boundary
        name, returned = self._definition.declared_name, type(boundary).__name__
        raise TypeMismatchError(f"'{name}' returned {returned}, which is not what it declares")

    # -- journaled steps

    def append_to_journal(self, step: JournalStep, event: Any, held: Held) -> "PendingReceipt":
        """Begin to commit a step. Later steps of the accumulator build on it, and are refused with it."""
        try:
            payload = self.codecs.encode_step(step)
        except UnstorableError as error:
            return self._dead_letter(event, error, held)
        if step.kind == "boundary" and self._definition.state is not None:
            held.state = step.value
        if self.queue_gates and self.emits_boundary(step):
            for gate in self.queue_gates:
                gate.reserve(held.key_state)
        journal = self._durability.journal
        assert journal is not None, "an accumulator is journaled only with a store"
        return journal.append(self.journal_writer, step, payload)

    async def wait_committed(self) -> None:
        """Wait until every step appended so far is committed or refused."""
        journal = self._durability.journal
        if journal is not None:
            await journal.wait_committed()

    def on_committed(self, step: JournalStep, position: int) -> Receipt:
        """Apply a committed step, and return its receipt."""
        held = self.held if step.key is None else self.committed_held(step.key)
        if self.queue_gates:
            self._release_queue(step, held)
        self.position = position
        boundary = self.kind.apply_step(step, held)
        if boundary is None:
            self.mark_changed(held)
            receipt = self.receipt(self.silent_outcome(step))
        else:
            receipt = Receipt(True, self.sequence, "emitted")
            self.deliver(boundary, held, position)
        if self.kind.buffers_events:
            self.kind.after_commit(held)
        return receipt

    def silent_outcome(self, step: JournalStep) -> Outcome:
        """Return the outcome of a committed step that emits no boundary."""
        return "buffered" if self.kind.buffers_events and step.kind == "held" else "suppressed"

    def apply_boundary(self, step: JournalStep, held: Held) -> Any:
        """Update the state by a step that emits a boundary, which is returned."""
        if step.offset is not None:
            self.offset = step.offset
        if self._definition.state is not None:
            held.committed_state = step.value
        self.counter.sequence += 1
        return step.value

    def on_refused(self, step: JournalStep, reason: str) -> Receipt:
        """Roll back a step that was not committed, and all that were prepared on top of it."""
        held = self.held if step.key is None else self.committed_held(step.key)
        self.kind.before_refusal(step, held)
        if self.queue_gates:
            self._release_queue(step, held)
        held.state = held.committed_state
        receipt = self.not_stored(reason, is_lost=not self._will_be_retried(step))
        for target, _ in self.targets:  # the next checkpoint finds out when the store works again
            if target.reactor.durability.is_journaled:
                target.request_checkpoint()
        return receipt

    def not_stored(self, reason: str, *, is_lost: bool = True) -> Receipt:
        """Return the receipt of an event that the store has not taken."""
        if is_lost:
            self.count_drop("not_stored")
        return self.reject("not_stored", f"not stored: {reason}")

    def _release_queue(self, step: JournalStep, held: Held) -> None:
        if self.emits_boundary(step):
            for gate in self.queue_gates:
                gate.release(held.key_state)

    def emits_boundary(self, step: JournalStep) -> bool:
        """Return whether a step emits a boundary: that of a window does if the window has a content to emit."""
        return self._definition.capacity != 0 if self._definition.is_window else step.kind == "boundary"

    def _will_be_retried(self, step: JournalStep) -> bool:
        """Return whether a refused step is retried without the caller: its source, or the buffer, still has it."""
        return step.offset is not None or (self.kind.buffers_events and step.kind != "held")

    def stored_state(self, held: Held) -> Any:
        """Return the running state as a checkpoint has it: without steps that are being committed."""
        return held.committed_state if self.is_journaled else held.state

    def position_for(self, reactor: FiringLoop) -> int:
        """Return the position up to which a reactor has received the steps."""
        return self.departed_reactors.get(reactor, self.position)

    @property
    def feeds_durable(self) -> bool:
        """Whether a reactor that it feeds is durable."""
        return any(target.reactor.durability.is_durable for target, _ in self.targets)

    @property
    def codecs(self) -> "AccumulatorCodecs":
        """The codecs of the accumulator's stored values."""
        if self._codecs is None:
            self._codecs = AccumulatorCodecs.for_definition(self._definition)
        return self._codecs

    # -- receipts

    def receipt(self, outcome: Any, reason: str | None = None) -> Receipt:
        """Return the receipt of an event with an outcome, which no boundary has."""
        return Receipt(outcome in ("emitted", "suppressed", "buffered"), self.sequence, outcome, reason)

    def reject(self, code: RejectionCode, reason: str) -> Receipt:
        """Return the receipt of an event that is rejected."""
        return Rejection(False, self.sequence, "rejected", reason, code)

    def count_drop(self, reason: str) -> None:
        """Count an event that is lost."""
        self.dropped[reason] += 1


async def resolve_receipt(pending: PendingReceipt) -> Receipt:
    """Return the receipt of an event, after its commit."""
    return pending if isinstance(pending, Receipt) else await pending
