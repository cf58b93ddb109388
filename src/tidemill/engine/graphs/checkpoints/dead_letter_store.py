"""Stores dead letters, and restores them with what a replay needs."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, encode_msgpack
from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.durability.backend import CodecLookup, DeadLetterStore
from tidemill.engine.graphs.durability.write_health import PendingWrites
from tidemill.engine.graphs.firing.firing_log import FiringRecord, format_firing_id
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.reactors.outbox import FailedStart
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.keys import PartitionId, decode_key, encode_key
from tidemill.graphs.outcomes import DeadLetter, DeadLetterKind, to_jsonable
from tidemill.graphs.subscription import GraphNodeOutput, Subscription
from tidemill.storage.graph_ports import PartKind
from tidemill.storage.tables.graphs import StoredDeadLetter


class DeadLetterPayload(msgspec.Struct, frozen=True):
    """The stored content of a dead letter. Events are plain values: a replay validates them like any event."""

    kind: DeadLetterKind
    error: str
    attempts: int
    form: str = "json"
    event: bytes = b""
    gathered: list[bytes] | None = None
    inputs: dict[str, bytes] | None = None
    firing: tuple[str, int, list[str]] | None = None
    """Series, number, and the graphs that failed."""
    start: "StoredStart | None" = None
    key: bytes | None = None
    """Of a keyed reactor or accumulator."""


class StoredStart(msgspec.Struct, frozen=True, array_like=True):
    """A run that could not be started: the time of its firing, what was to receive it, and the node's value."""

    at: float
    subscription: Subscription
    output: GraphNodeOutput | None


DecodedDeadLetter = tuple[StoredDeadLetter, DeadLetterPayload]
"""A dead letter as stored, and its payload."""


class DeadLetterOwner(NamedTuple):
    """The owner of dead letters; a reactor has the codecs of its inputs."""

    tenant: str
    kind: PartKind
    name: str
    codec_for: CodecLookup | None


class PersistentDeadLetterStore(DeadLetterStore):
    """Writes the dead letters of one reactor or accumulator to the store."""

    def __init__(self, pending: PendingWrites, flush_soon: Callable[[], None], owner: DeadLetterOwner) -> None:
        self._pending = pending
        self._flush_soon = flush_soon
        self._owner = owner

    def put(self, dead_letter: DeadLetter, detail: Any) -> None:
        owner = self._owner
        self._pending.dead_letters[dead_letter.id] = StoredDeadLetter(
            id=dead_letter.id,
            tenant=owner.tenant,
            owner=owner.kind,
            source=owner.name,
            at=dead_letter.at,
            payload=msgspec.msgpack.encode(_build_payload(dead_letter, detail, owner.codec_for)),
        )
        self._flush_soon()

    def remove(self, dead_letter_id: str) -> None:
        self._pending.dead_letters.pop(dead_letter_id, None)
        self._pending.removed_dead_letters[dead_letter_id] = None
        self._flush_soon()


def _build_payload(dead_letter: DeadLetter, detail: Any, codec_for: CodecLookup | None) -> DeadLetterPayload:
    content = DeadLetterPayload(dead_letter.kind, _replace_surrogates(dead_letter.error), dead_letter.attempts)
    replace = msgspec.structs.replace
    if dead_letter.key is not None:
        content = replace(content, key=encode_key(dead_letter.key))
    if dead_letter.kind != "event":
        values = (dead_letter.inputs or {}).items()
        inputs = {name: _encode_value(value, codec_for(name) if codec_for else None) for name, value in values}
        content = replace(content, inputs=inputs)
    if isinstance(detail, FailedStart):
        record = detail.record
        start = StoredStart(record.wall_offset + record.started, detail.subscription, detail.output)
        return replace(content, firing=(record.series, record.number, []), start=start)
    if dead_letter.kind == "firing":
        firing, failed = detail
        return replace(content, firing=(firing.series, firing.number, failed))
    if isinstance(detail, BatchedEvents):
        return replace(content, gathered=[_encode_value(event) for event in detail.events])
    return replace(content, event=_encode_value(dead_letter.event), form=detail)


def _encode_value(value: Any, codec: Codec | None = None) -> bytes:
    """Encode a value as exactly as possible; one that cannot be encoded is described by its repr."""
    for attempt in (codec.encode if codec else encode_msgpack, lambda one: encode_msgpack(to_jsonable(one))):
        try:
            return attempt(value)
        except UnstorableError:
            continue
    return encode_msgpack(_replace_surrogates(repr(value)))


