"""Owners of parts: one node at a time, numbered; writes of a former owner are refused."""

import asyncio

import pytest

from tests.contract.conftest import ContractDatabase
from tests.contract.samples import entry, part
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import FencedError, StoreError
from tidemill.storage.graph_ports import JournalTrim, PartFence, PartKey, PartOwner
from tidemill.storage.store import Store

MARKET, BOOK = PartKey("public", "reactor", "market"), PartKey("public", "accumulator", "book")
BOTH = [BOOK, MARKET]


async def acquired(store: Store, keys: list[PartKey], owner: str, **options: object) -> dict[PartKey, int]:
    """Acquire parts that can be acquired; return their epochs."""
    fences = await store.part_owners.acquire(keys, owner, 3.0, **options)  # type: ignore[arg-type]
    assert not isinstance(fences, PartOwner), fences
    return dict(fences)


async def test_a_part_has_one_owner(store: Store) -> None:
    """G-31: the second is refused, and learns who the first is; all or none are acquired."""
    assert await acquired(store, [MARKET], "one") == {MARKET: 1}
    assert await store.part_owners.acquire(BOTH, "two", 3.0) == PartOwner(MARKET, "one")
    assert await store.part_owners.owners_of(BOTH) == [PartOwner(MARKET, "one")]
    assert await acquired(store, BOTH, "one") == {BOOK: 1, MARKET: 1}


async def test_each_change_of_owner_has_a_new_epoch(store: Store, clock: VirtualClock) -> None:
    """G-31: after a release, a known death and an expiry."""
    assert await acquired(store, [MARKET], "one") == {MARKET: 1}
    await store.part_owners.release([PartFence(MARKET, 1)])
    assert await store.part_owners.owners_of(BOTH) == []
    assert await acquired(store, [MARKET], "two") == {MARKET: 2}
    assert await acquired(store, [MARKET], "three", gone=["two"]) == {MARKET: 3}
    clock.advance_to(2.9)
    assert await store.part_owners.acquire([MARKET], "four", 3.0) == PartOwner(MARKET, "three")
    clock.advance_to(3.0)
    assert await store.part_owners.owners_of([MARKET]) == []
    assert await acquired(store, [MARKET], "four") == {MARKET: 4}


async def test_a_renewal_extends_what_is_still_owned(store: Store, clock: VirtualClock) -> None:
    """G-31: even if it has expired, unless another node has acquired it."""
    await acquired(store, BOTH, "one")
    clock.advance_to(2.0)
    assert await store.part_owners.renew("one", 3.0) == {PartFence(BOOK, 1), PartFence(MARKET, 1)}
    clock.advance_to(4.5)
    assert await store.part_owners.acquire([MARKET], "two", 3.0) == PartOwner(MARKET, "one")
    clock.advance_to(9.0)
    await acquired(store, [MARKET], "two")
    assert await store.part_owners.renew("one", 3.0) == {PartFence(BOOK, 1)}
    assert await store.part_owners.renew("three", 3.0) == set()


async def test_a_release_does_not_touch_the_next_owner(store: Store) -> None:
    """G-31: a late release of a former owner changes nothing."""
    await acquired(store, [MARKET], "one")
    await acquired(store, [MARKET], "two", gone=["one"])
    await store.part_owners.release([PartFence(MARKET, 1)])
    assert await store.part_owners.owners_of([MARKET]) == [PartOwner(MARKET, "two")]


async def test_writes_of_a_former_owner_are_refused(store: Store) -> None:
    """G-31, W-8: nothing of them is written, and what the new owner wrote stays."""
    await acquired(store, BOTH, "one")
    former = [PartFence(BOOK, 1), PartFence(MARKET, 1)]
    await store.checkpoints.save([part(1)], fences=former)
    await store.checkpoints.append([entry(1)], former[:1])
    await acquired(store, [BOOK], "two", gone=["one"])
    with pytest.raises(FencedError, match="another node owns"):
        await store.checkpoints.append([entry(2)], former[:1])
    with pytest.raises(FencedError):
        await store.checkpoints.save([part(2)], [JournalTrim(entry(1).key, 1)], former)
    assert await store.checkpoints.read_all_parts() == [part(1)]
    assert await store.checkpoints.read_all_entries() == [entry(1)]
    await store.checkpoints.append([entry(2)], [PartFence(BOOK, 2)])
    await store.part_owners.release([PartFence(BOOK, 2)])
    with pytest.raises(FencedError):
        await store.checkpoints.append([entry(3)], [PartFence(BOOK, 2)])


async def test_a_refused_write_fails_no_other(store: Store) -> None:
    """The writes of one commit are judged one by one."""
    await acquired(store, [MARKET], "one")
    writes = [
        store.checkpoints.append([entry(1)], [PartFence(MARKET, 7)]),
        store.checkpoints.append([entry(2)], [PartFence(MARKET, 1)]),
        store.pauses.set_paused("public", "market", paused=True),
    ]
    refused, *others = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(refused, StoreError)
    assert others == [None, None]
    assert [one.position for one in await store.checkpoints.read_all_entries()] == [2]


async def test_of_many_candidates_one_wins(database: ContractDatabase) -> None:
    """G-31: stores of several processes, at once."""
    stores = [database.store() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    answers = await asyncio.gather(
        *(store.part_owners.acquire(BOTH, f"node {number}", 60.0) for number, store in enumerate(stores))
    )
    assert sum(not isinstance(answer, PartOwner) for answer in answers) == 1
    for store in stores:
        await store.close()
