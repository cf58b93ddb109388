"""Recoveries: what the supervisor did, once each, the newest last."""

from datetime import UTC, timedelta

import pytest

from tests.contract.samples import NOON, NOON_ELSEWHERE, NOON_NOWHERE, ODD_NAMES, recovery
from tidemill.storage.store import Store


async def test_the_newest_recoveries_come_oldest_first(store: Store) -> None:
    """G-20: every recovery is an event in the store."""
    await store.recoveries.add([recovery(f"{number:02}") for number in (3, 1, 4, 2)])
    assert [found.id for found in await store.recoveries.list_newest("public", 3)] == ["02", "03", "04"]
    assert [found.id for found in await store.recoveries.list_newest("public", 100)] == ["01", "02", "03", "04"]
    assert await store.recoveries.list_newest("public", 0) == []


async def test_the_same_id_again_changes_nothing(store: Store) -> None:
    await store.recoveries.add([recovery("01", reason="first")])
    await store.recoveries.add([recovery("01", reason="second"), recovery("02")])
    assert await store.recoveries.list_newest("public", 10) == [recovery("01", reason="first"), recovery("02")]


async def test_tenants_see_their_own(store: Store) -> None:
    """G-30."""
    await store.recoveries.add([recovery("01", tenant="a"), recovery("02", tenant="b")])
    assert await store.recoveries.list_newest("a", 10) == [recovery("01", tenant="a")]
    assert await store.recoveries.list_newest("c", 10) == []


async def test_an_audit_reads_one_action_of_all_tenants(store: Store) -> None:
    """G-20: oldest first."""
    restored = [recovery("01", tenant="b", action="restored"), recovery("03", tenant="a", action="restored")]
    await store.recoveries.add([*reversed(restored), recovery("02")])
    assert await store.recoveries.list_by_action("restored") == restored
    assert await store.recoveries.list_by_action("unknown") == []


async def test_a_recovery_keeps_its_time(store: Store) -> None:
    await store.recoveries.add([recovery("01", at=NOON_ELSEWHERE)])
    (found,) = await store.recoveries.list_newest("public", 1)
    assert (found, found.at.tzinfo) == (recovery("01", at=NOON), UTC)


async def test_what_is_older_than_a_moment_is_forgotten(store: Store) -> None:
    old, new = recovery("01", at=NOON - timedelta(microseconds=1)), recovery("02", at=NOON)
    await store.recoveries.add([old, new, recovery("03", tenant="other", at=old.at)])
    await store.recoveries.delete_before(NOON_ELSEWHERE)
    assert await store.recoveries.list_newest("public", 10) == [new]
    assert await store.recoveries.list_newest("other", 10) == []


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    """Nothing is stored or forgotten: each database would read it as another time."""
    with pytest.raises(ValueError, match="without a zone"):
        await store.recoveries.delete_before(NOON_NOWHERE)
    old = recovery("01", at=NOON - timedelta(days=2))
    await store.recoveries.add([old])
    writes = [
        lambda: store.recoveries.add([recovery("02"), recovery("03", at=NOON_NOWHERE)]),
        lambda: store.recoveries.delete_before(NOON_NOWHERE),
    ]
    for write in writes:
        with pytest.raises(ValueError, match="without a zone"):
            await write()
    assert await store.recoveries.list_newest("public", 10) == [old]


@pytest.mark.parametrize("text", ODD_NAMES)
async def test_any_text_is_kept(store: Store, text: str) -> None:
    odd = recovery(text, tenant=text, reason=text)
    await store.recoveries.add([odd])
    assert await store.recoveries.list_newest(text, 1) == [odd]