def _replace_surrogates(text: str) -> str:
    """Return a text whose lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _decode_value(data: bytes, codec: Codec | None = None) -> Any:
    """Decode a value with its codec, or as a plain value if that fails."""
    if codec is not None:
        try:
            return codec.decode(data)
        except TypeMismatchError:
            pass
    return msgspec.msgpack.decode(data)


def restore_event_dead_letters(
    accumulator: RunningAccumulator, stored: Sequence[DecodedDeadLetter]
) -> list[tuple[DeadLetter, Any]]:
    """Return an accumulator's dead letters with what a replay needs."""
    dead_letters: list[tuple[DeadLetter, Any]] = []
    for row, content in stored:
        if content.gathered is not None:
            events = [_validate_or_keep(accumulator, _decode_value(event)) for event in content.gathered]
            dead_letters.append((_build_dead_letter(row, content, event=events), BatchedEvents(events)))
        else:
            dead_letters.append((_build_dead_letter(row, content, event=_decode_value(content.event)), content.form))
    return dead_letters


def restore_firing_dead_letters(
    reactor: RunningReactor, stored: Sequence[DecodedDeadLetter]
) -> list[tuple[DeadLetter, Any]]:
    """Return a reactor's dead letters with what a replay needs."""
    dead_letters: list[tuple[DeadLetter, Any]] = []
    for row, content in stored:
        stored_inputs = (content.inputs or {}).items()
        inputs = {name: _decode_value(data, reactor.codec_for(name)) for name, data in stored_inputs}
        snapshot = [inputs.get(one.name) for one in reactor.accumulators]
        series, number, failed = content.firing or ("", 0, [])
        if content.start is not None:
            at, subscription, output = content.start.at, content.start.subscription, content.start.output
            start = FailedStart(FiringRecord(series, number, at, at, snapshot, {}), subscription, output)
            dead_letters.append((_build_dead_letter(row, content, inputs=inputs), start))
            continue
        key = None if content.key is None else decode_key(content.key)
        firing = PendingFiring(series, number, FiringInputs(snapshot, [], 0), [], attempt=content.attempts, key=key)
        dead_letters.append((_build_dead_letter(row, content, inputs=inputs), (firing, failed)))
    return dead_letters


def _validate_or_keep(accumulator: RunningAccumulator, event: Any) -> Any:
    try:
        return accumulator.intake.event_validator.validate(event)
    except TypeMismatchError:
        return event


def decode_payload(row: StoredDeadLetter) -> DeadLetterPayload:
    """Return the payload of a stored dead letter, or raise msgspec.DecodeError."""
    return msgspec.msgpack.decode(row.payload, type=DeadLetterPayload)


def _build_dead_letter(row: StoredDeadLetter, payload: DeadLetterPayload, **value: Any) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        kind=payload.kind,
        source=(source := _declared_source(row, is_keyed=payload.key is not None)),
        at=row.at,
        error=payload.error,
        attempts=payload.attempts,
        workflow=None if payload.start is None else payload.start.subscription.workflow,
        firing_id=None if payload.firing is None else format_firing_id(source, *payload.firing[:2]),
        key=None if payload.key is None else decode_key(payload.key),
        **value,
    )


def _declared_source(row: StoredDeadLetter, *, is_keyed: bool) -> str:
    """Return the declared name of the accumulator or reactor; only that of a keyed reactor is surely a partition's."""
    partition = PartitionId.parse(row.source) if is_keyed or row.owner == "accumulator" else None
    return row.source if partition is None else partition.name


def to_plain_dead_letter(row: StoredDeadLetter) -> DeadLetter:
    """Return a stored dead letter with plain values, for those who do not have the declarations of its types."""
    try:
        content = decode_payload(row)
    except msgspec.DecodeError as error:
        reason = f"it cannot be read: {error}; `tidemill doctor` says what to do"
        source = _declared_source(row, is_keyed=False)
        return DeadLetter(id=row.id, kind="event", source=source, at=row.at, error=reason)
    if content.kind != "event":
        inputs = {name: _decode_value(data) for name, data in (content.inputs or {}).items()}
        return _build_dead_letter(row, content, inputs=inputs)
    gathered = content.gathered
    event = _decode_value(content.event) if gathered is None else [_decode_value(one) for one in gathered]
    return _build_dead_letter(row, content, event=event)
