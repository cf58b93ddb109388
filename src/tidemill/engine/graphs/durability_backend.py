"""What may be asked of whoever keeps state beyond the process, and the answer where there is no store."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, build_codec
from tidemill.annotations.validation import TypeMismatchError
from tidemill.graphs.definition import Accumulator, AccumulatorKind, Durability, Reactor
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.graphs.snapshot import JournalRecord, compute_digest
from tidemill.graphs.state import Recovery
from tidemill.storage.graph_ports import JournalKey, PartKind

StepKind = Literal["boundary", "held", "released"]


class JournalStep(msgspec.Struct, frozen=True):
    """An accumulator emits a boundary, holds an event, or lets go of the `count` oldest that it held."""

    kind: StepKind
    value: Any = None
    count: int = 0
    offset: Any = None
    """How far the source was read, if the event came from one."""


class Stepping(Protocol):
    """An accumulator, as the journal sees it."""

    name: str
    tenant: str

    journal_key: JournalKey
    journal_seed: int

    def on_committed(self, step: JournalStep, position: int) -> Receipt:
        """Let a step happen that is committed, and say what came of it."""

    def on_refused(self, step: JournalStep, reason: str) -> Receipt:
        """Take a step back that was not committed, and all that were prepared behind it."""


class AccumulatorCodecs(msgspec.Struct, frozen=True):
    """How what is kept of one accumulator is stored: its boundaries, the events it holds, its running state."""

    boundary: Codec
    buffered: Codec
    state: Codec | None
    digest: bytes
    """What changes when one of the annotations does."""

    @classmethod
    def for_definition(cls, definition: Accumulator) -> "AccumulatorCodecs":
        """Read from a declaration how its values are stored, or raise UnstorableError."""
        state = None if definition.state is None else build_codec(definition.state)
        holds = definition.kind in (AccumulatorKind.BATCH, AccumulatorKind.WINDOW)
        boundary = build_codec(definition.boundary_type)
        held = build_codec(definition.event_type) if holds else boundary
        digest = compute_digest([boundary.schema, held.schema, None if state is None else state.schema])
        return cls(boundary, held, state, digest)

    def to_record(self, step: JournalStep) -> JournalRecord:
        """Return a step as it is stored, or raise UnstorableError: also for a value that would not come back."""
        if step.kind == "released":
            return JournalRecord("released", b"", step.count, step.offset)
        codec = self._codec_for(step.kind)
        value = codec.encode(step.value)
        try:
            codec.decode(value)
        except TypeMismatchError as error:
            raise UnstorableError(f"it does not fit its own annotation, and would not come back: {error}") from error
        return JournalRecord(step.kind, value, step.count, step.offset)

    def from_record(self, record: JournalRecord) -> JournalStep:
        """Return the step that was recorded, or raise MisfitError."""
        value = None if record.kind == "released" else self._codec_for(record.kind).decode(record.value)
        return JournalStep(record.kind, value, record.count, record.offset)

    def _codec_for(self, kind: StepKind) -> Codec:
        return self.boundary if kind == "boundary" else self.buffered


CodecLookup = Callable[[str], Codec | None]
"""How boundaries of a source are stored, by its name; None if they cannot be."""


class DeadLetterStore(Protocol):
    """Where letters outlive the process, if they do."""

    def put(self, dead_letter: DeadLetter, detail: Any) -> None:
        """Keep a letter, in place of one with its id."""

    def remove(self, dead_letter_id: str) -> None:
        """Forget a letter."""


class DurabilityBackend(Protocol):
    """Keeps reactors, accumulators and what happened to them, for their next life."""

    def mode_for(self, reactor: Reactor) -> Durability:
        """Return how a reactor is kept: as declared, by default at intervals, and not at all without a store."""

    def request_checkpoint(self, reactor: Any) -> None:
        """Include a reactor and its accumulators in the next checkpoint."""

    def flush_soon(self) -> None:
        """Write the next checkpoint now, not when the interval is over."""

    def on_next_write(self, callback: Callable[[], None]) -> None:
        """Call this when the next checkpoint is written, or could not be."""

    async def write(self) -> None:
        """Write what is noted now; what cannot be written stays noted."""

    async def close(self) -> None:
        """Write what is noted a last time, before everything ends; a store that fails now is not asked again."""

    async def save_and_forget(self, reactor: Any) -> None:
        """Write the last checkpoint of a reactor that has ended."""

    def append(self, accumulator: Stepping, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        """Append what happens to an accumulator to the journal; when that is committed it happens, in this order."""

    async def flush_dead_letters(self) -> None:
        """Return when the letters by now are stored, or could not be for the moment."""

    async def wait_committed(self) -> None:
        """Return when everything appended by now has been answered."""

    def advance_position(self, position: int) -> None:
        """Give positions in the journal beyond this one, which a snapshot has reached."""

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        """Remember that a reactor is paused, or that it is not."""

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        """Return where the letters of a reactor or accumulator are kept; a reactor says how its inputs are stored."""

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        """Record something that the supervisor did."""


class NoDeadLetterStore(DeadLetterStore):
    """Letters end with the process."""

    def put(self, dead_letter: DeadLetter, detail: Any) -> None:
        pass

    def remove(self, dead_letter_id: str) -> None:
        pass


class NoDurability(DurabilityBackend):
    """Without a store everything works, and starts fresh."""

    def mode_for(self, reactor: Reactor) -> Durability:
        return "none"

    def request_checkpoint(self, reactor: Any) -> None:
        pass

    def flush_soon(self) -> None:
        pass

    def on_next_write(self, callback: Callable[[], None]) -> None:
        callback()

    async def write(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def save_and_forget(self, reactor: Any) -> None:
        pass

    def append(self, accumulator: Stepping, step: JournalStep, payload: bytes) -> "asyncio.Future[Receipt]":
        raise AssertionError("without a store nothing is committed, so nobody asks for a journal")

    async def flush_dead_letters(self) -> None:
        pass

    async def wait_committed(self) -> None:
        pass

    def advance_position(self, position: int) -> None:
        pass

    async def set_paused(self, tenant: str, reactor: str, *, paused: bool) -> None:
        pass

    def dead_letter_store(
        self, tenant: str, owner: PartKind, source: str, codec_for: CodecLookup | None = None
    ) -> DeadLetterStore:
        return NoDeadLetterStore()

    def add_recovery(self, tenant: str, recovery: Recovery) -> None:
        pass
