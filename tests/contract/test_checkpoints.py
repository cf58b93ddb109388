"""Checkpoints: two generations of each part, journals, and nothing half written."""

from datetime import UTC, timedelta

import pytest

from tests.contract.samples import (
    HALF_PAST_TWO,
    NOON,
    NOON_ELSEWHERE,
    NOON_NOWHERE,
    ODD_NAMES,
    block,
    journal,
    key,
    outcomes,
    part,
)
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import HighWaterMarks, JournalTrim
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def test_an_empty_store_holds_nothing(store: Store) -> None:
    """G-25: starting fresh is no error."""
    assert await store.checkpoints.read_parts([key()]) == []
    assert await store.checkpoints.read_blocks([journal()]) == []
    assert await store.checkpoints.read_high_water_marks() == HighWaterMarks(0, 0)
    assert (await store.checkpoints.read_all_parts(), await store.checkpoints.read_all_blocks()) == ([], [])


async def test_a_part_comes_back_as_it_was_saved(store: Store) -> None:
    """G-23."""
    saved = part(7, moment=41)
    await store.checkpoints.save([saved])
    assert await store.checkpoints.read_parts([saved.key]) == [saved]


async def test_times_come_back_in_utc_with_their_microseconds(store: Store) -> None:
    await store.checkpoints.save([part(taken_at=NOON_ELSEWHERE)])
    (found,) = await store.checkpoints.read_parts([key()])
    assert (found.taken_at, found.taken_at.tzinfo) == (NOON, UTC)
    assert found.taken_at.isoformat() == "2026-03-29T12:00:00.123457+00:00"


async def test_the_hour_that_a_zone_has_twice_is_two_hours(store: Store) -> None:
    """Python calls the two times equal, and no store may confuse them."""
    first, second = HALF_PAST_TWO, HALF_PAST_TWO.replace(fold=1)
    await store.checkpoints.save([part(1, taken_at=first), part(2, taken_at=second)])
    later, earlier = await store.checkpoints.read_parts([key()])
    assert (earlier.taken_at, later.taken_at) == (first.astimezone(UTC), first.astimezone(UTC) + timedelta(hours=1))


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    """Nothing of the call is stored: each database would read it as another time."""
    await store.checkpoints.append([block(1)])
    with pytest.raises(ValueError, match="without a zone"):
        await store.checkpoints.save([part(), part(of=key("s"), taken_at=NOON_NOWHERE)], [JournalTrim(journal(), 1)])
    assert (await store.checkpoints.read_all_parts(), await store.checkpoints.read_all_blocks()) == ([], [block(1)])


async def test_two_generations_are_kept_newest_moment_first(store: Store) -> None:
    """G-23."""
    for generation in (1, 2, 3):
        await store.checkpoints.save([part(generation)])
    assert await store.checkpoints.read_parts([key()]) == [part(3), part(2)]


async def test_a_generation_saved_again_replaces_itself(store: Store) -> None:
    """G-23."""
    await store.checkpoints.save([part(1), part(2, payload=b"old")])
    await store.checkpoints.save([part(2, moment=9, payload=b"new")])
    assert await store.checkpoints.read_parts([key()]) == [part(2, moment=9, payload=b"new"), part(1)]


async def test_only_the_parts_asked_for_are_returned_and_each_once(store: Store) -> None:
    """G-30: the same name in another tenant, or of another kind, is another part."""
    wanted = [key("r"), key("r", kind="accumulator")]
    others = [key("s"), key("r", tenant="other"), key("s", tenant="other", kind="accumulator")]
    await store.checkpoints.save([part(1, of=one) for one in (*wanted, *others)])
    found = await store.checkpoints.read_parts([*wanted, *wanted, key("missing")])
    assert {one.key for one in found} == set(wanted)
    assert len(found) == 2
    assert await store.checkpoints.read_parts([]) == []


async def test_all_parts_come_by_key_and_newest_first(store: Store) -> None:
    keys = [key(name, tenant, kind) for tenant in ("a", "b") for kind in ("accumulator", "reactor") for name in "xy"]
    for generation in (1, 2):
        await store.checkpoints.save([part(generation, of=one) for one in reversed(keys)])
    expected = [part(generation, of=one) for one in keys for generation in (2, 1)]
    assert await store.checkpoints.read_all_parts() == expected


async def test_entries_of_several_journals_come_in_the_order_of_their_positions(store: Store) -> None:
    """G-24: order is kept over the accumulators of a reactor."""
    one, two = journal("one"), journal("two")
    await store.checkpoints.append([block(5, two), block(1, one), block(4, one)])
    await store.checkpoints.append([block(2, two), block(3, journal("three"))])
    found = await store.checkpoints.read_blocks([two, one, two])
    assert [(found.position, found.key) for found in found] == [(1, one), (2, two), (4, one), (5, two)]
    assert [found.position for found in await store.checkpoints.read_all_blocks()] == [1, 4, 3, 2, 5]


