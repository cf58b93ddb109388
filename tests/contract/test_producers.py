"""Producers: the newest push of each is stored together with its events, or not at all."""

from datetime import UTC, timedelta

import pytest

from tests.contract.samples import NOON, NOON_ELSEWHERE, NOON_NOWHERE, ODD_NAMES, block, journal, key, outcomes, push
from tidemill.kernel.errors import FencedError, StoreError
from tidemill.storage.graph_ports import PartFence
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_an_unknown_producer_has_no_push(store: Store) -> None:
    """G-25."""
    assert await store.producers.newest_push(journal(), "c") is None


async def test_the_newest_push_of_a_producer_replaces_the_one_before(store: Store) -> None:
    """G-24."""
    await store.checkpoints.append([block(1), block(2)], pushes=[push(1)])
    await store.checkpoints.append([block(3)], pushes=[push(2**62, answer=b"\x00\xff", at=NOON_ELSEWHERE)])
    found = await store.producers.newest_push(journal(), "c")
    assert found == push(2**62, answer=b"\x00\xff", at=NOON)
    assert found.at.tzinfo is UTC
    assert [one.position for one in await store.checkpoints.read_all_blocks()] == [1, 2, 3]


async def test_a_push_without_events_is_stored_too(store: Store) -> None:
    """Its events may all have been suppressed."""
    await store.checkpoints.append([], pushes=[push(7)])
    assert await store.producers.newest_push(journal(), "c") == push(7)


async def test_each_client_at_each_accumulator_of_each_tenant_has_its_own(store: Store) -> None:
    """G-30: a client's name says nothing in another tenant."""
    places = [journal(), journal("b"), journal(tenant="other")]
    pushes = [push(number, of=of) for number, of in enumerate(places)]
    pushes += [push(number, client=client) for number, client in enumerate(ODD_NAMES, 10)]
    await store.checkpoints.append([], pushes=pushes)
    for one in pushes:
        assert await store.producers.newest_push(one.key, one.client) == one


async def test_a_push_is_refused_together_with_its_events(store: Store) -> None:
    """G-24: a retry finds nothing of it, and applies all of it."""
    await store.checkpoints.append([block(5)], pushes=[push(1)])
    with pytest.raises(StoreError):
        await store.checkpoints.append([block(6), block(5)], pushes=[push(2)])
    fail_next(store, 1)
    assert await outcomes(store.checkpoints.append([block(7)], pushes=[push(3)])) == ["refused"]
    assert await store.producers.newest_push(journal(), "c") == push(1)
    assert await store.checkpoints.read_all_blocks() == [block(5)]


async def test_a_former_owner_stores_no_push(store: Store) -> None:
    """G-31: neither with events nor without."""
    owned = key("a", kind="accumulator")
    await store.part_owners.acquire([owned], "first")
    (former,) = await store.part_owners.acquire([owned], "first")  # type: ignore[misc]
    await store.part_owners.release([former])
    await store.part_owners.acquire([owned], "second")
    for entries in ([], [block(1)]):
        with pytest.raises(FencedError):
            await store.checkpoints.append(entries, [PartFence(owned, former.epoch)], [push(1)])
    assert await store.producers.newest_push(journal(), "c") is None


async def test_old_pushes_are_deleted(store: Store) -> None:
    hour = timedelta(hours=1)
    pushes = [push(1, client="old", at=NOON - hour), push(2, client="now"), push(3, client="late", at=NOON + hour)]
    pushes += [push(4, client="kept", at=NOON - hour)]
    await store.checkpoints.append([], pushes=pushes)
    await store.producers.delete_before(NOON, kept="kept")
    found = [await store.producers.newest_push(journal(), one.client) for one in pushes]
    assert found == [None, *pushes[1:]]


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        await store.checkpoints.append([block(1)], pushes=[push(1, at=NOON_NOWHERE)])
    with pytest.raises(ValueError, match="without a zone"):
        await store.producers.delete_before(NOON_NOWHERE, kept="kept")
    assert await store.checkpoints.read_all_blocks() == []
