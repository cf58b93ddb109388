"""Dead letters as they are stored, and everything else that is noted between two writes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tidemill.annotations.codec import Codec, UnstorableError, encode_msgpack
from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.dead_letters import BatchedEvents
from tidemill.engine.graphs.durability_backend import CodecLookup, DeadLetterStore
from tidemill.engine.graphs.reactors.firing import PendingFiring
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.result import DeadLetter, to_jsonable
from tidemill.storage.graph_ports import PartKind, StoredDeadLetter, StoredRecovery
from tidemill.storage.store import Store


class PendingWrites:
    """Dead letters and recoveries that are not in the store yet."""

    def __init__(self) -> None:
        self.dead_letters: dict[str, StoredDeadLetter | None] = {}  # None: to be removed
        self.recoveries: list[StoredRecovery] = []
        self._write_lock = asyncio.Lock()  # nobody passes what somebody else is still writing

    async def write(self, store: Store) -> None:
        """Write everything; what could not be written stays."""
        async with self._write_lock:
            await self._write(store)

    async def _write(self, store: Store) -> None:
        letters, self.dead_letters = self.dead_letters, {}
        recoveries, self.recoveries = self.recoveries, []
        try:
            await _write_dead_letters(store, letters)
            letters = {}
            if recoveries:
                await store.recoveries.add(recoveries)
        except BaseException:
            self.dead_letters = {**letters, **self.dead_letters}
            self.recoveries = [*recoveries, *self.recoveries]
            raise


async def _write_dead_letters(store: Store, dead_letters: dict[str, StoredDeadLetter | None]) -> None:
    if kept := [letter for letter in dead_letters.values() if letter is not None]:
        await store.dead_letters.upsert(kept)
    if removed := [letter_id for letter_id, letter in dead_letters.items() if letter is None]:
        await store.dead_letters.delete(removed)


class DeadLetterPayload(msgspec.Struct, frozen=True):
    """A letter's payload. Events are plain: a replay makes of them what is declared then, as it does of any event."""

    kind: Literal["event", "firing"]
    error: str
    attempts: int
    form: str = "json"
    event: bytes = b""
    gathered: list[bytes] | None = None
    inputs: dict[str, bytes] | None = None
    firing: tuple[str, int, list[str]] | None = None
    """Series, number, and the graphs that failed."""


DecodedDeadLetter = tuple[StoredDeadLetter, DeadLetterPayload]
"""A letter as stored, and what it says."""


class DeadLetterOwner(NamedTuple):
    """Whose letters they are; a reactor says how its inputs are stored."""

    tenant: str
    kind: PartKind
    name: str
    codec_for: CodecLookup | None


class PersistentDeadLetterStore(DeadLetterStore):
    """Keeps the letters of one reactor or accumulator in the store."""

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
        self._pending.dead_letters[dead_letter_id] = None
        self._flush_soon()


def _build_payload(dead_letter: DeadLetter, detail: Any, codec_for: CodecLookup | None) -> DeadLetterPayload:
    content = DeadLetterPayload(dead_letter.kind, _replace_surrogates(dead_letter.error), dead_letter.attempts)
    replace = msgspec.structs.replace
    if dead_letter.kind == "firing":
        due, failed = detail
        stored = (dead_letter.inputs or {}).items()
        inputs = {name: _encode_value(value, codec_for(name) if codec_for else None) for name, value in stored}
        return replace(content, inputs=inputs, firing=(due.series, due.number, failed))
    if isinstance(detail, BatchedEvents):
        return replace(content, gathered=[_encode_value(event) for event in detail.events])
    return replace(content, event=_encode_value(dead_letter.event), form=detail)


def _encode_value(value: Any, codec: Codec | None = None) -> bytes:
    """Return a value as bytes in the best way there is; what cannot be stored at all is described."""
    for attempt in (codec.encode if codec else encode_msgpack, lambda one: encode_msgpack(to_jsonable(one))):
        try:
            return attempt(value)
        except UnstorableError:
            continue
    return encode_msgpack(_replace_surrogates(repr(value)))


def _replace_surrogates(text: str) -> str:
    """Return a text without what is no character, such as half of one."""
    return text.encode("utf-8", "backslashreplace").decode()


def _decode_value(data: bytes, codec: Codec | None = None) -> Any:
    """Return a value as its codec reads it, or else plain."""
    if codec is not None:
        try:
            return codec.decode(data)
        except TypeMismatchError:
            pass
    return msgspec.msgpack.decode(data)


def restore_event_dead_letters(
    accumulator: RunningAccumulator, stored: Sequence[DecodedDeadLetter]
) -> list[tuple[DeadLetter, Any]]:
    """Return an accumulator's letters with what a replay needs."""
    letters: list[tuple[DeadLetter, Any]] = []
    for row, content in stored:
        if content.gathered is not None:
            events = [_validate_or_keep(accumulator, _decode_value(event)) for event in content.gathered]
            letters.append((_build_dead_letter(row, content, event=events), BatchedEvents(events)))
        else:
            letters.append((_build_dead_letter(row, content, event=_decode_value(content.event)), content.form))
    return letters


def restore_firing_dead_letters(
    reactor: RunningReactor, stored: Sequence[DecodedDeadLetter]
) -> list[tuple[DeadLetter, Any]]:
    """Return a reactor's letters with what a replay needs."""
    letters = []
    for row, content in stored:
        stored_inputs = (content.inputs or {}).items()
        inputs = {name: _decode_value(data, reactor.codec_for(name)) for name, data in stored_inputs}
        snapshot = [inputs.get(one.name) for one in reactor.accumulators]
        series, number, failed = content.firing or ("", 0, [])
        due = PendingFiring(series, number, FiringInputs(snapshot, [], 0), [], attempt=content.attempts)
        letters.append((_build_dead_letter(row, content, inputs=inputs), (due, failed)))
    return letters


def _validate_or_keep(accumulator: RunningAccumulator, event: Any) -> Any:
    try:
        return accumulator.event_validator.validate(event)
    except TypeMismatchError:
        return event


def decode_payload(row: StoredDeadLetter) -> DeadLetterPayload:
    """Return what a stored letter says, or raise msgspec.DecodeError."""
    return msgspec.msgpack.decode(row.payload, type=DeadLetterPayload)


def _build_dead_letter(row: StoredDeadLetter, payload: DeadLetterPayload, **value: Any) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        kind=payload.kind,
        source=row.source,
        at=row.at,
        error=payload.error,
        attempts=payload.attempts,
        **value,
    )
