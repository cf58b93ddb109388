"""Owners of parts: one node at a time, numbered; writes of a former owner are refused."""

import asyncio

import pytest

from tests.contract.conftest import ContractDatabase
from tests.contract.samples import block, part
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import FencedError, StoreError
from tidemill.storage.graph_ports import JournalTrim, PartFence, PartKey, PartOwner
from tidemill.storage.store import Store

MARKET, BOOK = PartKey("public", "reactor", "market"), PartKey("public", "accumulator", "book")
BOTH = [BOOK, MARKET]


async def acquired(store: Store, keys: list[PartKey], owner: str, **options: object) -> dict[PartKey, int]:
    """Acquire parts that can be acquired; return their epochs."""
    fences = await store.part_owners.acquire(keys, owner, **options)
    assert not isinstance(fences, PartOwner), fences
    return dict(fences)


async def take_over(store: Store, keys: list[PartKey], owner: str) -> dict[PartKey, int]:
    """Acquire parts whose owners are known to have abandoned them; return their epochs."""
    return await acquired(store, keys, owner, abandoned=await store.part_owners.owners_of(keys))


async def test_a_part_has_one_owner(store: Store) -> None:
    """G-31: the second is refused, and learns who the first is; all or none are acquired."""
    assert await acquired(store, [MARKET], "one") == {MARKET: 1}
    assert await store.part_owners.acquire(BOTH, "two") == PartOwner(MARKET, "one", 1, 1)
    assert await store.part_owners.owners_of(BOTH) == [PartOwner(MARKET, "one", 1, 1)]
    assert await acquired(store, BOTH, "one") == {BOOK: 1, MARKET: 1}


async def test_each_change_of_owner_has_a_new_epoch(store: Store) -> None:
    """G-31: after a release, and after its owner has abandoned it."""
    assert await acquired(store, [MARKET], "one") == {MARKET: 1}
    await store.part_owners.release([PartFence(MARKET, 1)])
    assert await store.part_owners.owners_of(BOTH) == []
    assert await acquired(store, [MARKET], "two") == {MARKET: 2}
    assert await take_over(store, [MARKET], "three") == {MARKET: 3}
    assert await acquired(store, [MARKET], "three") == {MARKET: 3}


async def test_a_renewal_prevents_a_take_over(store: Store) -> None:
    """G-31: an owner that seemed to be silent, and has renewed its ownership since, keeps it."""
    await acquired(store, BOTH, "one")
    silent = await store.part_owners.owners_of(BOTH)
    assert await store.part_owners.renew("one") == {PartFence(BOOK, 1), PartFence(MARKET, 1)}
    assert await store.part_owners.acquire([MARKET], "two", silent) == PartOwner(MARKET, "one", 1, 2)
    await take_over(store, [MARKET], "two")
    assert await store.part_owners.renew("one") == {PartFence(BOOK, 1)}
    assert await store.part_owners.renew("three") == set()


async def test_one_of_two_candidates_takes_over(store: Store) -> None:
    """G-31: the second has seen the same silence, of an owner that is no longer the owner."""
    await acquired(store, [MARKET], "one")
    silent = await store.part_owners.owners_of([MARKET])
    assert await acquired(store, [MARKET], "two", abandoned=silent) == {MARKET: 2}
    assert await store.part_owners.acquire([MARKET], "three", silent) == PartOwner(MARKET, "two", 2, 2)


@pytest.mark.parametrize("step", ["2h", "-1h"])
async def test_a_stepped_clock_changes_no_owner(store: Store, clock: VirtualClock, step: str) -> None:
    """G-31: stores compare no times."""
    await acquired(store, [MARKET], "one")
    clock.step(step)
    assert await store.part_owners.acquire([MARKET], "two") == PartOwner(MARKET, "one", 1, 1)


async def test_a_release_does_not_touch_the_next_owner(store: Store) -> None:
    """G-31: a late release of a former owner changes nothing."""
    await acquired(store, [MARKET], "one")
    await take_over(store, [MARKET], "two")
    await store.part_owners.release([PartFence(MARKET, 1)])
    assert await store.part_owners.owners_of([MARKET]) == [PartOwner(MARKET, "two", 2, 2)]


async def test_writes_of_a_former_owner_are_refused(store: Store) -> None:
    """G-31, W-8: nothing of them is written, and what the new owner wrote stays."""
    await acquired(store, BOTH, "one")
    former = [PartFence(BOOK, 1), PartFence(MARKET, 1)]
    await store.checkpoints.save([part(1)], fences=former)
    await store.checkpoints.append([block(1)], former[:1])
    await take_over(store, [BOOK], "two")
    with pytest.raises(FencedError, match="another node owns"):
        await store.checkpoints.append([block(2)], former[:1])
    with pytest.raises(FencedError):
        await store.checkpoints.save([part(2)], [JournalTrim(block(1).key, 1)], former)
    assert await store.checkpoints.read_all_parts() == [part(1)]
    assert await store.checkpoints.read_all_blocks() == [block(1)]
    await store.checkpoints.append([block(2)], [PartFence(BOOK, 2)])
    await store.part_owners.release([PartFence(BOOK, 2)])
    with pytest.raises(FencedError):
        await store.checkpoints.append([block(3)], [PartFence(BOOK, 2)])


async def test_a_refused_write_fails_no_other(store: Store) -> None:
    """The writes of one commit are judged one by one."""
    await acquired(store, [MARKET], "one")
    writes = [
        store.checkpoints.append([block(1)], [PartFence(MARKET, 7)]),
        store.checkpoints.append([block(2)], [PartFence(MARKET, 1)]),
        store.pauses.set_paused("public", "market", paused=True),
    ]
    refused, *others = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(refused, StoreError)
    assert others == [None, None]
    assert [one.position for one in await store.checkpoints.read_all_blocks()] == [2]


async def test_of_many_candidates_one_wins(database: ContractDatabase) -> None:
    """G-31: stores of several processes, at once."""
    stores = [database.store() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    answers = await asyncio.gather(
        *(store.part_owners.acquire(BOTH, f"node {number}") for number, store in enumerate(stores))
    )
    assert sum(not isinstance(answer, PartOwner) for answer in answers) == 1
    for store in stores:
        await store.close()
