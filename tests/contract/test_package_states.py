"""What each node has loaded of packages: enough to take it away without the package."""

import asyncio
import random

import pytest

from tests.contract.conftest import ContractDatabase
from tests.contract.package_samples import loaded
from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_a_loaded_package_replaces_its_row(store: Store) -> None:
    """P-3: one row for each tenant, name and owner, from the first side effect to the last."""
    assert await store.package_states.list_all() == []
    for row in (
        loaded(phase="loading", state=b""),
        loaded(),
        loaded(phase="unloading", version="1.1.0", digest="other", state=b"less", at=after(5)),
    ):
        await store.package_states.upsert([row])
        assert await store.package_states.list_all() == [row]


async def test_nodes_and_tenants_are_independent(store: Store) -> None:
    """P-11."""
    rows = [loaded(), loaded(tenant="other"), loaded("other"), loaded(owner="node-2")]
    await store.package_states.upsert(rows)
    await store.package_states.upsert([loaded(phase="unloading")])
    expected = [loaded(tenant="other"), loaded(phase="unloading"), loaded(owner="node-2"), loaded("other")]
    assert await store.package_states.list_all() == expected


async def test_rows_are_listed_by_tenant_and_name_oldest_first(store: Store) -> None:
    rows = [
        loaded(name, tenant=tenant, owner=f"node-{number}", at=after(-number))
        for tenant in ("b", "Z")
        for name in ODD_NAMES
        for number in range(2)
    ]
    await store.package_states.upsert(rows)
    expected = sorted(rows, key=lambda row: (row.tenant, row.name, row.at))
    assert await store.package_states.list_all() == expected


async def test_the_last_of_several_with_one_key_counts(store: Store) -> None:
    await store.package_states.upsert([loaded(phase="loading"), loaded(state=b"last")])
    assert await store.package_states.list_all() == [loaded(state=b"last")]


async def test_rows_are_deleted(store: Store) -> None:
    """P-2: nothing of a package remains; an unknown row is ignored."""
    rows = [loaded(), loaded(owner="node-2"), loaded(tenant="other")]
    await store.package_states.upsert(rows)
    await store.package_states.delete([("public", "market", "node-1"), ("public", "never", "node-1")])
    await store.package_states.delete([("public", "market", "node-1")])
    assert await store.package_states.list_all() == [loaded(tenant="other"), loaded(owner="node-2")]
    await store.package_states.delete([(row.tenant, row.name, row.owner) for row in rows])
    assert await store.package_states.list_all() == []


async def test_nothing_to_write_is_no_error(store: Store) -> None:
    await store.package_states.upsert([])
    await store.package_states.delete([])
    assert await store.package_states.list_all() == []


async def test_a_state_comes_back_byte_by_byte(store: Store) -> None:
    state = random.Random(1).randbytes(2**20)
    await store.package_states.upsert([loaded(state=state, at=NOON_ELSEWHERE)])
    assert await store.package_states.list_all() == [loaded(state=state, at=NOON)]


async def test_a_successor_finds_the_rows_that_a_node_left_behind(database: ContractDatabase) -> None:
    """P-3: a crash in mid-load is unwound at the next start."""
    before, after_ = database.store(), database.store()
    await before.open()
    await before.package_states.upsert([loaded(phase="loading")])
    await before.close()
    await after_.open()
    assert await after_.package_states.list_all() == [loaded(phase="loading")]
    await after_.package_states.delete([("public", "market", "node-1")])
    await after_.close()


async def test_nodes_write_at_the_same_time(database: ContractDatabase) -> None:
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    rows = [[loaded(f"p{name}", owner=f"node-{node}") for name in range(10)] for node in range(3)]
    await asyncio.gather(*(stores[node].package_states.upsert(rows[node]) for node in range(3)))
    expected = sorted((row for some in rows for row in some), key=lambda row: (row.name, row.owner))
    for store in stores:
        assert await store.package_states.list_all() == expected
        await store.close()


async def test_a_failed_write_changes_nothing(store: Store) -> None:
    """All of the rows, or none."""
    await store.package_states.upsert([loaded()])
    for write in (
        lambda: store.package_states.upsert([loaded(phase="unloading"), loaded("second")]),
        lambda: store.package_states.delete([("public", "market", "node-1")]),
    ):
        fail_next(store, 1)
        with pytest.raises(StoreError, match="on purpose"):
            await write()
    with pytest.raises(ValueError, match="without a zone"):
        await store.package_states.upsert([loaded("second"), loaded("third", at=NOON.replace(tzinfo=None))])
    assert await store.package_states.list_all() == [loaded()]
