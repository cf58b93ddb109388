"""Rows with their checksums: how they are made, and how damage is found."""

from datetime import datetime

from tidemill.graphs.snapshot import journal_seed, mark, seal
from tidemill.storage.ports import JournalEntry, JournalKey, Part, PartKey


def sealed(key: PartKey, generation: int, moment: int, at: datetime, digest: bytes, payload: bytes) -> Part:
    """Return a part whose checksum covers what it holds and whose it is."""
    checksum = seal(payload, key, generation, moment, digest)
    return Part(
        key=key,
        generation=generation,
        moment=moment,
        taken_at=at,
        digest=digest,
        checksum=checksum,
        payload=payload,
    )


def is_intact(part: Part) -> bool:
    """Return whether a part is what was once written in its place."""
    return part.checksum == seal(part.payload, part.key, part.generation, part.moment, part.digest)


def marked(key: JournalKey, seed: int, position: int, payload: bytes) -> JournalEntry:
    """Return a journal entry; `seed` is the journal's, computed once: this is done for each event."""
    return JournalEntry(key=key, position=position, checksum=mark(payload, seed, position), payload=payload)


def is_entry_intact(entry: JournalEntry) -> bool:
    """Return whether a journal entry is what was once appended in its place."""
    return entry.checksum == mark(entry.payload, journal_seed(*entry.key), entry.position)
