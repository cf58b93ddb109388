"""Dead letters as they are stored, and everything else that is noted between two writes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from tidemill.annotations.admission import MisfitError
from tidemill.annotations.codec import Codec, UnstorableError, encode_plain
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.dead_letters import Archive, Gathered
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.keeping import CodecFor
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.graphs.inputs import Taken
from tidemill.graphs.result import DeadLetter, plain
from tidemill.storage.ports import PartKind, Store, StoredLetter, StoredRecovery


class Notes:
    """Dead letters and recoveries that are not in the store yet."""

    def __init__(self) -> None:
        self.letters: dict[str, StoredLetter | None] = {}  # None: to be removed
        self.recoveries: list[StoredRecovery] = []
        self._turn = asyncio.Lock()  # nobody passes what somebody else is still writing

    async def write(self, store: Store) -> None:
        """Write everything; what could not be written stays."""
        async with self._turn:
            await self._write(store)

    async def _write(self, store: Store) -> None:
        letters, self.letters = self.letters, {}
        recoveries, self.recoveries = self.recoveries, []
        try:
            await _write_letters(store, letters)
            letters = {}
            if recoveries:
                await store.recoveries.add(recoveries)
        except BaseException:
            self.letters = {**letters, **self.letters}
            self.recoveries = [*recoveries, *self.recoveries]
            raise


async def _write_letters(store: Store, letters: dict[str, StoredLetter | None]) -> None:
    if kept := [letter for letter in letters.values() if letter is not None]:
        await store.dead_letters.put(kept)
    if removed := [letter_id for letter_id, letter in letters.items() if letter is None]:
        await store.dead_letters.remove(removed)


class LetterContent(msgspec.Struct, frozen=True):
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


StoredContent = tuple[StoredLetter, LetterContent]
"""A letter as stored, and what it says."""


class LetterOwner(NamedTuple):
    """Whose letters they are; a reactor says how its inputs are stored."""

    tenant: str
    kind: PartKind
    name: str
    codec_for: CodecFor | None


class LetterArchive(Archive):
    """Keeps the letters of one reactor or accumulator in the store."""

    def __init__(self, notes: Notes, hurry: Callable[[], None], owner: LetterOwner) -> None:
        self._notes = notes
        self._hurry = hurry
        self._owner = owner

    def put(self, letter: DeadLetter, detail: Any) -> None:
        owner = self._owner
        self._notes.letters[letter.id] = StoredLetter(
            id=letter.id,
            tenant=owner.tenant,
            owner=owner.kind,
            source=owner.name,
            at=letter.at,
            payload=msgspec.msgpack.encode(_content(letter, detail, owner.codec_for)),
        )
        self._hurry()

    def remove(self, letter_id: str) -> None:
        self._notes.letters[letter_id] = None
        self._hurry()


def _content(letter: DeadLetter, detail: Any, codec_for: CodecFor | None) -> LetterContent:
    content = LetterContent(letter.kind, _storable(letter.error), letter.attempts)
    replace = msgspec.structs.replace
    if letter.kind == "firing":
        due, failed = detail
        stored = (letter.inputs or {}).items()
        inputs = {name: _packed(value, codec_for(name) if codec_for else None) for name, value in stored}
        return replace(content, inputs=inputs, firing=(due.series, due.number, failed))
    if isinstance(detail, Gathered):
        return replace(content, gathered=[_packed(event) for event in detail.events])
    return replace(content, event=_packed(letter.event), form=detail)


def _packed(value: Any, codec: Codec | None = None) -> bytes:
    """Return a value as bytes in the best way there is; what cannot be stored at all is described."""
    for attempt in (codec.encode if codec else encode_plain, lambda one: encode_plain(plain(one))):
        try:
            return attempt(value)
        except UnstorableError:
            continue
    return encode_plain(_storable(repr(value)))


def _storable(text: str) -> str:
    """Return a text without what is no character, such as half of one."""
    return text.encode("utf-8", "backslashreplace").decode()


def _unpacked(data: bytes, codec: Codec | None = None) -> Any:
    """Return a value as its codec reads it, or else plain."""
    if codec is not None:
        try:
            return codec.decode(data)
        except MisfitError:
            pass
    return msgspec.msgpack.decode(data)


def event_letters(one: RunningAccumulator, stored: Sequence[StoredContent]) -> list[tuple[DeadLetter, Any]]:
    """Return an accumulator's letters with what a replay needs."""
    letters: list[tuple[DeadLetter, Any]] = []
    for row, content in stored:
        if content.gathered is not None:
            events = [_as_declared(one, _unpacked(event)) for event in content.gathered]
            letters.append((_letter(row, content, event=events), Gathered(events)))
        else:
            letters.append((_letter(row, content, event=_unpacked(content.event)), content.form))
    return letters


def firing_letters(reactor: RunningReactor, stored: Sequence[StoredContent]) -> list[tuple[DeadLetter, Any]]:
    """Return a reactor's letters with what a replay needs."""
    letters = []
    for row, content in stored:
        stored_inputs = (content.inputs or {}).items()
        inputs = {name: _unpacked(data, reactor.codec_for(name)) for name, data in stored_inputs}
        snapshot = [inputs.get(one.name) for one in reactor.accumulators]
        series, number, failed = content.firing or ("", 0, [])
        due = Due(series, number, Taken(snapshot, [], 0), [], attempt=content.attempts)
        letters.append((_letter(row, content, inputs=inputs), (due, failed)))
    return letters


def _as_declared(one: RunningAccumulator, event: Any) -> Any:
    try:
        return one.admission.admit(event)
    except MisfitError:
        return event


def read_letter(row: StoredLetter) -> LetterContent:
    """Return what a stored letter says, or raise msgspec.DecodeError."""
    return msgspec.msgpack.decode(row.payload, type=LetterContent)


def _letter(row: StoredLetter, content: LetterContent, **value: Any) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        kind=content.kind,
        source=row.source,
        at=row.at,
        error=content.error,
        attempts=content.attempts,
        **value,
    )
