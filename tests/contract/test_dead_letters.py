"""Dead letters: kept until they are removed, oldest first."""

from datetime import UTC

import pytest

from tests.contract.samples import NOON, NOON_ELSEWHERE, NOON_NOWHERE, ODD_NAMES, letter
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_dead_letters_come_back_oldest_first(store: Store) -> None:
    """G-7: an id sorts by age."""
    await store.dead_letters.upsert([letter("03"), letter("01")])
    await store.dead_letters.upsert([letter("02")])
    assert await store.dead_letters.for_source("public", "reactor", "r") == [letter("01"), letter("02"), letter("03")]


async def test_each_source_has_its_own_dead_letters(store: Store) -> None:
    """G-30: owner, source and tenant all count."""
    mine = letter("01")
    others = [letter("02", tenant="other"), letter("03", owner="accumulator"), letter("04", source="s")]
    await store.dead_letters.upsert([mine, *others])
    assert await store.dead_letters.for_source("public", "reactor", "r") == [mine]
    assert await store.dead_letters.for_source("public", "accumulator", "r") == [others[1]]
    assert await store.dead_letters.for_source("unknown", "reactor", "r") == []
    assert await store.dead_letters.list_all() == [mine, *others]


async def test_a_dead_letter_replaces_the_one_with_its_id(store: Store) -> None:
    """G-15: a replay that failed counts the attempt in the same dead letter."""
    await store.dead_letters.upsert([letter("01"), letter("02")])
    changed = letter("01", source="s", payload=b"second attempt")
    await store.dead_letters.upsert([changed])
    await store.dead_letters.upsert([changed])
    assert await store.dead_letters.list_all() == [changed, letter("02")]


async def test_a_dead_letter_is_deleted_and_an_unknown_id_is_ignored(store: Store) -> None:
    await store.dead_letters.upsert([letter("01"), letter("02"), letter("03")])
    await store.dead_letters.delete(["01", "nothing", "03", "01"])
    await store.dead_letters.delete([])
    assert await store.dead_letters.list_all() == [letter("02")]


async def test_a_dead_letter_keeps_its_time_and_its_bytes(store: Store) -> None:
    await store.dead_letters.upsert(
        [letter("01", at=NOON_ELSEWHERE, payload=b""), letter("02", payload=b"\x00" * 1_000_000)]
    )
    first, second = await store.dead_letters.list_all()
    assert (first.at, first.at.tzinfo, first.payload) == (NOON, UTC, b"")
    assert second.payload == b"\x00" * 1_000_000


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    """Nothing of the call is stored: each database would read it as another time."""
    with pytest.raises(ValueError, match="without a zone"):
        await store.dead_letters.upsert([letter("01"), letter("02", at=NOON_NOWHERE)])
    assert await store.dead_letters.list_all() == []


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_a_name(store: Store, name: str) -> None:
    odd = letter(name, tenant=name, source=name)
    await store.dead_letters.upsert([odd])
    assert await store.dead_letters.for_source(name, "reactor", name) == [odd]
    await store.dead_letters.delete([name])
    assert await store.dead_letters.list_all() == []


async def test_a_failed_write_leaves_the_dead_letters_as_they_were(store: Store) -> None:
    await store.dead_letters.upsert([letter("01")])
    fail_next(store, 2)
    for call in (store.dead_letters.upsert([letter("02")]), store.dead_letters.delete(["01"])):
        with pytest.raises(StoreError):
            await call
    assert await store.dead_letters.list_all() == [letter("01")]
