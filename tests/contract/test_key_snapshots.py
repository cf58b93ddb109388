"""The contract of key snapshots, on every database."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.samples import part
from tidemill.kernel.errors import FencedError
from tidemill.storage.graph_ports import KeySnapshot, PartFence, PartKey
from tidemill.storage.store import Store

MARKET = PartKey("public", "reactor", "market[3]")
OTHERS = (PartKey("public", "reactor", "market[4]"), PartKey("acme", "reactor", "market[3]"))


def snapshot(key: bytes, slot: int = 0, moment: int = 1, **changes: Any) -> KeySnapshot:
    row = KeySnapshot(
        reactor=MARKET, key=key, slot=slot, moment=moment, is_pending=False, checksum=b"sum", payload=b"\x00\xff"
    )
    return replace(row, **changes)


async def save(store: Store, *rows: KeySnapshot) -> None:
    await store.checkpoints.save([], keys=rows)


async def test_both_snapshots_of_a_key_come_back(store: Store) -> None:
    rows = [snapshot(b"a"), snapshot(b"a", slot=1, moment=2), snapshot(b"\x00b")]
    await save(store, *rows, *(snapshot(b"a", reactor=other) for other in OTHERS))
    found = await store.key_snapshots.read(MARKET, [b"a", b"\x00b", b"missing"])
    assert sorted(found, key=lambda row: (row.key, row.slot)) == sorted(rows, key=lambda row: (row.key, row.slot))
    assert await store.key_snapshots.read(MARKET, []) == []


async def test_a_write_replaces_the_snapshot_in_its_slot(store: Store) -> None:
    """G-23: the snapshot in the other slot stays."""
    await save(store, snapshot(b"a"), snapshot(b"a", slot=1, moment=2, is_pending=True))
    newer = snapshot(b"a", moment=3, is_pending=True, checksum=b"other", payload=b"newer")
    await save(store, newer)
    found = await store.key_snapshots.read(MARKET, [b"a"])
    assert {row.slot: row for row in found} == {0: newer, 1: snapshot(b"a", slot=1, moment=2, is_pending=True)}


async def test_pending_keys_come_with_both_snapshots(store: Store) -> None:
    pending = [snapshot(b"a", is_pending=True), snapshot(b"a", slot=1, moment=2)]
    await save(store, *pending, snapshot(b"b"), snapshot(b"c", reactor=OTHERS[0], is_pending=True))
    assert sorted(await store.key_snapshots.read_pending(MARKET), key=lambda row: row.slot) == pending


async def test_keys_are_listed_in_pages_once_each(store: Store) -> None:
    await save(store, *(snapshot(bytes([number]), slot=slot) for number in range(5) for slot in (0, 1)))
    await save(store, *(snapshot(b"z", reactor=other) for other in OTHERS))
    first = await store.key_snapshots.list_keys(MARKET, b"", 3)
    assert first == [b"\x00", b"\x01", b"\x02"]
    assert await store.key_snapshots.list_keys(MARKET, first[-1], 3) == [b"\x03", b"\x04"]


async def test_keys_are_written_with_their_part_or_not_at_all(store: Store) -> None:
    """G-23, G-31: one transaction, under the fence of the owner."""
    written = replace(part(), key=MARKET)
    with pytest.raises(FencedError):
        await store.checkpoints.save([written], fences=[PartFence(MARKET, 1)], keys=[snapshot(b"a")])
    assert await store.key_snapshots.read(MARKET, [b"a"]) == []
    fences = await store.part_owners.acquire([MARKET], "node")
    assert isinstance(fences, list)
    await store.checkpoints.save([written], fences=fences, keys=[snapshot(b"a")])
    assert await store.key_snapshots.read(MARKET, [b"a"]) == [snapshot(b"a")]
