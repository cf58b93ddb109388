"""The overview of runs: counts of active and ended runs, the oldest active ones, and the last ended ones."""

from datetime import timedelta

from tests.contract.run_samples import after, creation, fire_row, make, run_row, task_row
from tests.contract.samples import NOON
from tidemill.storage.run_lists import FiredSlot, ScheduleName
from tidemill.storage.run_overview import EndedCount, FirstFailure, OverviewQuery, RunOverview, hour_of, start_of
from tidemill.storage.store import Store
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.workflows.states import RunState, TaskState

Q, R, S, F, C = RunState.QUEUED, RunState.RUNNING, RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED
HOUR = hour_of(NOON)


async def read(store: Store, *workflows: str, hours: range = range(HOUR, HOUR + 1), limit: int = 2) -> RunOverview:
    """Return the overview of tenant public, with at most `limit` runs of each kind."""
    return await store.runs.read_overview(OverviewQuery("public", hours, limit, limit), workflows)


def counted(overview: RunOverview) -> dict[RunState, int]:
    """Return the number of active runs by state, without those that no run has."""
    return {state: number for state, number in overview.active.items() if number}


async def test_an_empty_store_has_an_empty_overview(store: Store) -> None:
    overview = await read(store, "flow")
    assert (counted(overview), overview.oldest, overview.ended, overview.last_ended) == ({}, [], [], [])


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


async def test_the_last_ended_runs_of_workflows_are_listed_newest_first(store: Store) -> None:
    """S-8: what is failing; the newest run is the one that was created last, and active ones do not count."""
    for number, (workflow, state) in enumerate([("w1", S), ("w1", F), ("w1", C), ("w1", R), ("w2", F), ("w3", F)]):
        at = after(number)
        await make(
            store,
            creation(run_row(f"r{number}", workflow=workflow, state=state, created_at=at, ended_at=at, reason="x")),
        )
    await make(store, creation(run_row("x", tenant="other", workflow="w1", state=F, created_at=after(99))))
    overview = await read(store, "w2", "w1", "unknown")
    assert [(one.workflow, one.id, one.state) for one in overview.last_ended] == [
        ("w2", "r4", F),
        ("w1", "r2", C),
        ("w1", "r1", F),
    ]
    assert (overview.last_ended[0].ended_at, overview.last_ended[0].reason) == (after(4), "x")


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
