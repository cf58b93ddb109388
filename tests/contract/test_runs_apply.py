"""Changes of runs: everything that a change names is written together, and comes back as it was."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta, timezone

import pytest
from msgspec.structs import replace

from tests.contract.access_samples import audit_entry
from tests.contract.run_samples import (
    ERROR,
    LEASE,
    after,
    attempt_row,
    claim,
    creation,
    ending,
    event_row,
    everything,
    fire_row,
    full_task_row,
    history,
    make,
    move,
    output_row,
    queued,
    returned,
    run_of,
    run_row,
    running,
    succeeded,
    task_of,
    task_row,
)
from tests.contract.samples import NOON, NOON_ELSEWHERE, ODD_NAMES
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.tables.access import AuditFilter
from tidemill.storage.workflow_ports import RunFilter
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.change import Applied, Change, Refused, TaskChange
from tidemill.workflows.records import VersionKey
from tidemill.workflows.states import RunState, TaskState

ELSEWHERE = timezone(timedelta(hours=-3, minutes=-30))


async def test_a_run_comes_back_as_it_was_written(store: Store) -> None:
    run = run_row(slot=after(1), ended_at=after(2), reason="why", max_active=3, backfill="b1", params=b"\x00\xff")
    await make(store, creation(run, task_row("b"), task_row("a")))
    (record,) = await store.runs.load(["r1"])
    assert replace(record.run, revision=0, sequence=0) == run
    assert sorted(record.tasks, key=lambda row: row.task) == [task_row("a"), task_row("b")]


async def test_every_column_of_a_task_run_comes_back(store: Store) -> None:
    """A lease is the store's to set; the rest is as it was written."""
    rows = [full_task_row("a"), full_task_row("m", 0), full_task_row("m", 1)]
    await make(store, creation(None, *rows, lease=LEASE))
    (record,) = await store.runs.load(["r1"])
    leased = [replace(row, lease_until=after(LEASE)) for row in rows]
    assert sorted(record.tasks, key=lambda row: (row.task, row.index)) == leased


async def test_states_come_back_as_states(store: Store) -> None:
    await make(store, creation())
    assert isinstance((await run_of(store)).state, RunState)
    assert isinstance((await task_of(store)).state, TaskState)


async def test_times_of_other_zones_come_back_as_the_same_instants_in_utc(store: Store) -> None:
    at = NOON_ELSEWHERE
    run = run_row(created_at=at, started_at=at, ended_at=at, slot=at)
    changed = attempt_row(claimed_at=at, started_at=at, ended_at=at)
    row = full_task_row(zone=ELSEWHERE)
    await make(
        store, creation(run, row, attempts=[changed], history=history(event_row(at=at)), fire=fire_row(slot=at, at=at))
    )
    (record,) = await store.runs.load(["r1"])
    (event,) = await store.runs.read_events("r1")
    (slot,) = await store.runs.read_fired_slots("public", "flow", "daily", at, at)
    (ended, _) = await store.runs.read_attempts("r1")
    for time in (record.run.created_at, record.run.slot, ended.claimed_at, ended.ended_at, event.at, slot):
        assert time == NOON
        assert time.utcoffset() == timedelta(0)
    (found,) = record.tasks
    assert found.since == row.since
    times = found.since, found.wake_at, found.claimed_at, found.started_at, found.ended_at
    assert {one.utcoffset() for one in times if one is not None} == {timedelta(0)}


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_a_name(store: Store, name: str) -> None:
    run = run_row(f"r{name}", tenant=name, workflow=name, version=name, origin=name, reason=name)
    await make(store, creation(run, task_row(name, reason=name, executor=name, queue=name, pool=name)))
    (record,) = await store.runs.load([run.id])
    assert (record.run.workflow, record.run.reason) == (name, name)
    assert record.tasks == [task_row(name, reason=name, executor=name, queue=name, pool=name)]
    assert [one.id for one in await store.runs.find(RunFilter(tenant=name, workflow=name))] == [run.id]


