"""Rows as they come from a table with these columns, whichever database it is in."""

from datetime import datetime

from tidemill.storage.ports import JournalEntry, JournalKey, Part, PartKey, PartKind


def part_of(
    tenant: str,
    kind: PartKind,
    name: str,
    generation: int,
    moment: int,
    taken_at: datetime,
    digest: bytes,
    checksum: bytes,
    payload: bytes,
) -> Part:
    """Return a part from its columns."""
    return Part(
        key=PartKey(tenant, kind, name),
        generation=generation,
        moment=moment,
        taken_at=taken_at,
        digest=digest,
        checksum=checksum,
        payload=payload,
    )


def entry_of(tenant: str, accumulator: str, position: int, checksum: bytes, payload: bytes) -> JournalEntry:
    """Return a journal entry from its columns."""
    return JournalEntry(key=JournalKey(tenant, accumulator), position=position, checksum=checksum, payload=payload)
