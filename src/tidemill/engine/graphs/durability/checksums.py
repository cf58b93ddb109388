"""Checksums of snapshot parts and snapshots of keys: computes them, and detects damaged rows."""

from datetime import datetime

from tidemill.graphs.snapshot import payload_checksum
from tidemill.storage.graph_ports import KeySnapshot, PartKey, SnapshotPart


def snapshot_part(
    key: PartKey, generation: int, moment: int, at: datetime, digest: bytes, payload: bytes
) -> SnapshotPart:
    """Return a part whose checksum covers its payload, its key and its numbers."""
    checksum = payload_checksum(payload, key, generation, moment, digest)
    return SnapshotPart(
        key=key,
        generation=generation,
        moment=moment,
        taken_at=at,
        digest=digest,
        checksum=checksum,
        payload=payload,
    )


def is_part_intact(part: SnapshotPart) -> bool:
    """Return whether a part is as it was written."""
    return part.checksum == payload_checksum(part.payload, part.key, part.generation, part.moment, part.digest)


def key_snapshot(
    reactor: PartKey, key: bytes, slot: int, moment: int, *, is_pending: bool, payload: bytes
) -> KeySnapshot:
    """Return the snapshot of a key whose checksum covers its payload, its key and its numbers."""
    checksum = payload_checksum(payload, reactor, key.hex(), slot, moment, is_pending)
    return KeySnapshot(
        reactor=reactor,
        key=key,
        slot=slot,
        moment=moment,
        is_pending=is_pending,
        checksum=checksum,
        payload=payload,
    )


def is_key_intact(row: KeySnapshot) -> bool:
    """Return whether the snapshot of a key is as it was written."""
    identity = (row.reactor, row.key.hex(), row.slot, row.moment, row.is_pending)
    return row.checksum == payload_checksum(row.payload, *identity)
