"""Queries about runs: active ones, expired leases, orphans."""

import pytest
from msgspec.structs import replace

from tests.contract.run_samples import (
    LEASE,
    after,
    claim,
    creation,
    ending,
    event_row,
    fire_row,
    history,
    make,
    move,
    run_of,
    run_row,
    running,
    task_of,
    task_row,
)
from tests.contract.samples import NOON_ELSEWHERE
from tidemill.kernel.clock import VirtualClock
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import RunFilter, RunRevision
from tidemill.workflows.change import Change
from tidemill.workflows.records import TaskKey
from tidemill.workflows.states import RunState, TaskState


async def test_an_empty_store_has_no_runs(store: Store) -> None:
    runs = store.runs
    assert (await runs.list_active(), await runs.load(["r1"]), await runs.find(RunFilter(tenant="public"))) == (
        [],
        [],
        [],
    )
    assert (await runs.list_lease_expired(9), await runs.list_claimed_by(["n"]), await runs.count_claims()) == (
        [],
        [],
        {},
    )
    assert (await runs.list_orphans(after(0), 9), await runs.read_attempts("r1"), await runs.read_events("r1")) == (
        [],
        [],
        [],
    )
    assert await runs.read_fired_slots("public", "flow", "daily", after(0), after(9)) == set()


async def test_active_runs_are_those_that_have_not_ended(store: Store) -> None:
    """Of all tenants, oldest first, with the revision that they have now."""
    for number, state in enumerate(RunState):
        values = {"state": state, "created_at": after(-number), "tenant": f"t{number}"}
        await make(store, creation(run_row(f"r{number}", **values)))
    await make(store, Change(run="r0", history=history(event_row("r0"))))
    revisions = [RunRevision(run, (await run_of(store, run)).revision) for run in ("r1", "r0")]
    assert await store.runs.list_active() == revisions
    assert revisions[1].revision == revisions[0].revision + 1


async def test_a_run_that_ends_is_not_active_and_a_cleared_one_is(store: Store) -> None:
    await make(store, creation())
    row = await run_of(store)
    await make(store, Change(run="r1", updated_run=replace(row, state=RunState.SUCCESS, ended_at=after(1))))
    assert await store.runs.list_active() == []
    await make(store, Change(run="r1", updated_run=replace(row, state=RunState.QUEUED), is_operator_action=True))
    assert [one.run for one in await store.runs.list_active()] == ["r1"]


async def test_runs_are_loaded_with_their_tasks(store: Store) -> None:
    for run in ("r1", "r2", "r3"):
        await make(store, creation(run_row(run), task_row(run), task_row("m", index=0)))
    records = await store.runs.load({"r3", "r1", "r9"})
    assert {record.run.id: {row.task for row in record.tasks} for record in records} == {
        "r1": {"r1", "m"},
        "r3": {"r3", "m"},
    }
    assert len(records) == 2
    assert await store.runs.load([]) == []


async def test_many_runs_are_loaded_at_once(store: Store) -> None:
    """More than a statement has room for parameters."""
    ids = [f"r{number:05}" for number in range(2_000)]
    for run in (ids[0], ids[-1]):
        await make(store, creation(run_row(run)))
    assert sorted(record.run.id for record in await store.runs.load(ids)) == [ids[0], ids[-1]]


async def test_runs_are_found_by_filter(store: Store) -> None:
    samples = {
        "r1": {"workflow": "w1", "state": RunState.QUEUED},
        "r2": {"workflow": "w1", "state": RunState.SUCCESS, "backfill": "b"},
        "r3": {"workflow": "w2", "state": RunState.SUCCESS, "backfill": "b"},
        "r4": {"workflow": "w2", "state": RunState.RUNNING, "backfill": "c"},
        "r5": {"workflow": "w1", "state": RunState.SUCCESS, "tenant": "other", "backfill": "b"},
    }
    for number, (run, values) in enumerate(samples.items()):
        await make(store, creation(run_row(run, created_at=after(-number), **values)))

    async def found(**wanted: object) -> str:
        return "".join(one.id[1] for one in await store.runs.find(RunFilter(**({"tenant": "public"} | wanted))))

    assert await found() == "4321"
    assert await found(tenant="other") == "5"
    assert await found(tenant="unknown") == ""
    assert await found(workflow="w1") == "21"
    assert await found(states=[RunState.SUCCESS]) == "32"
    assert await found(states={RunState.QUEUED, RunState.RUNNING}) == "41"
    assert await found(workflow="w2", states=[RunState.QUEUED, RunState.RUNNING]) == "4"
    assert await found(workflow="w2", states=[RunState.RUNNING, RunState.SUCCESS]) == "43"
    assert await found(backfill="b") == "32"
    assert await found(backfill="b", workflow="w1") == "2"
    assert await found(backfill="c", states=[RunState.QUEUED]) == ""
    assert await found(backfill="c", states=[RunState.RUNNING]) == "4"
    assert await found(limit=2) == "21"
    assert await found(limit=1, states=[RunState.QUEUED, RunState.RUNNING]) == "1"
    assert await found(limit=1, workflow="w2") == "3"
    assert await found(limit=1, backfill="b") == "2"


async def test_found_runs_have_all_fields(store: Store) -> None:
    await make(store, creation(run_row(slot=after(1), backfill="b", reason="x")))
    assert await store.runs.find(RunFilter(tenant="public")) == [await run_of(store)]


