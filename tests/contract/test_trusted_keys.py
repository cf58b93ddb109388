"""Keys that may sign packages: each tenant trusts its own."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.package_samples import trusted
from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_keys_are_listed_oldest_first(store: Store) -> None:
    """P-9."""
    assert await store.trusted_keys.for_tenant("public") == []
    keys = [trusted(f"k{number}", at=after(-number), text=f"text {number}") for number in range(3)]
    keys += [trusted("k0a")]
    for key in keys:
        await store.trusted_keys.add(key)
    assert await store.trusted_keys.for_tenant("public") == [keys[2], keys[1], keys[0], keys[3]]


async def test_a_key_that_is_trusted_stays_as_it_is(store: Store) -> None:
    """Nobody slips another one in under its id."""
    await store.trusted_keys.add(trusted())
    await store.trusted_keys.add(trusted(text="another", at=after(60)))
    assert await store.trusted_keys.for_tenant("public") == [trusted()]


async def test_a_tenant_trusts_its_own_keys_and_no_others(store: Store) -> None:
    """P-9: trusted keys are per tenant."""
    keys = [trusted(name, tenant=name, text=f"of {name}") for name in ODD_NAMES]
    for key in keys:
        await store.trusted_keys.add(key)
    for key in keys:
        assert await store.trusted_keys.for_tenant(key.tenant) == [key]
    assert await store.trusted_keys.for_tenant("unknown") == []


async def test_a_key_is_trusted_until_it_is_removed(store: Store) -> None:
    for key in (trusted("k1"), trusted("k2"), trusted("k1", tenant="other")):
        await store.trusted_keys.add(key)
    assert not await store.trusted_keys.delete("public", "k3")
    assert await store.trusted_keys.delete("public", "k1")
    assert not await store.trusted_keys.delete("public", "k1")
    assert await store.trusted_keys.for_tenant("public") == [trusted("k2")]
    assert await store.trusted_keys.for_tenant("other") == [trusted("k1", tenant="other")]


async def test_a_key_that_was_removed_may_come_again(store: Store) -> None:
    await store.trusted_keys.add(trusted())
    await store.trusted_keys.delete("public", "k1")
    again = trusted(at=after(60), text="another")
    await store.trusted_keys.add(again)
    assert await store.trusted_keys.for_tenant("public") == [again]


async def test_one_of_several_who_remove_a_key_is_told_so(store: Store) -> None:
    await store.trusted_keys.add(trusted())
    removed = await asyncio.gather(*(store.trusted_keys.delete("public", "k1") for _ in range(10)))
    assert sorted(removed) == [False] * 9 + [True]


async def test_a_key_of_another_zone_is_of_the_same_instant(store: Store) -> None:
    await store.trusted_keys.add(trusted(at=NOON_ELSEWHERE, text="naïve 名前 🌊\nsecond line"))
    (key,) = await store.trusted_keys.for_tenant("public")
    assert (key.at, key.at.utcoffset(), key.text) == (NOON, NOON.utcoffset(), "naïve 名前 🌊\nsecond line")


async def test_keys_are_there_after_the_end(database: ContractDatabase) -> None:
    store, later = database.store(), database.store()
    await store.open()
    await store.trusted_keys.add(trusted())
    await store.close()
    await later.open()
    assert await later.trusted_keys.for_tenant("public") == [trusted()]
    await later.close()


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    await store.trusted_keys.add(trusted())
    for write in (lambda: store.trusted_keys.add(trusted("k2")), lambda: store.trusted_keys.delete("public", "k1")):
        fail_next(store, 1)
        with pytest.raises(StoreError, match="on purpose"):
            await write()
    with pytest.raises(ValueError, match="without a zone"):
        await store.trusted_keys.add(replace(trusted("k2"), at=NOON.replace(tzinfo=None)))
    assert await store.trusted_keys.for_tenant("public") == [trusted()]
