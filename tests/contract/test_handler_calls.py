"""The end of a run and the run of its handlers: both are written, or neither."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.run_samples import (
    creation,
    ending,
    make,
    move,
    queued,
    run_of,
    run_row,
    running,
    succeeded,
    task_row,
)
from tests.contract.samples import NOON
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.change import Applied, Change, LeaderFence, Refused
from tidemill.workflows.states import RunState, TaskState

RUNNING = running(queued(task_row()))


def call(run: str = "h1", ended: str = "r1") -> Change:
    """Return the change that creates the run of the handlers of a run."""
    row = run_row(run, workflow="flow.on_success", state=RunState.QUEUED, origin="handler", caused_by=ended)
    return creation(row, task_row("thank", TaskState.NONE))


async def end(store: Store, number: int = 1, **values: Any) -> Change:
    """Create a run, and return the change that ends it and calls its handlers."""
    await store.leases.acquire("leader", "node-1", 60)
    lease = await store.leases.current("leader")
    assert lease is not None
    await make(store, creation(run_row(f"r{number}"), RUNNING))
    (record,) = await store.runs.load([f"r{number}"])
    return replace(
        ending(f"r{number}", RUNNING),
        fence=LeaderFence("leader", lease.epoch),
        expected_run=record.run,
        updated_run=replace(record.run, state=RunState.SUCCESS, ended_at=NOON),
        handlers=call(f"h{number}", f"r{number}"),
        **values,
    )


async def called(store: Store, *runs: str) -> list[tuple[str, str]]:
    """Return which runs of handlers some runs have."""
    return await store.runs.list_started_by("public", runs or ["r1"])


async def test_an_end_and_the_run_of_its_handlers_are_written_together(store: Store) -> None:
    assert isinstance(await store.runs.apply(await end(store)), Applied)
    assert (await run_of(store, "r1")).state is RunState.SUCCESS
    (record,) = await store.runs.load(["h1"])
    assert (record.run.state, record.run.sequence > 1, [row.task for row in record.tasks]) == (
        RunState.QUEUED,
        True,
        ["thank"],
    )
    assert await called(store) == [("r1", "h1")]


@pytest.mark.parametrize("guard", ["stale", "fenced"])
async def test_an_end_that_is_refused_calls_no_handlers(store: Store, guard: str) -> None:
    """The change that was faster has called them, or another one will."""
    change = await end(store)
    if guard == "fenced":
        change = replace(change, fence=LeaderFence("leader", 99))
    else:
        await make(store, move("r1", RUNNING, succeeded(RUNNING)))
    assert await store.runs.apply(change) == Refused(guard)
    assert await called(store) == []
    assert (await run_of(store, "r1")).state is RunState.RUNNING


async def test_a_run_that_was_changed_otherwise_ends_with_its_handlers(store: Store) -> None:
    """The judged path, that of a revision which is not the expected one."""
    change = await end(store)
    await make(store, Change(run="r1", added=[task_row("b", TaskState.SKIPPED)]))
    assert isinstance(await store.runs.apply(change), Applied)
    assert await called(store) == [("r1", "h1")]


async def test_the_same_end_twice_calls_its_handlers_once(store: Store) -> None:
    change = await end(store)
    results = await asyncio.gather(store.runs.apply(change), store.runs.apply(replace(change, handlers=call("h2"))))
    assert sorted(type(result).__name__ for result in results) == ["Applied", "Refused"]
    assert len(await called(store)) == 1


async def test_paused_handlers_are_left_out_and_the_run_ends(store: Store) -> None:
    change = await end(store)
    await store.schedules.pause("public", "flow.on_success")
    assert isinstance(await store.runs.apply(change), Applied)
    assert (await run_of(store, "r1")).state is RunState.SUCCESS
    assert await called(store) == []


async def test_a_store_that_fails_writes_neither(store: Store) -> None:
    change = await end(store)
    fail_next(store, 1)
    with pytest.raises(StoreError):
        await store.runs.apply(change)
    assert ((await run_of(store, "r1")).state, await called(store)) == (RunState.RUNNING, [])


async def test_many_ends_at_once_call_their_handlers(store: Store) -> None:
    """The ends of a group share a transaction, and answer in their order."""
    changes = [await end(store, number) for number in range(1, 6)]
    changes[2] = replace(changes[2], fence=LeaderFence("leader", 99))
    results = await asyncio.gather(*(store.runs.apply(change) for change in changes))
    assert [isinstance(result, Applied) for result in results] == [True, True, False, True, True]
    ended = [f"r{number}" for number in range(1, 6)]
    assert sorted(await called(store, *ended)) == [("r1", "h1"), ("r2", "h2"), ("r4", "h4"), ("r5", "h5")]
