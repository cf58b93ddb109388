"""Rows with their checksums: how they are made, and how damage is found."""

from datetime import datetime

from tidemill.graphs.snapshot import journal_checksum, journal_checksum_seed, payload_checksum
from tidemill.storage.graph_ports import JournalEntry, JournalKey, PartKey, SnapshotPart


def snapshot_part(
    key: PartKey, generation: int, moment: int, at: datetime, digest: bytes, payload: bytes
) -> SnapshotPart:
    """Return a part whose checksum covers what it holds and whose it is."""
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
    """Return whether a part is what was once written in its place."""
    return part.checksum == payload_checksum(part.payload, part.key, part.generation, part.moment, part.digest)


def journal_entry(key: JournalKey, seed: int, position: int, payload: bytes) -> JournalEntry:
    """Return a journal entry; `seed` is the journal's, computed once: this is done for each event."""
    return JournalEntry(key=key, position=position, checksum=journal_checksum(payload, seed, position), payload=payload)


def is_entry_intact(entry: JournalEntry) -> bool:
    """Return whether a journal entry is what was once appended in its place."""
    return entry.checksum == journal_checksum(entry.payload, journal_checksum_seed(*entry.key), entry.position)
