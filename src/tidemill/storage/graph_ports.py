"""Ports of the graph engine: checkpoints, journals, producers, owners of parts.

A port is one noun. Its rows hold payloads that only the engine understands. A write that raises StoreError has changed
nothing.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tidemill.graphs.health import PartKind as PartKind  # of part keys
from tidemill.kernel.errors import FencedError


class PartKey(NamedTuple):
    """Identifies the reactor or accumulator that a part of a checkpoint belongs to."""

    tenant: str
    kind: PartKind
    name: str


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True):
    """One reactor's or accumulator's part of a checkpoint, as stored. Two generations of each are kept.

    Parts that were written together have the same `moment`. A generation lies in the slot `generation % 2`, so each
    write replaces the generation before the last one.
    """

    key: PartKey
    generation: int
    moment: int
    taken_at: datetime
    digest: bytes  # of the schema that the payload was written with
    checksum: bytes  # over key, generation, moment, digest and payload
    payload: bytes


class KeySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one key of a reactor, as stored. Each key has two slots.

    A write replaces the older one of a key's two snapshots, so that the one before the newest moment stays.
    """

    reactor: PartKey
    key: bytes
    slot: int  # 0 or 1
    moment: int  # of the reactor's part that was written together with it
    is_pending: bool  # whether it has work to do after a restart, without a new event
    checksum: bytes  # over reactor, key, slot, moment, is_pending and payload
    payload: bytes


class JournalKey(NamedTuple):
    """Identifies the accumulator that a journal belongs to."""

    tenant: str
    accumulator: str


class JournalBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one accumulator that were committed together, before they were acknowledged: one row.

    Positions grow over all journals of a node, so that they order what several accumulators emit to one reactor.
    """

    key: JournalKey
    position: int  # of its last entry
    layout: bytes = b""  # positions and lengths of the entries before the last one; empty if there is one entry
    checksum: bytes  # over key, position, layout and payload
    payload: bytes  # of all entries, one after the other


class StoredPush(msgspec.Struct, frozen=True, kw_only=True):
    """The newest push of a producer that numbers its pushes, with its answer: a repetition is recognized by it."""

    key: JournalKey
    client: str
    sequence: int
    answer: bytes
    at: datetime


class JournalTrim(NamedTuple):
    """A journal, and the last position that checkpoints cover: blocks up to it are no longer needed."""

    key: JournalKey
    position: int


class HighWaterMarks(NamedTuple):
    """The highest numbers in use; 0 if there are none."""

    moment: int
    position: int


class PartFence(NamedTuple):
    """The epoch under which a node owns a part, with its journal: each change of owner has a new one."""

    key: PartKey
    epoch: int


class PartOwner(NamedTuple):
    """The node that owns a part, and how often it has renewed its ownership."""

    key: PartKey
    owner: str
    epoch: int
    renewals: int


class PartOwners(Protocol):
    """The nodes that own parts: one at a time each.

    An owner renews its ownership, so that other nodes see that it is alive. Stores compare no times, because clocks are
    stepped.
    """

    async def acquire(
        self, keys: Sequence[PartKey], owner: str, abandoned: Collection[PartOwner] = ()
    ) -> list[PartFence] | PartOwner:
        """Acquire parts, all or none; return their fences, or the owner of one of them that another node owns.

        A part can be acquired if it has no owner, or if its owner is among `abandoned` and has not renewed its
        ownership since. A part that the owner has already keeps its epoch.
        """

    async def renew(self, owner: str) -> set[PartFence]:
        """Renew the ownership of all parts of an owner; return them."""

    async def release(self, fences: Sequence[PartFence]) -> None:
        """Release parts, except those that another node has acquired."""

    async def owners_of(self, keys: Sequence[PartKey]) -> list[PartOwner]:
        """Return the owners of those of some parts that have one, by key."""

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        """Return the names of a tenant's parts of one kind that have an owner, sorted."""


class Checkpoints(Protocol):
    """Snapshots of reactors and accumulators, and the journal of the events after them.

    A write under `fences` raises FencedError, and changes nothing, if one of them is not the current epoch of its part.
    The epoch cannot change before the write is committed.
    """

    async def save(
        self,
        parts: Sequence[SnapshotPart],
        trims: Sequence[JournalTrim] = (),
        fences: Collection[PartFence] = (),
        keys: Sequence[KeySnapshot] = (),
    ) -> None:
        """Write parts and keys of one moment, each into its slot, and delete the journal blocks that they cover."""

    async def append(
        self,
        blocks: Sequence[JournalBlock],
        fences: Collection[PartFence] = (),
        pushes: Sequence[StoredPush] = (),
    ) -> None:
        """Append blocks to journals, together with the pushes that they came with; StoreError if a position is taken.

        A push replaces the one before it of the same client at the same accumulator. Each of them has at most one.
        """

    async def read_parts(self, keys: Sequence[PartKey]) -> list[SnapshotPart]:
        """Return every stored generation of these parts, newest moment first."""

    async def read_blocks(self, journals: Sequence[JournalKey]) -> list[JournalBlock]:
        """Return all blocks of these journals, by position."""

    async def read_high_water_marks(self) -> HighWaterMarks:
        """Return the highest moment and position in use, over all tenants."""

    async def read_all_parts(self) -> list[SnapshotPart]:
        """Return every stored part of every tenant, by key, newest moment first; for audits."""

    async def read_all_blocks(self) -> list[JournalBlock]:
        """Return every journal block by key and position; for audits."""


class Producers(Protocol):
    """The newest push of each producer. `Checkpoints.append` writes them."""

    async def newest_push(self, key: JournalKey, client: str) -> StoredPush | None:
        """Return the newest push of a client at an accumulator."""

    async def delete_before(self, before: datetime, kept: str) -> None:
        """Delete the pushes before a time, of all tenants, and of all clients but `kept`."""


def fenced_error() -> FencedError:
    """Return the error of a write under a fence that is not current."""
    return FencedError("another node owns this reactor now; nothing was written")


class KeySnapshots(Protocol):
    """The snapshots of the keys of reactors."""

    async def read(self, reactor: PartKey, keys: Sequence[bytes]) -> list[KeySnapshot]:
        """Return both snapshots of each of these keys that has any."""

    async def read_pending(self, reactor: PartKey) -> list[KeySnapshot]:
        """Return both snapshots of each key of a reactor of which one is pending."""

    async def list_keys(self, reactor: PartKey, after: bytes, limit: int) -> list[bytes]:
        """Return the stored keys of a reactor that sort after one, sorted, at most `limit`; `b""` sorts first."""
