"""The overview of runs: counts of active and ended runs, the oldest active ones, and the failed ones."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from tests.contract.run_samples import after, creation, fire_row, make, run_row, task_row
from tests.contract.samples import NOON
from tidemill.storage.run_lists import FiredSlot, RunQuery, ScheduleName
from tidemill.storage.run_overview import (
    EndedCount,
    FailedRuns,
    FirstFailure,
    OverviewQuery,
    RunOverview,
    hour_of,
    start_of,
)
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.workflows.change import Change
from tidemill.workflows.states import RunState, TaskState

Q, R, S, F, C = RunState.QUEUED, RunState.RUNNING, RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED
HOUR = hour_of(NOON)


async def read(store: Store, hours: range = range(HOUR, HOUR + 1), limit: int = 2) -> RunOverview:
    """Return the overview of tenant public, with at most `limit` runs of each kind."""
    return await store.runs.read_overview(OverviewQuery("public", hours, limit))


def counted(overview: RunOverview) -> dict[RunState, int]:
    """Return the number of active runs by state, without those that no run has."""
    return {state: number for state, number in overview.active.items() if number}


async def test_an_empty_store_has_an_empty_overview(store: Store) -> None:
    overview = await read(store)
    assert (counted(overview), overview.oldest, overview.ended, overview.failed) == ({}, [], [], [])


async def test_active_runs_are_counted_by_state_and_the_oldest_of_each_are_listed(store: Store) -> None:
    """S-8: what is running; runs of other tenants do not count."""
    for number, state in enumerate([R, Q, R, R, Q, S]):
        await make(store, creation(run_row(f"r{number}", state=state, created_at=after(10 - number))))
    await make(store, creation(run_row("x", tenant="other", created_at=after(-9))))
    overview = await read(store)
    assert counted(overview) == {R: 3, Q: 2}
    assert [row.id for row in overview.oldest] == ["r4", "r3", "r2", "r1"]


async def test_ended_runs_are_counted_by_hour_and_state(store: Store) -> None:
    """S-8: each hour begins on the hour, and does not contain its end; what was ended before is left out."""
    start = start_of(HOUR)
    instant = timedelta(microseconds=1)
    ends = {
        "a": (S, start - instant),
        "b": (S, start),
        "c": (F, start),
        "d": (S, start + timedelta(hours=1) - instant),
        "e": (C, start + timedelta(hours=1)),
        "f": (S, start + timedelta(hours=2)),
    }
    for run, (state, at) in ends.items():
        await make(store, creation(run_row(run, state=state, ended_at=at)))
        await make(store, creation(run_row(f"x{run}", tenant="other", state=state, ended_at=at)))
    await make(store, creation(run_row("cleared", state=Q, ended_at=start)))
    overview = await read(store, hours=range(HOUR, HOUR + 2))
    expected = [EndedCount(HOUR, F, 1), EndedCount(HOUR, S, 2), EndedCount(HOUR + 1, C, 1)]
    assert sorted(overview.ended) == expected


async def add_run(store: Store, id: str, state: RunState, number: int, **fields: Any) -> None:
    """Create a run that was created, and ended, some minutes after noon."""
    at = after(number * 60)
    await make(store, creation(run_row(id, state=state, created_at=at, ended_at=at, **fields)))


async def unresolved(store: Store) -> list[str]:
    """Return the failed runs that need a person: as the list has them, which the overview counts."""
    page = await store.runs.list_page(RunQuery(tenant="public", is_unresolved=True))
    overview = await read(store)
    assert sum(one.number for one in overview.failed) == page.total == len(page.runs)
    return [row.id for row in page.runs]


async def test_failed_runs_need_a_person_by_workflow_with_the_newest(store: Store) -> None:
    """S-8: what is failing; runs of other tenants do not count, and later successes about nothing resolve nothing."""
    for number, (workflow, state) in enumerate([("w1", F), ("w1", F), ("w1", S), ("w1", R), ("w2", F), ("w3", C)]):
        await add_run(store, f"r{number}", state, number, workflow=workflow, reason=f"reason {number}")
    await add_run(store, "x", F, 9, tenant="other", workflow="w1")
    assert (await read(store)).failed == [
        FailedRuns("w1", "r1", after(60), "reason 1", 2),
        FailedRuns("w2", "r4", after(240), "reason 4", 1),
    ]
    assert await unresolved(store) == ["r4", "r1", "r0"]


async def test_a_dismissed_failure_needs_nobody_until_the_run_fails_once_more(store: Store) -> None:
    """S-8: a dismissal counts for the end that it saw."""
    for run in ("a", "b"):
        await add_run(store, run, F, 1)
    assert await store.runs.dismiss("public", ["a", "missing"], after(90)) == 1
    assert await store.runs.dismiss("public", ["a"], after(90)) == 0
    assert await store.runs.dismiss("other", ["b"], after(90)) == 0
    assert await unresolved(store) == ["b"]
    (row,) = [record.run for record in await store.runs.load(["a"])]
    assert row.dismissed_at == after(90)
    again = replace(row, ended_at=after(120))
    await make(store, Change(run="a", expected_run=row, updated_run=again))
    assert await unresolved(store) == ["b", "a"]


async def test_the_success_of_a_later_slot_resolves_a_schedule_and_of_a_backfill_only_its_own_slot(
    store: Store,
) -> None:
    """S-8: last night's failure is made good by tonight's run; each slot of a backfill stands for itself."""
    nightly: dict[str, Any] = {"origin": "schedule", "about": "nightly"}
    await add_run(store, "slot 1", F, 1, slot=after(1), **nightly)
    await add_run(store, "slot 3", F, 3, slot=after(3), **nightly)
    await add_run(store, "b1", F, 4, slot=after(0), origin="backfill", about="nightly")
    await add_run(store, "b2", S, 5, slot=after(2), origin="backfill", about="nightly")
    assert await unresolved(store) == ["b1", "slot 3"]
    await add_run(store, "slot 4", S, 6, slot=after(4), **nightly)
    assert await unresolved(store) == ["b1"]


async def test_a_success_about_the_same_resolves_and_one_about_something_else_does_not(store: Store) -> None:
    """S-8: runs that decisions start, one for each customer."""
    await add_run(store, "ann 1", F, 1, about="ann")
    await add_run(store, "bob 1", F, 2, about="bob")
    await add_run(store, "ann 2", S, 3, about="ann")
    await add_run(store, "bob of another", S, 4, about="bob", workflow="other")
    assert await unresolved(store) == ["bob 1"]
    await add_run(store, "ann 3", F, 5, about="ann")
    assert await unresolved(store) == ["ann 3", "bob 1"]


async def test_tasks_that_wait_are_listed_by_how_long_they_have(store: Store) -> None:
    """S-8: scheduled ones, and deferred ones whose time has come; those of other tenants are left out."""
    tasks = [
        task_row("old", TaskState.SCHEDULED, since=after(1), pool="p"),
        task_row("new", TaskState.SCHEDULED, since=after(5)),
        task_row("polled", TaskState.DEFERRED, since=after(0), wake_at=after(1)),
        task_row("asleep", TaskState.DEFERRED, since=after(0), wake_at=after(99)),
        task_row("started", TaskState.RUNNING, since=after(1)),
    ]
    await make(store, creation(run_row("r1", state=R), *tasks))
    await make(store, creation(run_row("x", tenant="other", state=R), *tasks))
    found = await store.runs.list_waiting("public", after(2), after(2), 10)
    assert sorted((one.run, one.task, one.state, one.pool, one.since) for one in found) == [
        ("r1", "old", TaskState.SCHEDULED, "p", after(1)),
        ("r1", "polled", TaskState.DEFERRED, None, after(0)),
    ]
    assert len(await store.runs.list_waiting("public", after(9), after(2), 1)) == 2


async def test_the_task_that_failed_first_is_found(store: Store) -> None:
    """S-8: why a workflow fails."""
    tasks = [
        task_row("a", TaskState.SUCCESS, ended_at=after(1)),
        task_row("b", TaskState.FAILED, ended_at=after(3), reason="later"),
        task_row("c", TaskState.FAILED, ended_at=after(2), reason="first"),
        task_row("d", TaskState.UPSTREAM_FAILED, ended_at=after(1)),
    ]
    await make(store, creation(run_row("r1"), *tasks))
    await make(store, creation(run_row("r2"), tasks[0]))
    assert await store.runs.read_first_failures(["r1", "r2", "unknown"]) == {"r1": FirstFailure("c", "first")}
    assert await store.runs.read_first_failures([]) == {}


async def test_of_tasks_that_failed_at_the_same_time_the_first_by_name_and_element_is_found(store: Store) -> None:
    """S-8: every store gives the same reason, and each time."""
    tasks = [
        task_row("c", TaskState.FAILED, ended_at=after(1), reason="other task"),
        task_row("b", TaskState.FAILED, index=1, ended_at=after(1), reason="later element"),
        task_row("b", TaskState.FAILED, index=0, ended_at=after(1), reason="first"),
        task_row("a", TaskState.FAILED, ended_at=after(2), reason="later"),
    ]
    await make(store, creation(run_row("r1"), *tasks))
    await make(store, creation(run_row("r2"), *reversed(tasks)))
    first = FirstFailure("b", "first")
    assert await store.runs.read_first_failures(["r1", "r2"]) == {"r1": first, "r2": first}


async def test_the_cursors_of_a_tenant_are_listed_by_workflow_and_key(store: Store) -> None:
    def cursor(tenant: str, workflow: str, key: str) -> ScheduleCursor:
        return ScheduleCursor(tenant=tenant, workflow=workflow, key=key, rule="1h", last=NOON, dropped=2, armed=False)

    mine = [cursor("public", "a", "x"), cursor("public", "a", "y"), cursor("public", "b", "x")]
    await store.schedules.insert_missing([mine[2], cursor("other", "a", "x"), mine[1], mine[0]])
    assert await store.schedules.list_cursors("public") == mine
    assert await store.schedules.list_cursors("unknown") == []


async def test_fired_slots_are_listed_with_their_runs(store: Store) -> None:
    """S-8: schedules as a calendar; a fire outlives its run."""
    for number in range(3):
        run = run_row(f"r{number}", state=S, ended_at=after(number))
        await make(store, creation(run, fire=fire_row(run.id, slot=after(number))))
    assert await store.runs.prune("public", after(1), 10) == 1
    fire = fire_row()
    name = ScheduleName(fire.workflow, fire.key)
    found = await store.runs.list_fired_slots("public", [name], after(0), after(1), 10)
    assert found == {name: [FiredSlot(after(0), "r0", None), FiredSlot(after(1), "r1", S)]}
    assert len((await store.runs.list_fired_slots("public", [name], after(0), after(9), 2))[name]) == 2
    assert await store.runs.list_fired_slots("other", [name], after(0), after(9), 2) == {name: []}


async def test_fired_slots_of_several_schedules_are_listed_together(store: Store) -> None:
    """S-9: one query for a calendar, however many schedules there are; the limit is that of each."""
    for number in range(3):
        for key in ("x", "y", "z"):
            run = run_row(f"{key}{number}", state=S, ended_at=after(number))
            await make(store, creation(run, fire=fire_row(run.id, key=key, slot=after(2 - number))))
    fire = fire_row()
    x, y = ScheduleName(fire.workflow, "x"), ScheduleName(fire.workflow, "y")
    others = [ScheduleName("y", "x"), ScheduleName(fire.workflow, "unknown")]
    found = await store.runs.list_fired_slots("public", [y, *others, x], after(0), after(9), 2)
    assert {name: [one.run for one in slots] for name, slots in found.items()} == {
        y: ["y2", "y1"],
        x: ["x2", "x1"],
        others[0]: [],
        others[1]: [],
    }
    assert await store.runs.list_fired_slots("public", [], after(0), after(9), 2) == {}
