"""Journal blocks: what is packed comes back, damage is noticed, and a row of before is a block of one entry."""

from itertools import accumulate
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill.engine.graphs.durability.journal_blocks import (
    JournalEntry,
    journal_checksum_seed,
    pack_block,
    unpack_block,
    unpack_blocks,
)
from tidemill.storage.graph_ports import JournalBlock, JournalKey

KEY = JournalKey("public", "a")
SEED = journal_checksum_seed(*KEY)
GAPS_AND_PAYLOADS = st.lists(st.tuples(st.integers(1, 2**40), st.binary(max_size=40)), min_size=1, max_size=30)


def pack(entries: list[tuple[int, bytes]]) -> JournalBlock:
    """Return the block of entries, each with its distance from the one before it."""
    return pack_block(KEY, SEED, list(accumulate(gap for gap, _ in entries)), [payload for _, payload in entries])


@given(entries=GAPS_AND_PAYLOADS)
def test_every_entry_comes_back_at_its_position(entries: list[tuple[int, bytes]]) -> None:
    """G-24: positions of other accumulators may lie in between."""
    block = pack(entries)
    positions = accumulate(gap for gap, _ in entries)
    assert unpack_block(block) == [
        JournalEntry(KEY, position, payload) for position, (_, payload) in zip(positions, entries, strict=True)
    ]
    assert block.position == sum(gap for gap, _ in entries)


@given(entries=GAPS_AND_PAYLOADS, data=st.data())
def test_a_flipped_bit_is_noticed(entries: list[tuple[int, bytes]], data: Any) -> None:
    """G-23: and whatever is still found of the block is marked as damaged."""
    block = pack(entries)
    field = data.draw(st.sampled_from([name for name in ("layout", "checksum", "payload") if getattr(block, name)]))
    damaged = bytearray(getattr(block, field))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = unpack_block(replace(block, **{field: bytes(damaged)}))
    assert found
    assert not any(entry.is_intact for entry in found)
    assert found[-1].position == block.position


@pytest.mark.parametrize("changes", [{"position": 8}, {"key": JournalKey("public", "b")}, {"payload": b""}])
def test_a_block_at_another_position_or_of_another_accumulator_is_damaged(changes: dict[str, Any]) -> None:
    """G-23: as after a row that was overwritten by another one."""
    block = pack([(3, b"x"), (4, b"y")])
    assert not any(entry.is_intact for entry in unpack_block(replace(block, **changes)))


@pytest.mark.parametrize("layout", [b"\x93\x01\x02\x03", b"\x92\x01\xff", b"\x92\x01\x7f", b"\xc1", b"\xa1x"])
def test_a_layout_that_cannot_be_is_not_believed(layout: bytes) -> None:
    """A number too many, a negative one, a length beyond the payload, no numbers at all."""
    block = replace(pack([(3, b"x"), (4, b"y")]), layout=layout)
    assert unpack_block(block) == [JournalEntry(KEY, 7, b"xy", is_intact=False)]


def test_a_row_of_before_is_a_block_of_one_entry() -> None:
    """G-24: with the checksum that it got then."""
    checksum = crc32(b"event", SEED ^ 5).to_bytes(4)
    row = JournalBlock(key=KEY, position=5, checksum=checksum, payload=b"event")
    assert unpack_block(row) == [JournalEntry(KEY, 5, b"event")]
    assert pack([(5, b"event")]) == row


def test_entries_of_several_accumulators_are_in_one_order() -> None:
    """G-24: they happen again in the order in which they happened."""
    other = JournalKey("public", "b")
    blocks = [
        pack_block(KEY, SEED, [1, 4], [b"one", b"four"]),
        pack_block(other, journal_checksum_seed(*other), [2, 3], [b"two", b"three"]),
    ]
    assert [entry.payload for entry in unpack_blocks(blocks)] == [b"one", b"two", b"three", b"four"]