async def test_attempts_end_once(store: Store) -> None:
    """W-16: nothing is written over the end of a try."""
    ended = attempt_row(started_at=after(1), ended_at=after(2), outcome="failed", exit=-9, error=ERROR)
    await make(store, creation(attempts=[ended, attempt_row(attempt=2, task="b")]))
    repeated = replace(ended, worker="another", ended_at=after(9), outcome="lost", error=None)
    await make(store, Change(run="r1", attempts=[repeated, attempt_row(attempt=2), attempt_row("r1", "a", 1, 0)]))
    found = await store.runs.read_attempts("r1")
    assert found == [ended, attempt_row(attempt=2), attempt_row("r1", "a", 1, 0), attempt_row(attempt=2, task="b")]


async def test_what_is_claimed_is_an_attempt_that_has_not_ended(store: Store) -> None:
    """W-16: readers see it, beside those that ended before."""
    claimed = {"attempt": 2, "tries": 2, "claimed_by": "node-7", "claimed_at": after(3)}
    rows = [
        task_row("a", TaskState.RUNNING, started_at=after(4), **claimed),
        task_row("b", TaskState.QUEUED, **claimed),
        task_row("c", TaskState.SUCCESS, **claimed),
    ]
    ended = attempt_row(started_at=after(1), ended_at=after(2), outcome="failed")
    await make(store, creation(None, *rows, attempts=[ended], lease=LEASE))
    begun = {"attempt": 2, "worker": "node-7", "claimed_at": after(3)}
    found = [ended, attempt_row(started_at=after(4), **begun), attempt_row(task="b", **begun)]
    assert await store.runs.read_attempts("r1") == found


async def test_outputs_are_replaced_and_forgotten(store: Store) -> None:
    first = [output_row(), output_row(task="m", element=1, value=b"1"), output_row(task="m", element=0, value=b"0")]
    await make(store, creation(**returned(*first)))
    assert await store.runs.read_outputs("r1", ["m", "a", "x"]) == [first[0], first[2], first[1]]
    assert await store.runs.read_outputs("r1", ["a"]) == [first[0]]
    assert await store.runs.read_outputs("r1", []) == []
    await make(store, Change(run="r1", cleared_outputs=["m"], **returned(output_row(value=b"new"), attempt=2)))
    assert await store.runs.read_outputs("r1", ["m", "a"]) == [output_row(value=b"new")]


async def test_outputs_are_cleared_before_new_ones_are_written(store: Store) -> None:
    """A task that is cleared and ends in one change has the new value."""
    await make(store, creation(**returned(output_row(), output_row(element=3))))
    await make(store, Change(run="r1", cleared_outputs=["a"], **returned(output_row(value=b"new"), attempt=2)))
    assert await store.runs.read_outputs("r1", ["a"]) == [output_row(value=b"new")]


async def test_a_big_value_comes_back_whole(store: Store) -> None:
    value = bytes(range(256)) * (5 * 4096)
    await make(store, creation(**returned(output_row(value=value))))
    (found,) = await store.runs.read_outputs("r1", ["a"])
    assert found.value == value


