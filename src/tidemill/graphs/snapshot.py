"""What outlives the process: a reactor's and an accumulator's part of a checkpoint, and the entries of a journal.

Values are inside as bytes of their own, each under the name of its accumulator: so one that no longer fits, or whose
accumulator is no longer declared, can be left out without losing the others.
"""

from hashlib import blake2b
from typing import Any, Literal
from zlib import crc32

import msgspec

from tidemill.annotations.codec import encode_msgpack

NamedBoundary = tuple[str, bytes]
"""An accumulator's name, and a boundary of its."""

DIGEST_SIZE = 16


class StoredFiring(msgspec.Struct, frozen=True, array_like=True):
    """A firing that had begun, or was to be tried again, when the snapshot was taken."""

    series: str
    number: int
    attempt: int
    manual: bool
    flags: list[str]
    inputs: dict[str, bytes]
    consumed: list[NamedBoundary]
    graphs: list[str]
    """Those that are to be tried again; on the first attempt, all that are ready."""


class StoredOutboxEntry(msgspec.Struct, frozen=True, array_like=True):
    """A firing that workflows had not all been told of when the snapshot was taken."""

    series: str
    number: int
    at: float
    """When it began, in seconds of the wall clock."""
    inputs: dict[str, bytes]
    to: list[str]
    """The workflows that had not been told."""


class ReactorPart(msgspec.Struct, frozen=True, kw_only=True):
    """A reactor's part of a checkpoint."""

    cache: dict[str, bytes]
    dirty: list[str]
    queue: list[tuple[str, bytes, int]]
    consumed: list[NamedBoundary]
    firings: list[StoredFiring]
    position: int
    """Up to where the journals of its accumulators were at that moment."""
    applied: int
    """The position of the newest boundary in the cache."""
    series: str
    number: int
    """The newest firing of the series."""
    positions: dict[str, int] = {}
    """Up to where each accumulator's journal is inside, queue included: one that was left before may have gone on."""
    posts: list[StoredOutboxEntry] = []
    """Firings that workflows are to be told of, oldest first."""

    def journal_position_of(self, accumulator: str) -> int | None:
        """Return up to where an accumulator's journal is inside, or None if the reactor did not listen to it."""
        return self.positions.get(accumulator) if self.positions else self.position


class AccumulatorPart(msgspec.Struct, frozen=True, kw_only=True):
    """An accumulator's part of a checkpoint."""

    sequence: int
    position: int
    state: bytes | None = None
    offset: Any = None
    held: list[bytes] = []
    """A batch's buffer or a window's content, oldest first."""
    kind: str | None = None
    """Which of the five kinds it was, and so what is meant by what it held; rows of old do not say."""


class JournalRecord(msgspec.Struct, frozen=True, array_like=True):
    """What happened to an accumulator: it emitted a boundary, held an event, or let go of `count` held ones."""

    kind: Literal["boundary", "held", "released"]
    value: bytes = b""
    count: int = 0
    offset: Any = None


def encode_stored(part: ReactorPart | AccumulatorPart | JournalRecord) -> bytes:
    """Return a part or a record as bytes, or raise UnstorableError: a source may have given an offset of any kind."""
    return encode_msgpack(part)


def journal_checksum(record: bytes, seed: int, position: int) -> bytes:
    """Return the checksum of a journal record: cheap, as there is one for each event."""
    return crc32(record, seed ^ position & 0xFFFFFFFF).to_bytes(4)


def journal_checksum_seed(tenant: str, accumulator: str) -> int:
    """Return what makes the checksums of one accumulator's records different from another's."""
    return crc32(f"{tenant}/{accumulator}".encode())


def payload_checksum(payload: bytes, *identity: Any) -> bytes:
    """Return the checksum that shows damage to a payload, and that it is not somebody else's."""
    return blake2b(payload, digest_size=DIGEST_SIZE, person=compute_digest(identity)).digest()


def compute_digest(value: Any) -> bytes:
    """Return what changes when a value does; of schemas, and of what a payload belongs to."""
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=DIGEST_SIZE).digest()