async def test_expired_leases_are_listed(store: Store, clock: VirtualClock) -> None:
    """W-11: queued and running alike, longest first."""
    await make(store, creation(None, *(task_row("m", index=index) for index in range(4))))
    for seconds in range(3):
        clock.advance_to(seconds)
        (given,) = await store.runs.claim(claim(1))
        assert given.task.index == seconds
    middle = await task_of(store, task="m", index=1)
    await make(store, move("r1", middle, running(middle), lease=LEASE - 10))
    clock.advance_to(LEASE - 9)
    assert await store.runs.list_lease_expired(9) == []
    clock.advance_to(LEASE + 1.5)
    found = await store.runs.list_lease_expired(9)
    assert [key for key, _ in found] == [TaskKey("r1", "m", 1), TaskKey("r1", "m", 0)]
    assert [row.lease_until for _, row in found] == [after(2 + LEASE - 10), after(LEASE)]
    assert [row for _, row in found] == [await task_of(store, task="m", index=key.element) for key, _ in found]
    assert await store.runs.list_lease_expired(1) == found[:1]


async def test_claimed_task_runs_of_owners_are_queued_or_running(store: Store) -> None:
    """W-12."""
    await make(store, creation(None, *(task_row("m", index=index) for index in range(6))))
    for owner in ("x", "y", "z"):
        assert len(await store.runs.claim(claim(2, owner=owner))) == 2
    (_, first), (_, second) = await store.runs.list_claimed_by(["x"])
    await make(store, ending("r1", first), move("r1", second, running(second)))
    assert await store.runs.count_claims() == {"x": 1, "y": 2, "z": 2}
    found = await store.runs.list_claimed_by({"x", "z", "unknown"})
    assert sorted(key for key, _ in found) == [TaskKey("r1", "m", index) for index in (1, 4, 5)]
    for key, row in found:
        assert row == await task_of(store, task="m", index=key.element)
    assert await store.runs.list_claimed_by([]) == []


@pytest.mark.parametrize("state", list(TaskState))
async def test_a_run_is_an_orphan_when_nothing_in_it_is_active(store: Store, state: TaskState) -> None:
    """W-10: everything is terminal or none."""
    rows = [task_row("a", TaskState.SUCCESS), task_row("b", state), task_row("c", TaskState.NONE)]
    await make(store, creation(None, *rows))
    assert await store.runs.list_orphans(after(60), 9) == ([] if state.is_active else ["r1"])


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
async def test_only_a_running_run_can_be_an_orphan(store: Store, state: RunState) -> None:
    await make(store, creation(run_row(state=state), task_row(state=TaskState.SUCCESS)))
    assert await store.runs.list_orphans(after(60), 9) == []


async def test_orphans_have_no_recent_event(store: Store) -> None:
    """W-10: oldest first, at most so many."""
    done = task_row(state=TaskState.SUCCESS)
    for number in range(4):
        run = run_row(f"r{number}", created_at=after(-number), started_at=after(-number))
        await make(store, creation(run, done))
    await make(store, Change(run="r2", history=history(event_row("r2", at=after(100)))))
    assert await store.runs.list_orphans(after(60), 9) == ["r3", "r1", "r0"]
    assert await store.runs.list_orphans(after(60), 2) == ["r3", "r1"]
    assert await store.runs.list_orphans(after(101), 9) == ["r3", "r2", "r1", "r0"]
    assert await store.runs.list_orphans(after(-2.5), 9) == ["r3"]


@pytest.mark.parametrize("late", ["nothing", "run", "event"])
async def test_an_orphan_may_have_its_last_event_at_the_threshold(store: Store, late: str) -> None:
    """W-10, contract 42: the threshold itself is long enough; what came a moment later is not."""
    moments = {one: after(1e-6) if one == late else after(0) for one in ("run", "event")}
    run, event = run_row(created_at=moments["run"]), event_row(at=moments["event"])
    await make(store, creation(run, task_row(state=TaskState.SUCCESS), history=history(event)))
    assert await store.runs.list_orphans(after(0), 9) == (["r1"] if late == "nothing" else [])
    assert await store.runs.list_orphans(after(1e-6), 9) == ["r1"]
    assert await store.runs.list_orphans(after(-1e-6), 9) == []


async def test_slots_are_found_between_two_moments(store: Store) -> None:
    """W-13, W-15: both ends belong to it."""
    for number in range(5):
        await make(store, creation(run_row(f"r{number}"), fire=fire_row(f"r{number}", slot=after(number))))
    await make(store, creation(run_row("r9"), fire=fire_row("r9", digest="d")))
    await make(store, creation(run_row("r8"), fire=fire_row("r8", slot=after(2.5), key="other")))
    slots = store.runs.read_fired_slots
    assert await slots("public", "flow", "daily", after(1), after(3)) == {after(1), after(2), after(3)}
    assert await slots("public", "flow", "daily", after(1.5), after(1.9)) == set()
    assert await slots("public", "flow", "daily", NOON_ELSEWHERE, NOON_ELSEWHERE) == {after(0)}
    assert await slots("public", "flow", "other", after(0), after(9)) == {after(2.5)}
    assert await slots("other", "flow", "daily", after(0), after(9)) == set()
    assert await slots("public", "other", "daily", after(0), after(9)) == set()


async def test_the_run_of_a_fired_slot_is_found(store: Store) -> None:
    """By tenant, workflow, key and slot."""
    await make(store, creation(run_row("r1"), fire=fire_row("r1", slot=after(1))))
    await make(store, creation(run_row("r2"), fire=fire_row("r2", digest="d")))
    find = store.runs.find_fired
    assert await find("public", "flow", "daily", after(1)) == "r1"
    assert await find("public", "flow", "daily", after(2)) is None
    assert await find("public", "flow", "other", after(1)) is None
    assert await find("public", "other", "daily", after(1)) is None
    assert await find("other", "flow", "daily", after(1)) is None
