"""The stored form of graph state: the reactor's and accumulator's parts of a checkpoint, and journal records.

Each value is encoded separately, under the name of its accumulator: one that no longer fits, or whose accumulator is no
longer declared, can be left out without losing the others.
"""

from hashlib import blake2b
from typing import Any, Literal

import msgspec

from tidemill.annotations.codec import encode_msgpack
from tidemill.graphs.subscription import GraphNodeOutput, Subscription

NamedBoundary = tuple[str, bytes]
"""The name of an accumulator, and one of its boundaries."""

DIGEST_SIZE = 16
UNREADABLE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises for damaged bytes: a string that is not UTF-8 has its own error."""


class StoredFiring(msgspec.Struct, frozen=True, array_like=True):
    """A firing that was running, or waiting for a retry, when the snapshot was taken."""

    series: str
    number: int
    attempt: int
    manual: bool
    flags: list[str]
    inputs: dict[str, bytes]
    consumed: list[NamedBoundary]
    graphs: list[str]
    """The graphs to retry; on the first attempt, all that are ready."""
    key: bytes | None = None
    """Of a keyed reactor."""


class StoredOutput(msgspec.Struct, frozen=True, array_like=True):
    """A value that was not yet delivered to a workflow that subscribes to its node."""

    to: Subscription
    output: GraphNodeOutput


class StoredOutboxEntry(msgspec.Struct, frozen=True, array_like=True):
    """A firing that was not yet delivered to all subscribed workflows when the snapshot was taken."""

    series: str
    number: int
    at: float
    """Its start, in seconds of the wall clock."""
    inputs: dict[str, bytes]
    to: list[str]
    """The workflows that subscribe to all firings and have not received it."""
    outputs: list[StoredOutput] = []
    """The values that workflows have not received which subscribe to the nodes that returned them."""
    key: bytes | None = None
    """Of a keyed reactor."""


class StoredFeed(msgspec.Struct, frozen=True, array_like=True):
    """A result that was not yet pushed into the accumulator that its node feeds."""

    tenant: str
    accumulator: str
    value: bytes


class ReactorPart(msgspec.Struct, frozen=True, kw_only=True):
    """A reactor's part of a checkpoint."""

    cache: dict[str, bytes]
    dirty: list[str]
    queue: list[tuple[str, bytes, int]]
    consumed: list[NamedBoundary]
    firings: list[StoredFiring]
    position: int
    """The position of its accumulators' journals at that moment."""
    applied: int
    """The position of the newest boundary in the cache."""
    series: str
    number: int
    """The newest firing of the series."""
    positions: dict[str, int] = {}
    """The journal position of each accumulator that the part includes, queue included. They may differ: an accumulator
    that the reactor unsubscribed from may have continued.
    """
    posts: list[StoredOutboxEntry] = []
    """Firings to deliver to workflows, oldest first."""
    feeds: list[StoredFeed] = []
    """Results to push into other accumulators, oldest first for each."""
    lost_moments: list[tuple[int, int]] = []
    """Of a keyed reactor: after each first moment, up to the second one, snapshots of keys do not count, because the
    reactor went back to the first one."""
    reset_moment: int = 0
    """Of a keyed reactor: it got another contract then, and the caches of keys up to that moment do not count."""
    partitions: int = 0
    """Of a keyed reactor: the number of its partitions, which decides where its keys are stored."""

    def journal_position_of(self, accumulator: str) -> int | None:
        """Return the journal position of an accumulator, or None if the reactor was not subscribed to it."""
        return self.positions.get(accumulator) if self.positions else self.position


class KeyPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a keyed reactor and its accumulators hold for one key."""

    cache: dict[str, bytes] = {}
    dirty: list[str] = []
    queue: list[tuple[str, bytes, int]] = []
    consumed: list[NamedBoundary] = []
    applied: int = 0
    """The position of the newest boundary in the cache."""
    states: dict[str, bytes] = {}
    """Running states, by accumulator."""
    held: dict[str, tuple[str, list[bytes]]] = {}
    """Buffers of batches and contents of windows, oldest first, by accumulator, each with its kind."""


class AccumulatorPart(msgspec.Struct, frozen=True, kw_only=True):
    """An accumulator's part of a checkpoint."""

    sequence: int
    position: int
    state: bytes | None = None
    offset: Any = None
    held: list[bytes] = []
    """A batch's buffer or a window's content, oldest first."""
    kind: str | None = None
    """Its kind, which tells the meaning of `held`; None in rows of older versions."""


class JournalRecord(msgspec.Struct, frozen=True, array_like=True):
    """One change of an accumulator: it emitted a boundary, buffered an event, or released `count` buffered ones."""

    kind: Literal["boundary", "held", "released"]
    value: bytes = b""
    count: int = 0
    offset: Any = None


class KeyedJournalRecord(JournalRecord, frozen=True, array_like=True):
    """One change of a keyed accumulator; readers that do not need the key read it as a `JournalRecord`."""

    key: bytes = b""


class KeptValue(msgspec.Struct, frozen=True, array_like=True):
    """One value in its stored form, and what it is of its accumulator."""

    accumulator: str
    use: Literal["state", "boundary", "held"]
    data: bytes
    key: bytes | None = None
    """Of a keyed reactor."""
    kind: str = ""
    """Of the accumulator that held an event."""


def encode_stored(part: ReactorPart | AccumulatorPart | KeyPart) -> bytes:
    """Return a part as bytes; UnstorableError if a source's offset cannot be encoded."""
    return encode_msgpack(part)


def payload_checksum(payload: bytes, *identity: Any) -> bytes:
    """Return a checksum that detects a damaged payload, and one that belongs to another owner."""
    return blake2b(payload, digest_size=DIGEST_SIZE, person=compute_digest(identity)).digest()


def compute_digest(value: Any) -> bytes:
    """Return a digest of a JSON-able value, such as a schema or the identity of a payload's owner."""
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=DIGEST_SIZE).digest()