async def test_events_keep_their_order(store: Store) -> None:
    """Not that of their times: two may have the same, and clocks step back."""
    events = [event_row(at=after(-(number // 3) % 7), attempt=number, reason=f"n{number}") for number in range(21)]
    await make(store, creation(history=history(*events[:3])), creation(run_row("r2")))
    for first in range(3, 21, 3):
        await make(store, Change(run="r1", history=history(*events[first : first + 3])))
    assert await store.runs.read_events("r1") == events
    assert len(await store.runs.read_events("r2")) == 1


async def test_a_revision_counts_changes(store: Store) -> None:
    """Only of the run that was changed."""
    await make(store, creation(), creation(run_row("r2")))
    before = (await run_of(store)).revision
    for number in range(1, 4):
        applied = await store.runs.apply(Change(run="r1", history=history(event_row())))
        assert applied == Applied(before + number)
        assert (await run_of(store)).revision == before + number
    assert (await run_of(store, "r2")).revision == before


async def test_the_revision_of_a_new_run_is_returned(store: Store) -> None:
    applied = await store.runs.apply(creation(run_row(revision=77, clears=77)))
    assert isinstance(applied, Applied)
    found = await run_of(store)
    assert (found.revision, found.clears) == (applied.revision, 0)


async def test_operator_actions_are_counted(store: Store) -> None:
    await make(store, creation())
    await make(
        store, Change(run="r1", is_operator_action=True), Change(run="r1"), Change(run="r1", is_operator_action=True)
    )
    assert (await run_of(store)).clears == 2


async def test_a_run_is_pinned_to_another_version(store: Store) -> None:
    """W-19: together with the rest of the change; a plan of the old version is refused."""
    await make(store, creation(run_row(state=RunState.FAILED)), creation(run_row("r2")))
    found = await run_of(store)
    again = replace(found, version="v2", state=RunState.QUEUED)
    await make(store, Change(run="r1", expected_run=found, updated_run=again, is_operator_action=True))
    assert await run_of(store) == replace(again, revision=found.revision + 1, clears=1)
    assert (await run_of(store, "r2")).version == "v1"
    late = Change(run="r1", expected_run=found, updated_run=replace(found, state=RunState.CANCELLED))
    assert await store.runs.apply(late) == Refused("stale")
    assert (await run_of(store)).version == "v2"
    loaded = [VersionKey("public", "flow", "v2")]
    assert [one.run.version for one in await store.runs.claim(claim(loaded=loaded))] == ["v2"]


async def test_a_run_is_changed_in_state_times_and_reason(store: Store) -> None:
    """W-3: with its last task, or alone. Its counters are the store's."""
    await make(store, creation())
    found = await run_of(store)
    ended = replace(found, state=RunState.FAILED, ended_at=after(9), reason="broke", revision=500, clears=500)
    await make(store, Change(run="r1", expected_run=found, updated_run=ended))
    assert await run_of(store) == replace(ended, revision=found.revision + 1, clears=0)


async def test_elements_replace_a_mapped_task(store: Store) -> None:
    whole = task_row("m", TaskState.NONE)
    await make(store, creation(None, whole))
    elements = [task_row("m", index=index) for index in range(3)]
    await make(store, Change(run="r1", removed=[whole], added=elements))
    await make(store, Change(run="r1", removed=elements, added=[whole]))
    (record,) = await store.runs.load(["r1"])
    assert record.tasks == [whole]


async def test_a_task_run_may_be_removed_and_added_in_one_change(store: Store) -> None:
    await make(store, creation(None, task_row("m", index=0)))
    again = task_row("m", TaskState.NONE, index=0)
    await make(store, Change(run="r1", removed=[task_row("m", index=0)], added=[again]))
    assert await task_of(store, task="m", index=0) == again


@pytest.mark.parametrize("state", list(TaskState))
async def test_only_what_is_queued_or_running_has_a_lease(store: Store, clock: VirtualClock, state: TaskState) -> None:
    """W-1: by the store's own clock, whatever the row says."""
    await make(store, creation(None, task_row("a", TaskState.NONE), task_row("b")))
    clock.advance_to(5)
    is_claimed = state in (TaskState.QUEUED, TaskState.RUNNING)
    row = task_row("a", state, claimed_by="node-1" if is_claimed else None, lease_until=after(1e6))
    await make(store, move("r1", task_row("a", TaskState.NONE), row, lease=7.5))
    assert (await task_of(store)).lease_until == (after(12.5) if is_claimed else None)
    await make(store, Change(run="r1", added=[replace(row, task="c")], lease=2.0))
    assert (await task_of(store, task="c")).lease_until == (after(7) if is_claimed else None)


async def test_a_task_from_scheduled_to_success(store: Store) -> None:
    """Scheduled, queued, running, done: each change finds what the one before has left."""
    await make(store, creation())
    row = task_row()
    for step in (queued, running, succeeded):
        await make(store, move("r1", row, step(row)))
        row = step(row)
    assert await task_of(store) == row


async def test_the_end_of_a_task_is_one_change(store: Store) -> None:
    """W-3: the task, its attempt, its value, its event, the next task, and the run."""
    row = running(queued(task_row()))
    await make(store, creation(None, row, task_row("b", TaskState.NONE)))
    found = await run_of(store)
    change = ending("r1", row)
    next_ = TaskChange(task_row("b", TaskState.NONE), task_row("b"))
    await make(
        store, replace(change, tasks=[*change.tasks, next_], expected_run=found, updated_run=replace(found, reason="x"))
    )
    assert await task_of(store) == succeeded(row)
    assert await task_of(store, task="b") == task_row("b")
    assert (await run_of(store)).reason == "x"
    assert [one.outcome for one in await store.runs.read_attempts("r1")] == ["success"]


async def test_changes_of_one_turn_are_refused_one_by_one(store: Store) -> None:
    """They share a transaction; one that is refused leaves its neighbours unharmed."""
    changes = [creation(run_row(f"r{number % 7}", reason=str(number))) for number in range(20)]
    results = await asyncio.gather(*(store.runs.apply(change) for change in changes))
    assert [isinstance(result, Applied) for result in results] == [number < 7 for number in range(20)]
    assert set(results[7:]) == {Refused("stale")}
    records = await store.runs.load([f"r{number}" for number in range(7)])
    assert {record.run.reason for record in records} == set("0123456")
    assert all(len(record.tasks) == 1 for record in records)


async def test_changes_of_one_run_in_one_turn_see_one_another(store: Store) -> None:
    await make(store, creation())
    row = task_row()
    steps = [move("r1", row, queued(row)), move("r1", row, queued(row, "other")), ending("r1", queued(row))]
    first, second, third = await asyncio.gather(*(store.runs.apply(step) for step in steps))
    assert isinstance(first, Applied)
    assert second == Refused("stale")
    assert third == Applied(first.revision + 1)


async def test_a_time_without_a_zone_is_the_callers_mistake(store: Store) -> None:
    """In every row, and in queries: each database would read it as another time."""
    naive, runs = NOON.replace(tzinfo=None), store.runs
    await make(store, creation())
    wrong: list[Callable[[], Awaitable[object]]] = [
        lambda: runs.apply(move("r1", task_row(), task_row(since=naive))),
        lambda: runs.apply(Change(run="r1", updated_run=run_row(ended_at=naive))),
        lambda: runs.apply(Change(run="r1", added=[task_row("b", wake_at=naive)])),
        lambda: runs.apply(Change(run="r1", attempts=[attempt_row(claimed_at=naive)])),
        lambda: runs.apply(Change(run="r1", history=history(event_row(at=naive)))),
        lambda: runs.apply(creation(run_row("r2", created_at=naive), history=None)),
        lambda: runs.apply(creation(run_row("r2"), fire=fire_row("r2", slot=naive))),
        lambda: runs.claim(claim(at=naive)),
        lambda: runs.list_orphans(naive, 9),
        lambda: runs.prune("public", naive, 9),
        lambda: runs.read_fired_slots("public", "flow", "daily", naive, NOON),
        lambda: runs.read_fired_slots("public", "flow", "daily", NOON, naive),
    ]
    before = await everything(store, ["r1", "r2"])
    for ask in wrong:
        with pytest.raises(ValueError, match="without a zone"):
            await ask()
    assert await everything(store, ["r1", "r2"]) == before


async def test_a_failed_transaction_has_written_nothing(store: Store) -> None:
    await make(store, creation())
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.runs.apply(move("r1", task_row(), queued(task_row())))
    assert await task_of(store) == task_row()
    await make(store, move("r1", task_row(), queued(task_row())))


async def test_tenants_have_their_own_runs(store: Store) -> None:
    await make(store, creation(run_row("r1")), creation(run_row("r2", tenant="other")))
    assert [one.id for one in await store.runs.find(RunFilter(tenant="other"))] == ["r2"]


async def test_the_entry_of_the_audit_log_is_written_with_its_change(store: Store) -> None:
    """S-7: also in one transaction with others; a change that is refused leaves no entry."""
    refused, *applied = await asyncio.gather(
        store.runs.apply(move("r9", task_row("a"), queued(task_row("a"))), audit_entry("e0")),
        store.runs.apply(creation(run_row("r1"), task_row("a")), audit_entry("e1", at=NOON_ELSEWHERE)),
        store.runs.apply(creation(run_row("r2"), task_row("a")), audit_entry("e2")),
        store.runs.apply(creation(run_row("r3"), task_row("a"))),
    )
    assert isinstance(refused, Refused)
    assert all(isinstance(one, Applied) for one in applied)
    assert await store.audit_entries.find(AuditFilter(tenant="acme")) == [audit_entry("e2"), audit_entry("e1")]
