"""Leases: one holder at a time, and each term has an epoch that no other has."""

import asyncio

import pytest

from tests.contract.conftest import ContractDatabase
from tests.contract.samples import ODD_NAMES
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Lease
from tidemill.testing.faults.stores import fail_next


async def test_a_free_lease_is_acquired_once(store: Store) -> None:
    assert await store.leases.current("leader") is None
    epoch = await store.leases.acquire("leader", "a", 10)
    assert epoch is not None
    assert await store.leases.acquire("leader", "b", 10) is None
    assert await store.leases.acquire("leader", "a", 10) is None
    assert await store.leases.current("leader") == Lease("a", epoch)


async def test_an_expired_lease_is_free(store: Store, clock: VirtualClock) -> None:
    """W-9: by the store's clock. Until another holder acquires it, it still names its holder."""
    first = await store.leases.acquire("leader", "a", 10)
    assert first is not None
    clock.advance_to(9.9)
    assert await store.leases.acquire("leader", "b", 10) is None
    clock.advance_to(10.1)
    assert await store.leases.current("leader") == Lease("a", first)
    assert await store.leases.acquire("leader", "b", 10) == first + 1
    assert await store.leases.current("leader") == Lease("b", first + 1)


async def test_the_lease_of_a_dead_holder_is_free(store: Store) -> None:
    """W-9: immediately."""
    first = await store.leases.acquire("leader", "a", 10)
    assert first is not None
    assert await store.leases.acquire("leader", "b", 10, dead_holders=["c", "d"]) is None
    assert await store.leases.acquire("leader", "b", 10, dead_holders={"c", "a"}) == first + 1


async def test_renewing_a_lease(store: Store, clock: VirtualClock) -> None:
    """Also after it has expired, unless another holder has acquired it."""
    epoch = await store.leases.acquire("leader", "a", 10)
    assert epoch is not None
    clock.advance_to(9)
    assert await store.leases.renew("leader", epoch, 10)
    clock.advance_to(18)
    assert await store.leases.acquire("leader", "b", 10) is None
    clock.advance_to(30)
    assert await store.leases.renew("leader", epoch, 10)
    assert await store.leases.acquire("leader", "b", 10) is None
    clock.advance_to(41)
    assert await store.leases.acquire("leader", "b", 10) == epoch + 1
    assert not await store.leases.renew("leader", epoch, 10)
    assert not await store.leases.renew("other", epoch, 10)
    assert await store.leases.current("leader") == Lease("b", epoch + 1)


async def test_a_silent_lease_is_taken_over(store: Store) -> None:
    """W-9: long before it has expired, by a candidate that has seen no renewal."""
    assert await store.leases.last_renewal("leader") is None
    first = await store.leases.acquire("leader", "a", 3600)
    assert first is not None
    silent = await store.leases.last_renewal("leader")
    assert silent is not None
    assert silent[:2] == ("a", first)
    assert await store.leases.take_over("leader", silent, "b", 10) == first + 1
    assert await store.leases.take_over("leader", silent, "c", 10) is None
    assert await store.leases.current("leader") == Lease("b", first + 1)
    assert not await store.leases.renew("leader", first, 10)
    assert await store.leases.renew("leader", first + 1, 10)


async def test_a_lease_that_was_renewed_or_released_is_not_taken_over(store: Store, clock: VirtualClock) -> None:
    """W-9: the evidence is compared again when the lease is taken."""
    first = await store.leases.acquire("leader", "a", 10)
    assert first is not None
    silent = await store.leases.last_renewal("leader")
    assert silent is not None
    clock.advance_to(20)
    assert await store.leases.renew("leader", first, 10)
    assert await store.leases.take_over("leader", silent, "b", 10) is None
    renewed = await store.leases.last_renewal("leader")
    assert renewed is not None
    assert renewed.until > silent.until
    await store.leases.release("leader", first)
    assert await store.leases.last_renewal("leader") is None
    assert await store.leases.take_over("leader", renewed, "b", 10) is None


async def test_releasing_a_lease(store: Store) -> None:
    """Epochs never repeat, also after a time without a holder."""
    first = await store.leases.acquire("leader", "a", 10)
    assert first is not None
    await store.leases.release("leader", first)
    assert await store.leases.current("leader") is None
    assert not await store.leases.renew("leader", first, 10)
    assert await store.leases.acquire("leader", "a", 10) == first + 1
    await store.leases.release("leader", first)
    await store.leases.release("other", first)
    assert await store.leases.current("leader") == Lease("a", first + 1)


async def test_leases_are_independent(store: Store) -> None:
    for name in ODD_NAMES:
        assert await store.leases.acquire(name, name, 10) is not None
    for name in ODD_NAMES:
        lease = await store.leases.current(name)
        assert lease is not None
        assert lease.holder == name


async def test_a_failed_acquisition_leaves_the_lease_free(store: Store) -> None:
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.leases.acquire("leader", "a", 10)
    assert await store.leases.acquire("leader", "b", 10) is not None


async def test_one_of_many_concurrent_candidates_acquires_it(database: ContractDatabase) -> None:
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    epochs = set()
    for number in range(10):
        taken = await asyncio.gather(*(store.leases.acquire(f"o{number}", str(store), 60) for store in stores))
        assert len([epoch for epoch in taken if epoch is not None]) == 1
        epochs.update(taken)
    for _ in range(5):
        lease = await stores[0].leases.current("o1")
        assert lease is not None
        calls = (
            store.leases.acquire("o1", f"n{number}", 60, dead_holders=[lease.holder])
            for number, store in enumerate(stores)
        )
        taken = await asyncio.gather(*calls)
        assert max(epoch or 0 for epoch in taken) > lease.epoch
    await asyncio.gather(*(store.close() for store in stores))
