"""One thing that happens to an accumulator: what the journal records, and what is done again after a crash."""

from typing import Any, Literal, Protocol

import msgspec

from tidemill.annotations.admission import MisfitError
from tidemill.annotations.codec import Codec, UnstorableError, codec_of
from tidemill.graphs.definition import Accumulator, Kind
from tidemill.graphs.result import Receipt
from tidemill.graphs.snapshot import JournalRecord, digest_of
from tidemill.storage.ports import JournalKey

StepKind = Literal["boundary", "held", "released"]


class Step(msgspec.Struct, frozen=True):
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

    def complete(self, step: Step, position: int) -> Receipt:
        """Let a step happen that is committed, and say what came of it."""

    def refuse(self, step: Step, reason: str) -> Receipt:
        """Take a step back that was not committed, and all that were prepared behind it."""


class Codecs(msgspec.Struct, frozen=True):
    """How what is kept of one accumulator is stored: its boundaries, the events it holds, its running state."""

    boundary: Codec
    held: Codec
    state: Codec | None
    digest: bytes
    """What changes when one of the annotations does."""

    @classmethod
    def of(cls, definition: Accumulator) -> "Codecs":
        """Read from a declaration how its values are stored, or raise UnstorableError."""
        state = None if definition.state is None else codec_of(definition.state)
        holds = definition.kind in (Kind.BATCH, Kind.WINDOW)
        boundary = codec_of(definition.boundary_type)
        held = codec_of(definition.event_type) if holds else boundary
        digest = digest_of([boundary.schema, held.schema, None if state is None else state.schema])
        return cls(boundary, held, state, digest)

    def record(self, step: Step) -> JournalRecord:
        """Return a step as it is stored, or raise UnstorableError: also for a value that would not come back."""
        if step.kind == "released":
            return JournalRecord("released", b"", step.count, step.offset)
        codec = self._codec(step.kind)
        value = codec.encode(step.value)
        try:
            codec.decode(value)
        except MisfitError as error:
            raise UnstorableError(f"it does not fit its own annotation, and would not come back: {error}") from error
        return JournalRecord(step.kind, value, step.count, step.offset)

    def step(self, record: JournalRecord) -> Step:
        """Return the step that was recorded, or raise MisfitError."""
        value = None if record.kind == "released" else self._codec(record.kind).decode(record.value)
        return Step(record.kind, value, record.count, record.offset)

    def _codec(self, kind: StepKind) -> Codec:
        return self.boundary if kind == "boundary" else self.held
