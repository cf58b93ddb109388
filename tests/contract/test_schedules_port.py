"""How far schedules were looked at, and which workflows are paused."""

import pytest
from msgspec.structs import replace

from tests.contract.run_samples import after
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.errors import StoreError
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import Cursor

CURSOR = Cursor(tenant="public", workflow="flow", key="daily", rule="0 5 * * *", last=NOON, dropped=2)


async def stored(store: Store, key: str = "daily") -> Cursor | None:
    """Return how far the schedule of these tests was looked at."""
    return await store.schedules.cursor("public", "flow", key)


async def test_a_cursor_moves_on(store: Store) -> None:
    assert await stored(store) is None
    for cursor in (CURSOR, replace(CURSOR, last=after(60), dropped=5)):
        await store.schedules.move(cursor)
        assert await stored(store) == cursor


async def test_a_cursor_of_the_same_rule_never_goes_back(store: Store) -> None:
    """W-13: however late somebody says so."""
    await store.schedules.move(CURSOR)
    await store.schedules.move(replace(CURSOR, last=after(-60)))
    assert await stored(store) == CURSOR


async def test_another_rule_begins_where_it_says(store: Store) -> None:
    await store.schedules.move(CURSOR)
    other = replace(CURSOR, rule="0 6 * * *", last=after(-60))
    await store.schedules.move(other)
    assert await stored(store) == other


async def test_schedules_do_not_know_of_one_another(store: Store) -> None:
    cursors = [replace(CURSOR, tenant=name, workflow=name, key=name, rule=name) for name in ODD_NAMES]
    cursors += [replace(CURSOR, **{field: "x"}) for field in ("tenant", "workflow", "key")]
    for cursor in cursors:
        await store.schedules.move(cursor)
    for one in cursors:
        assert await store.schedules.cursor(one.tenant, one.workflow, one.key) == one


async def test_a_cursor_of_another_zone_is_the_same_instant(store: Store) -> None:
    await store.schedules.move(replace(CURSOR, last=NOON_ELSEWHERE))
    assert await stored(store) == CURSOR


async def test_a_failed_move_changes_nothing(store: Store) -> None:
    await store.schedules.move(CURSOR)
    store.fail_next(1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.schedules.move(replace(CURSOR, last=after(60)))
    assert await stored(store) == CURSOR


async def test_a_workflow_is_paused_until_it_is_resumed(store: Store) -> None:
    pairs = {(tenant, workflow) for tenant in ("a", "b") for workflow in ODD_NAMES}
    for tenant, workflow in pairs:
        for _ in range(2):
            await store.schedules.pause(tenant, workflow, paused=True)
    assert await store.schedules.paused() == pairs
    for _ in range(2):
        await store.schedules.pause("a", "Z", paused=False)
    assert await store.schedules.paused() == pairs - {("a", "Z")}


async def test_pauses_of_workflows_and_of_reactors_are_two_things(store: Store) -> None:
    await store.schedules.pause("public", "x", paused=True)
    assert not await store.pauses.is_paused("public", "x")
    await store.pauses.set("public", "y", paused=True)
    assert await store.schedules.paused() == {("public", "x")}
