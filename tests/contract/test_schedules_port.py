"""Cursors of schedules, whether they are armed, and paused workflows."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.run_samples import after, creation, fire_row, make, run_row
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleCursor, ScheduleKey
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.change import Refused

CURSOR = ScheduleCursor(tenant="public", workflow="flow", key="daily", rule="0 5 * * *", last=NOON, dropped=2)


async def stored(store: Store, key: str = "daily") -> ScheduleCursor | None:
    """Return a cursor of the schedule of these tests."""
    return await store.schedules.get_cursor("public", "flow", key)


async def test_a_cursor_advances(store: Store) -> None:
    assert await stored(store) is None
    for cursor in (CURSOR, replace(CURSOR, last=after(60), dropped=5)):
        await store.schedules.advance_cursor(cursor)
        assert await stored(store) == cursor


async def test_a_cursor_of_the_same_rule_never_goes_back(store: Store) -> None:
    """W-13: however late the write comes."""
    await store.schedules.advance_cursor(CURSOR)
    await store.schedules.advance_cursor(replace(CURSOR, last=after(-60)))
    assert await stored(store) == CURSOR


async def test_another_rule_begins_where_it_says(store: Store) -> None:
    await store.schedules.advance_cursor(CURSOR)
    other = replace(CURSOR, rule="0 6 * * *", last=after(-60))
    await store.schedules.advance_cursor(other)
    assert await stored(store) == other


async def test_schedules_are_independent(store: Store) -> None:
    cursors = [replace(CURSOR, tenant=name, workflow=name, key=name, rule=name) for name in ODD_NAMES]
    cursors += [replace(CURSOR, **{field: "x"}) for field in ("tenant", "workflow", "key")]
    for cursor in cursors:
        await store.schedules.advance_cursor(cursor)
    for one in cursors:
        assert await store.schedules.get_cursor(one.tenant, one.workflow, one.key) == one


async def test_a_cursor_of_another_zone_is_the_same_instant(store: Store) -> None:
    await store.schedules.advance_cursor(replace(CURSOR, last=NOON_ELSEWHERE))
    assert await stored(store) == CURSOR


async def test_a_failed_advance_changes_nothing(store: Store) -> None:
    await store.schedules.advance_cursor(CURSOR)
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.schedules.advance_cursor(replace(CURSOR, last=after(60)))
    assert await stored(store) == CURSOR


# -- schedules of packages


def disarmed(key: str = "daily", **values: object) -> ScheduleCursor:
    """Return a cursor that waits for the rest of its package."""
    return replace(CURSOR, key=key, armed=False, **values)


async def test_a_schedule_is_inserted_as_it_is_given(store: Store) -> None:
    """P-3: disarmed in step 1."""
    assert await store.schedules.insert_missing([disarmed()]) == [ScheduleKey("public", "flow", "daily")]
    assert await stored(store) == disarmed()


async def test_a_schedule_that_is_there_is_not_inserted(store: Store) -> None:
    """P-3: a reload keeps the row, its cursor, and that it is armed; only the new ones are returned."""
    await store.schedules.advance_cursor(CURSOR)
    given = [disarmed("b"), disarmed(rule="other", last=after(60), dropped=9), disarmed("a")]
    assert await store.schedules.insert_missing(given) == [("public", "flow", "a"), ("public", "flow", "b")]
    assert await stored(store) == CURSOR
    assert await store.schedules.insert_missing(given) == []


async def test_the_first_of_several_with_one_key_is_inserted(store: Store) -> None:
    assert await store.schedules.insert_missing([disarmed(rule="first"), disarmed(rule="second")]) == [CURSOR.schedule]
    assert await stored(store) == disarmed(rule="first")


async def test_a_schedule_is_armed(store: Store) -> None:
    """P-3: the last act of step 6; twice is as good as once."""
    others = [disarmed("other"), disarmed(workflow="other"), disarmed(tenant="other")]
    await store.schedules.insert_missing([disarmed(), *others])
    for _ in range(2):
        await store.schedules.arm([CURSOR.schedule, ScheduleKey("public", "never", "daily")])
        assert await stored(store) == CURSOR
    for one in others:
        assert await store.schedules.get_cursor(*one.schedule) == one
    assert await store.schedules.get_cursor("public", "never", "daily") is None


@pytest.mark.parametrize("is_armed", [False, True])
@pytest.mark.parametrize("says", [False, True])
async def test_a_move_neither_arms_nor_disarms(store: Store, is_armed: bool, says: bool) -> None:
    await store.schedules.insert_missing([replace(CURSOR, armed=is_armed)])
    await store.schedules.advance_cursor(replace(CURSOR, last=after(60), armed=says))
    assert await stored(store) == replace(CURSOR, last=after(60), armed=is_armed)
    await store.schedules.advance_cursor(replace(CURSOR, rule="other", armed=says))
    assert await stored(store) == replace(CURSOR, rule="other", armed=is_armed)


async def test_a_move_of_a_schedule_that_is_not_there_writes_it_as_it_is(store: Store) -> None:
    await store.schedules.advance_cursor(disarmed())
    assert await stored(store) == disarmed()


async def test_a_schedule_is_deleted_and_may_come_again(store: Store) -> None:
    """P-3: a schedule that is added again starts over; others are not touched."""
    others = [disarmed("other"), disarmed(workflow="other"), disarmed(tenant="other")]
    await store.schedules.insert_missing([CURSOR, *others])
    for _ in range(2):
        await store.schedules.delete([CURSOR.schedule, ScheduleKey("public", "never", "daily")])
        assert await stored(store) is None
    for one in others:
        assert await store.schedules.get_cursor(*one.schedule) == one
    later = disarmed(rule="other", last=after(-60), dropped=0)
    assert await store.schedules.insert_missing([later]) == [CURSOR.schedule]
    assert await stored(store) == later


async def test_fires_outlive_their_schedule(store: Store) -> None:
    """P-3: unloading deletes the row and not its fires, so that no slot has a second run."""
    await store.schedules.insert_missing([CURSOR])
    await make(store, creation(fire=fire_row(key="daily", slot=NOON)))
    await store.schedules.delete([CURSOR.schedule])
    assert await store.runs.read_fired_slots("public", "flow", "daily", NOON, NOON) == {NOON}
    again = creation(run_row("r2"), fire=fire_row(key="daily", slot=NOON, run="r2"))
    assert await store.runs.apply(again) == Refused("fired")


async def test_a_pause_outlives_its_schedules(store: Store) -> None:
    """P-3: it is the operator's."""
    await store.schedules.pause("public", "flow")
    await store.schedules.insert_missing([CURSOR])
    await store.schedules.delete([CURSOR.schedule])
    assert await store.schedules.list_paused_workflows() == {("public", "flow")}


