"""Journal blocks: the entries of one accumulator that are committed together, packed into one row.

A row costs the database more than its bytes do, so a commit writes one row for each accumulator and not one for each
event. An entry keeps its own position: those of one accumulator need not follow each other, because others have
positions in between. Before there were blocks, each entry had a row. Such a row is a block of one entry.
"""

from collections.abc import Iterable, Sequence
from zlib import crc32

import msgspec

from tidemill.storage.graph_ports import JournalBlock, JournalKey


class JournalEntry(msgspec.Struct, frozen=True):
    """One step of an accumulator, as it was found in the journal."""

    key: JournalKey
    position: int
    payload: bytes
    """A `JournalRecord`."""
    is_intact: bool = True
    """Whether its block is as it was written."""


def journal_checksum(layout: bytes, payload: bytes, seed: int, position: int) -> bytes:
    """Return the checksum of a journal block; cheap, because each commit has some."""
    return crc32(payload, crc32(layout, seed ^ position & 0xFFFFFFFF)).to_bytes(4)


def journal_checksum_seed(tenant: str, accumulator: str) -> int:
    """Return a seed that makes the checksums of one accumulator's blocks differ from another's."""
    return crc32(f"{tenant}/{accumulator}".encode())


def pack_block(key: JournalKey, seed: int, positions: Sequence[int], payloads: Sequence[bytes]) -> JournalBlock:
    """Return the block of some entries, oldest first; `seed` is that of their accumulator's checksums."""
    last = positions[-1]
    layout = b""
    if len(positions) > 1:
        layout = msgspec.msgpack.encode([*(last - one for one in positions[:-1]), *map(len, payloads[:-1])])
    payload = b"".join(payloads)
    checksum = journal_checksum(layout, payload, seed, last)
    return JournalBlock(key=key, position=last, layout=layout, checksum=checksum, payload=payload)


def unpack_blocks(blocks: Iterable[JournalBlock]) -> list[JournalEntry]:
    """Return the entries of blocks by position."""
    entries = [entry for block in blocks for entry in unpack_block(block)]
    return sorted(entries, key=lambda entry: entry.position)


def unpack_block(block: JournalBlock) -> list[JournalEntry]:
    """Return the entries of a block, oldest first; of a damaged one, those that its layout still names."""
    key, last, payload = block.key, block.position, block.payload
    seed = journal_checksum_seed(*key)
    is_intact = block.checksum == journal_checksum(block.layout, payload, seed, last)
    distances, lengths = _read_layout(block)
    entries, start = [], 0
    for distance, length in zip(distances, lengths, strict=True):
        entries.append(JournalEntry(key, last - distance, payload[start : start + length], is_intact))
        start += length
    return [*entries, JournalEntry(key, last, payload[start:], is_intact)]


def _read_layout(block: JournalBlock) -> tuple[Sequence[int], Sequence[int]]:
    """Return how far the entries before the last one are from it, and their lengths; nothing if that is damaged."""
    if not block.layout:
        return (), ()
    try:
        numbers = msgspec.msgpack.decode(block.layout, type=list[int])
    except msgspec.DecodeError:
        return (), ()
    count = len(numbers) // 2
    distances, lengths = numbers[:count], numbers[count:]
    is_plausible = len(lengths) == count and min(numbers, default=0) >= 0 and sum(lengths) <= len(block.payload)
    return (distances, lengths) if is_plausible else ((), ())
