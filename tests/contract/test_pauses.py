"""Pauses: remembered until they are taken back."""

import pytest

from tests.contract.samples import ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_a_reactor_is_paused_until_it_is_resumed(store: Store) -> None:
    """G-13."""
    assert not await store.pauses.is_paused("public", "r")
    await store.pauses.set_paused("public", "r", paused=True)
    assert await store.pauses.is_paused("public", "r")
    await store.pauses.set_paused("public", "r", paused=False)
    assert not await store.pauses.is_paused("public", "r")


async def test_pausing_twice_is_pausing_once(store: Store) -> None:
    await store.pauses.set_paused("public", "r", paused=False)
    for _ in range(2):
        await store.pauses.set_paused("public", "r", paused=True)
    assert await store.pauses.list_paused() == [("public", "r")]
    for _ in range(2):
        await store.pauses.set_paused("public", "r", paused=False)
    assert await store.pauses.list_paused() == []


async def test_tenants_pause_their_own(store: Store) -> None:
    """G-30."""
    await store.pauses.set_paused("a", "r", paused=True)
    assert not await store.pauses.is_paused("b", "r")


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_a_name(store: Store, name: str) -> None:
    await store.pauses.set_paused(name, name, paused=True)
    assert await store.pauses.is_paused(name, name)


async def test_paused_reactors_are_listed_in_order(store: Store) -> None:
    pairs = [(tenant, reactor) for tenant in ("b", "A", "a") for reactor in ODD_NAMES]
    for tenant, reactor in pairs:
        await store.pauses.set_paused(tenant, reactor, paused=True)
    assert await store.pauses.list_paused() == sorted(pairs)


async def test_a_failed_write_leaves_the_pause_as_it_was(store: Store) -> None:
    await store.pauses.set_paused("public", "r", paused=True)
    fail_next(store, 1)
    with pytest.raises(StoreError):
        await store.pauses.set_paused("public", "r", paused=False)
    assert await store.pauses.is_paused("public", "r")
