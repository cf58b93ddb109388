"""Looking at a store: everything can be read as of one moment, and nothing can be changed."""

import pytest

from tests.contract.conftest import ContractDatabase
from tests.contract.samples import block, letter, part
from tidemill.kernel.errors import StoreError


async def test_a_read_only_store_reads_and_takes_no_writes(database: ContractDatabase) -> None:
    store, onlooker = database.store(), database.store()
    await store.open()
    await store.checkpoints.save([part()])
    await store.dead_letters.upsert([letter("01")])
    await onlooker.open_read_only()
    assert await onlooker.checkpoints.read_all_parts() == [part()]
    assert await onlooker.dead_letters.list_all() == [letter("01")]
    assert await onlooker.check_integrity() == []
    with pytest.raises(StoreError, match="not open"):
        await onlooker.dead_letters.delete(["01"])
    await onlooker.close()
    await store.close()


async def test_a_read_only_store_reads_one_moment(database: ContractDatabase) -> None:
    """Rows of different tables belong together."""
    store, onlooker = database.store(), database.store()
    await store.open()
    await onlooker.open_read_only()
    assert await onlooker.checkpoints.read_all_parts() == []
    await store.checkpoints.save([part()])
    await store.checkpoints.append([block(1)])
    assert await onlooker.checkpoints.read_all_parts() == []
    assert await onlooker.checkpoints.read_all_blocks() == []
    await onlooker.close()
    await onlooker.open_read_only()
    assert await onlooker.checkpoints.read_all_blocks() == [block(1)]
    await onlooker.close()
    await store.close()


async def test_a_read_only_store_creates_no_schema(database: ContractDatabase) -> None:
    onlooker = database.store()
    with pytest.raises(StoreError, match=r"version 0, and this Tidemill needs version \d+; run `tidemill db upgrade`"):
        await onlooker.open_read_only()
    assert (await database.store().read_schema_state()).found == 0


async def test_a_read_only_store_does_not_read_a_newer_schema(database: ContractDatabase) -> None:
    store = database.store()
    await store.open()
    await store.close()
    await database.pretend_version(99)
    with pytest.raises(StoreError, match="version 99"):
        await database.store().open_read_only()
