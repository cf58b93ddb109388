"""Retention: runs that ended long ago go, with all that belongs to them; what keeps a slot from a second run stays."""

from typing import Any

import pytest

from tests.contract.run_samples import (
    after,
    creation,
    event_row,
    everything,
    fire_row,
    history,
    make,
    output_row,
    returned,
    run_row,
    task_row,
)
from tests.contract.samples import NOON, NOON_ELSEWHERE
from tidemill.storage.store import Store
from tidemill.storage.tables.logs import LogChunk
from tidemill.storage.workflow_ports import RunFilter, RunNote
from tidemill.workflows.change import Change, Refused
from tidemill.workflows.records import AttemptKey, TaskKey
from tidemill.workflows.states import RunState, TaskState


async def put_ended(store: Store, run: str, at: float, **values: Any) -> None:
    """Create a run that ended some time after NOON, with a row in every table."""
    await make(
        store,
        creation(
            run_row(run, **({"state": RunState.SUCCESS, "ended_at": after(at)} | values)),
            task_row("a", TaskState.SUCCESS),
            fire=fire_row(run, slot=after(at), digest=run),
            **returned(output_row(run)),
            history=history(event_row(run)),
        ),
    )
    await store.notes.upsert(RunNote(run, None, "note", NOON))
    await store.notes.upsert(RunNote(run, "a", "note", NOON))
    await store.logs.append([LogChunk(key=AttemptKey(run, "a", -1, 1), number=0, payload=b"log")])


async def left(store: Store) -> list[str]:
    """Return the runs that are there."""
    return [one.id for one in await store.runs.find(RunFilter(tenant="public"))]


async def test_each_tenant_is_pruned_by_itself(store: Store) -> None:
    """W-18: per tenant."""
    assert await store.runs.list_tenants() == []
    for number, tenant in enumerate(["beta", "acme", "beta", "Émile", "acme"]):
        await make(store, creation(run_row(f"r{number}", tenant=tenant, state=RunState.SUCCESS, ended_at=after(1))))
    await make(store, creation(run_row("active", tenant="zeta", state=RunState.RUNNING)))
    assert await store.runs.list_tenants() == ["acme", "beta", "zeta", "Émile"]
    assert await store.runs.prune("acme", after(2), 10) == 2
    assert await store.runs.prune("zeta", after(2), 10) == 0
    assert await store.runs.list_tenants() == ["beta", "zeta", "Émile"]
    assert [one.id for one in await store.runs.find(RunFilter(tenant="beta"))] == ["r0", "r2"]


async def test_runs_that_ended_before_a_time_are_pruned_oldest_first(store: Store) -> None:
    """W-18: in small batches."""
    for number in (2, 0, 3, 1):
        await put_ended(store, f"r{number}", number)
    assert await store.runs.prune("public", after(0), 10) == 0
    assert await store.runs.prune("public", after(3), 2) == 2
    assert await left(store) == ["r2", "r3"]
    assert await store.runs.prune("public", after(3), 2) == 1
    assert await left(store) == ["r3"]
    assert await store.runs.prune("public", after(3), 2) == 0
    assert await store.runs.prune("public", NOON_ELSEWHERE, 2) == 0


async def test_a_run_is_pruned_with_everything_of_its_own(store: Store) -> None:
    await put_ended(store, "r1", 0)
    await put_ended(store, "r2", 5)
    kept = await everything(store, ["r2"])
    assert await store.runs.prune("public", after(1), 10) == 1
    assert await store.runs.load(["r1"]) == []
    assert await store.runs.read_attempts("r1") == []
    assert await store.runs.read_events("r1") == []
    assert await store.runs.read_outputs("r1", ["a"]) == []
    assert await store.notes.for_run("r1") == []
    assert await store.logs.read(TaskKey("r1", "a")) == []
    assert (await everything(store, ["r2"]))[:5] == kept[:5]
    assert len(await store.notes.for_run("r2")) == 2
    assert len(await store.logs.read(TaskKey("r2", "a"))) == 1


async def test_a_pruned_run_can_be_created_again(store: Store) -> None:
    """No row of it is left that would prevent that."""
    await put_ended(store, "r1", 0)
    await store.runs.prune("public", after(1), 10)
    await make(store, creation(run_row("r1"), task_row("a")))


async def test_fires_of_slots_stay(store: Store) -> None:
    """W-13: permanently."""
    await put_ended(store, "r1", 0)
    await store.runs.prune("public", after(1), 10)
    assert await store.runs.read_fired_slots("public", "flow", "daily", after(0), after(1)) == {after(0)}
    again = creation(run_row("r2"), fire=fire_row("r2", slot=after(0)))
    assert await store.runs.apply(again) == Refused("fired")
    await make(store, creation(run_row("r3"), fire=fire_row("r3", digest="r1")))


async def test_fires_without_a_slot_are_pruned_with_their_runs(store: Store) -> None:
    """A run that takes the id of a pruned one does not inherit its payload: nothing of that is left."""
    ended = {"state": RunState.SUCCESS, "ended_at": after(0)}
    await make(store, creation(run_row("r1", **ended), fire=fire_row("r1", digest="d")))
    await make(store, creation(run_row("r2", **ended), fire=fire_row("r2", digest="e")))
    assert await store.runs.prune("public", after(1), 1) == 1
    await make(store, creation(run_row("r1")), Change(run="r2", updated_run=run_row("r2")))  # both are active now
    await make(store, creation(run_row("r3"), fire=fire_row("r3", digest="d")))
    kept = creation(run_row("r4"), fire=fire_row("r4", digest="e"))
    assert await store.runs.apply(kept) == Refused("fired")


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING])
async def test_active_runs_stay(store: Store, state: RunState) -> None:
    """Also one that was cleared and has not lost the time of its end."""
    await put_ended(store, "r1", 0, state=state, ended_at=None)
    await put_ended(store, "r2", 1, state=state)
    await put_ended(store, "r3", 2)
    assert await store.runs.prune("public", after(1000), 1) == 1
    assert await store.runs.prune("public", after(1000), 1) == 0
    assert await left(store) == ["r1", "r2"]


async def test_runs_of_every_terminal_state_are_pruned(store: Store) -> None:
    for run, state in (("r1", RunState.SUCCESS), ("r2", RunState.FAILED), ("r3", RunState.CANCELLED)):
        await put_ended(store, run, int(run[1]), state=state)
    assert await store.runs.prune("public", after(10), 10) == 3