async def test_an_entry_comes_back_as_it_was_appended(store: Store) -> None:
    await store.checkpoints.append([block(2**62, payload=b"\x00\x01"), block(1, payload=b"")])
    assert await store.checkpoints.read_blocks([journal()]) == [
        block(1, payload=b""),
        block(2**62, payload=b"\x00\x01"),
    ]


async def test_a_checkpoint_deletes_only_the_entries_that_it_covers(store: Store) -> None:
    """G-24: the journal of the same name in another tenant stays, and so does what came after the checkpoint."""
    mine, neighbour, namesake = journal("a"), journal("b"), journal("a", tenant="other")
    for one in (mine, neighbour, namesake):
        await store.checkpoints.append([block(position, one) for position in (1, 2, 3)])
    await store.checkpoints.save([part()], [JournalTrim(mine, 2), JournalTrim(journal("unknown"), 99)])
    kept = [(found.key, found.position) for found in await store.checkpoints.read_all_blocks()]
    assert kept == [
        (namesake, 1),
        (namesake, 2),
        (namesake, 3),
        (mine, 3),
        (neighbour, 1),
        (neighbour, 2),
        (neighbour, 3),
    ]


async def test_several_journals_are_covered_by_one_checkpoint(store: Store) -> None:
    """G-23: one moment, one transaction."""
    one, two = journal("one"), journal("two")
    await store.checkpoints.append([block(1, one), block(2, two), block(3, one), block(4, two)])
    await store.checkpoints.save([part(of=key("one")), part(of=key("two"))], [JournalTrim(one, 3), JournalTrim(two, 2)])
    assert [found.position for found in await store.checkpoints.read_all_blocks()] == [4]


async def test_high_water_marks_cover_all_tenants(store: Store) -> None:
    await store.checkpoints.save([part(3, moment=70, of=key(tenant="a")), part(4, moment=8, of=key(tenant="b"))])
    await store.checkpoints.append([block(11, journal(tenant="a")), block(5, journal(tenant="b"))])
    assert await store.checkpoints.read_high_water_marks() == HighWaterMarks(moment=70, position=11)


async def test_a_failed_checkpoint_leaves_everything_as_it_was(store: Store) -> None:
    """G-23: neither its parts are there, nor is the journal shorter."""
    await store.checkpoints.save([part(1)])
    await store.checkpoints.append([block(1)])
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.checkpoints.save([part(2), part(2, of=key("s"))], [JournalTrim(journal(), 1)])
    assert await store.checkpoints.read_all_parts() == [part(1)]
    assert await store.checkpoints.read_all_blocks() == [block(1)]


async def test_a_position_that_is_taken_is_refused_with_the_whole_call(store: Store) -> None:
    """G-24: what was acknowledged is never written over."""
    await store.checkpoints.append([block(5, payload=b"first")])
    with pytest.raises(StoreError, match="already"):
        await store.checkpoints.append([block(4), block(5, payload=b"second"), block(6)])
    assert await store.checkpoints.read_blocks([journal()]) == [block(5, payload=b"first")]


async def test_a_refused_call_takes_no_neighbour_with_it(store: Store) -> None:
    """Writes of one turn share a transaction; only the caller of the faulty one gets the error."""
    await store.checkpoints.append([block(5)])
    calls = [
        store.checkpoints.append([block(6)]),
        store.checkpoints.append([block(7), block(5)]),
        store.checkpoints.save([part()], [JournalTrim(journal("b"), 1)]),
        store.checkpoints.append([block(8)]),
    ]
    assert await outcomes(*calls) == ["done", "refused", "done", "done"]
    assert [found.position for found in await store.checkpoints.read_blocks([journal()])] == [5, 6, 8]
    assert await store.checkpoints.read_all_parts() == [part()]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_a_name(store: Store, name: str) -> None:
    owner, diary = key(name, tenant=name), journal(name, tenant=name)
    await store.checkpoints.save([part(of=owner)])
    await store.checkpoints.append([block(1, diary), block(2, diary)])
    assert await store.checkpoints.read_parts([owner]) == [part(of=owner)]
    await store.checkpoints.save([], [JournalTrim(diary, 1)])
    assert await store.checkpoints.read_blocks([diary]) == [block(2, diary)]


async def test_names_sort_by_code_point_everywhere(store: Store) -> None:
    keys = [key(name) for name in ODD_NAMES]
    await store.checkpoints.save([part(of=one) for one in keys])
    assert [found.key for found in await store.checkpoints.read_all_parts()] == sorted(keys)


async def test_payloads_may_be_empty_or_large(store: Store) -> None:
    large = bytes(range(256)) * 4096
    await store.checkpoints.save([part(1, payload=b""), part(2, payload=large)])
    await store.checkpoints.append([block(1, payload=large)])
    assert [found.payload for found in await store.checkpoints.read_parts([key()])] == [large, b""]
    assert [found.payload for found in await store.checkpoints.read_blocks([journal()])] == [large]


async def test_nothing_to_write_is_no_error(store: Store) -> None:
    await store.checkpoints.save([])
    await store.checkpoints.append([])
    assert await store.checkpoints.read_high_water_marks() == HighWaterMarks(0, 0)