async def test_nothing_to_insert_arm_or_delete_is_no_error(store: Store) -> None:
    assert await store.schedules.insert_missing([]) == []
    await store.schedules.arm([])
    await store.schedules.delete([])


async def test_odd_names_are_armed_and_deleted_like_others(store: Store) -> None:
    cursors = [disarmed(name, tenant=name, workflow=name) for name in ODD_NAMES]
    keys = sorted(one.schedule for one in cursors)
    assert await store.schedules.insert_missing(cursors) == keys
    await store.schedules.arm(keys)
    assert [await store.schedules.get_cursor(*one.schedule) for one in cursors] == [
        replace(one, armed=True) for one in cursors
    ]
    await store.schedules.delete(keys[1:])
    assert [key for key in keys if await store.schedules.get_cursor(*key) is not None] == keys[:1]


async def test_of_several_nodes_each_schedule_is_inserted_by_one(database: ContractDatabase) -> None:
    """All of them load the same package at the same time, and name its schedules in any order."""
    stores = [database.store() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    cursors = [disarmed(f"s{number}") for number in range(20)]
    given = [cursors, cursors[::-1], cursors[5:] + cursors[:5], cursors]
    inserted = await asyncio.gather(
        *(store.schedules.insert_missing(some) for store, some in zip(stores, given, strict=True))
    )
    assert sorted(key for some in inserted for key in some) == sorted(one.schedule for one in cursors)
    keys = [[one.schedule for one in some] for some in given]
    await asyncio.gather(*(store.schedules.arm(some) for store, some in zip(stores, keys, strict=True)))
    assert {await stores[0].schedules.get_cursor(*one.schedule) for one in cursors} == {
        replace(one, armed=True) for one in cursors
    }
    await asyncio.gather(*(store.schedules.delete(some) for store, some in zip(stores, keys, strict=True)))
    assert [await stores[0].schedules.get_cursor(*one.schedule) for one in cursors] == [None] * len(cursors)
    for store in stores:
        await store.close()


async def test_a_failed_insert_arm_or_delete_changes_nothing(store: Store) -> None:
    await store.schedules.insert_missing([disarmed()])
    writes = [
        lambda: store.schedules.insert_missing([disarmed("second")]),
        lambda: store.schedules.arm([CURSOR.schedule]),
        lambda: store.schedules.delete([CURSOR.schedule]),
    ]
    for write in writes:
        fail_next(store, 1)
        with pytest.raises(StoreError, match="on purpose"):
            await write()
    with pytest.raises(ValueError, match="without a zone"):
        await store.schedules.insert_missing([disarmed("second"), disarmed("third", last=NOON.replace(tzinfo=None))])
    assert await stored(store) == disarmed()
    assert await stored(store, "second") is None


# -- pauses


async def test_a_workflow_is_paused_until_it_is_resumed(store: Store) -> None:
    pairs = {(tenant, workflow) for tenant in ("a", "b") for workflow in ODD_NAMES}
    for tenant, workflow in pairs:
        for _ in range(2):
            await store.schedules.pause(tenant, workflow)
    assert await store.schedules.list_paused_workflows() == pairs
    for _ in range(2):
        await store.schedules.resume("a", "Z", NOON)
    assert await store.schedules.list_paused_workflows() == pairs - {("a", "Z")}


async def test_pauses_of_workflows_and_of_reactors_are_two_things(store: Store) -> None:
    await store.schedules.pause("public", "x")
    assert not await store.pauses.is_paused("public", "x")
    await store.pauses.set_paused("public", "y", paused=True)
    assert await store.schedules.list_paused_workflows() == {("public", "x")}


async def test_a_resumed_workflow_goes_on_from_then(store: Store) -> None:
    """cloacina.md 131: in one transaction the cursors of its schedules move to the resumption, and no others."""
    cursors = [CURSOR, disarmed("second"), replace(CURSOR, key="ahead", last=after(90))]
    others = [replace(CURSOR, workflow="other"), replace(CURSOR, tenant="other")]
    await store.schedules.insert_missing([*cursors, *others])
    await store.schedules.pause("public", "flow")
    await store.schedules.resume("public", "flow", after(60))
    assert await store.schedules.list_paused_workflows() == set()
    assert [await stored(store, one.key) for one in cursors] == [
        replace(CURSOR, last=after(60)),
        disarmed("second", last=after(60)),
        cursors[2],
    ]
    assert [await store.schedules.get_cursor(*one.schedule) for one in others] == others


async def test_what_was_not_paused_is_not_resumed(store: Store) -> None:
    """131: no slot is lost to it."""
    await store.schedules.advance_cursor(CURSOR)
    await store.schedules.resume("public", "flow", after(60))
    assert await stored(store) == CURSOR


async def test_a_failed_resume_changes_nothing(store: Store) -> None:
    await store.schedules.advance_cursor(CURSOR)
    await store.schedules.pause("public", "flow")
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.schedules.resume("public", "flow", after(60))
    with pytest.raises(ValueError, match="without a zone"):
        await store.schedules.resume("public", "flow", NOON.replace(tzinfo=None))
    assert (await stored(store), await store.schedules.list_paused_workflows()) == (CURSOR, {("public", "flow")})
    await store.schedules.resume("public", "flow", NOON_ELSEWHERE)
    assert (await stored(store), await store.schedules.list_paused_workflows()) == (CURSOR, set())
