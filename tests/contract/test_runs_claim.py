"""Claims: each scheduled task run goes to one owner, in order, and within limits."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.run_samples import (
    LEASE,
    after,
    attempt_row,
    claim,
    creation,
    ending,
    event_row,
    everything,
    make,
    move,
    run_of,
    run_row,
    running,
    task_of,
    task_row,
)
from tests.contract.samples import NOON, NOON_ELSEWHERE
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import ClaimedTask, VersionTask
from tidemill.testing.faults.stores import fail_next
from tidemill.workflows.change import Refused
from tidemill.workflows.records import AttemptKey, VersionKey
from tidemill.workflows.states import TaskState


def names(claimed: list[ClaimedTask]) -> list[str]:
    """Return the names of the claimed tasks."""
    return [f"{one.run.id}/{one.task.task}" + ("" if one.task.index < 0 else str(one.task.index)) for one in claimed]


async def test_a_claim_queues_a_task_run_for_its_owner(store: Store, clock: VirtualClock) -> None:
    """W-1: one write sets owner, lease and attempt."""
    row = task_row(attempt=2, tries=1, failures=1, started_at=NOON, ended_at=NOON, reason="again", priority=3)
    await make(store, creation(None, row))
    before = await run_of(store)
    clock.advance_to(5)
    (given,) = await store.runs.claim(claim(at=after(7), owner="node-9"))
    assert given.task == replace(
        row,
        state=TaskState.QUEUED,
        attempt=3,
        tries=2,
        claimed_by="node-9",
        claimed_at=after(7),
        lease_until=after(5 + LEASE),
        since=after(7),
        started_at=None,
        ended_at=None,
        reason="",
    )
    assert given.run == replace(before, revision=before.revision + 1)
    (record,) = await store.runs.load(["r1"])
    assert (record.run, record.tasks) == (given.run, [given.task])
    (attempt,) = await store.runs.read_attempts("r1")
    assert attempt == attempt_row(attempt=3, number=2, worker="node-9", claimed_at=after(7))
    event = (await store.runs.read_events("r1"))[-1]
    assert event == event_row(attempt=3, before="scheduled", after="queued", at=after(7), actor="node-9")


async def test_a_claim_at_an_immediate_executor_starts_the_attempt(store: Store) -> None:
    """W-2: the claimer is the worker; both transitions are in the history, and nothing lies between them."""
    await make(store, creation(None, task_row("a", executor="here"), task_row("b", executor="there", started_at=NOON)))
    request = claim({"here": 1, "there": 1}, immediate=["here", "unknown"], at=after(7))
    states = {one.task.task: (one.task.state, one.task.started_at) for one in await store.runs.claim(request)}
    assert states == {"a": (TaskState.RUNNING, after(7)), "b": (TaskState.QUEUED, None)}
    moves = {(event.task, event.before, event.after) for event in await store.runs.read_events("r1") if event.attempt}
    assert moves == {("a", "scheduled", "queued"), ("a", "queued", "running"), ("b", "scheduled", "queued")}
    assert {row.key.task: row.started_at for row in await store.runs.read_attempts("r1")} == {"a": after(7), "b": None}


async def test_states_of_claimed_task_runs_are_enum_members(store: Store) -> None:
    await make(store, creation())
    (given,) = await store.runs.claim(claim(at=NOON_ELSEWHERE))
    assert isinstance(given.task.state, TaskState)
    assert given.task.since == NOON


async def test_highest_priority_first_then_longest_waiting(store: Store) -> None:
    tasks = [
        task_row("b", since=after(1)),
        task_row("a", since=after(1)),
        task_row("late", since=after(2)),
        task_row("early", since=after(0)),
        task_row("high", priority=5, since=after(9)),
        task_row("low", priority=-1, since=after(-9)),
        task_row("m", index=10, since=after(1)),
        task_row("m", index=9, since=after(1)),
    ]
    await make(store, creation(run_row("r2"), *tasks[:4]), creation(run_row("r1"), *tasks[4:]))
    order = ["r1/high", "r2/early", "r1/m9", "r1/m10", "r2/a", "r2/b", "r2/late", "r1/low"]
    assert names(await store.runs.claim(claim(3))) == order[:3]
    assert names(await store.runs.claim(claim(3))) == order[3:6]
    assert names(await store.runs.claim(claim(3))) == order[6:]


async def test_no_task_run_is_claimed_twice(store: Store) -> None:
    await make(store, creation(None, *(task_row("m", index=index) for index in range(5))))
    given = await asyncio.gather(*(store.runs.claim(claim(2, owner=f"n{number}")) for number in range(4)))
    assert max(len(one) for one in given) == 2
    given.append(await store.runs.claim(claim()))  # task runs that concurrent claims passed over
    assert Counter(name for one in given for name in names(one)) == Counter(f"r1/m{index}" for index in range(5))


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.SCHEDULED])
async def test_only_scheduled_task_runs_are_claimed(store: Store, state: TaskState) -> None:
    await make(store, creation(None, task_row(state=state)))
    assert await store.runs.claim(claim()) == []


async def test_each_executor_takes_as_many_as_it_can(store: Store) -> None:
    tasks = [task_row(f"{executor}{n}", executor=executor) for executor in ("x", "y", "z") for n in range(3)]
    await make(store, creation(None, *tasks))
    assert names(await store.runs.claim(claim({"x": 2, "y": 1, "none": 9}))) == ["r1/x0", "r1/x1", "r1/y0"]
    assert names(await store.runs.claim(claim({"z": 0, "y": 5}))) == ["r1/y1", "r1/y2"]
    assert await store.runs.claim(claim({})) == []


async def test_only_task_runs_of_loaded_versions_are_claimed(store: Store) -> None:
    """W-19: tenant, workflow and version, each of them."""
    for run, values in {
        "r1": {},
        "r2": {"version": "v2"},
        "r3": {"workflow": "other"},
        "r4": {"tenant": "other"},
    }.items():
        await make(store, creation(run_row(run, **values)))
    assert await store.runs.claim(claim(loaded=[])) == []
    assert names(await store.runs.claim(claim(loaded=[VersionKey("other", "flow", "v1")]))) == ["r4/a"]
    loaded = {VersionKey("public", "flow", "v1"), VersionKey("public", "other", "v1"), VersionKey("x", "flow", "v2")}
    assert names(await store.runs.claim(claim(loaded=loaded))) == ["r1/a", "r3/a"]


async def test_excluded_tasks_are_left_to_owners_that_can_run_them(store: Store) -> None:
    """W-1: by version and task; the same task of another version is claimed."""
    await make(
        store, creation(None, task_row("a"), task_row("b")), creation(run_row("r2", version="v2"), task_row("a"))
    )
    both = [VersionKey("public", "flow", version) for version in ("v1", "v2")]
    without = [VersionTask("public", "flow", "v1", "a"), VersionTask("public", "other", "v2", "a")]
    assert names(await store.runs.claim(claim(loaded=both, excluded=without))) == ["r1/b", "r2/a"]
    assert await store.runs.claim(claim(loaded=both, excluded=without)) == []
    assert names(await store.runs.claim(claim(loaded=both))) == ["r1/a"]


async def test_queues_are_served_by_name(store: Store) -> None:
    await make(store, creation(None, *(task_row(queue, queue=queue) for queue in ("default", "slow", "gpu"))))
    assert await store.runs.claim(claim(queues=[])) == []
    assert names(await store.runs.claim(claim(queues={"slow", "none"}))) == ["r1/slow"]
    assert names(await store.runs.claim(claim(queues=None))) == ["r1/default", "r1/gpu"]


async def test_tasks_of_paused_workflows_wait(store: Store) -> None:
    await make(store, creation(), creation(run_row("r2", tenant="other")))
    await store.schedules.pause("public", "flow")
    both = [VersionKey("public", "flow", "v1"), VersionKey("other", "flow", "v1")]
    assert names(await store.runs.claim(claim(loaded=both))) == ["r2/a"]
    await store.schedules.resume("public", "flow", after(0))
    assert names(await store.runs.claim(claim(loaded=both))) == ["r1/a"]


async def test_pools_are_respected_within_one_claim_and_over_several(store: Store) -> None:
    """Task runs without a free slot are passed over; those behind them are not delayed."""
    pooled = [task_row("p", index=index, pool="gpu", priority=9) for index in range(4)]
    await make(store, creation(None, *pooled, task_row("free")))
    assert names(await store.runs.claim(claim(pools={"gpu": 2}))) == ["r1/p0", "r1/p1", "r1/free"]
    assert await store.runs.claim(claim(pools={"gpu": 2})) == []
    found = running(await task_of(store, task="p", index=0))
    await make(store, move("r1", await task_of(store, task="p", index=0), found))
    assert await store.runs.claim(claim(pools={"gpu": 2})) == []
    await make(store, ending("r1", found))
    assert names(await store.runs.claim(claim(pools={"gpu": 2}))) == ["r1/p2"]
    assert names(await store.runs.claim(claim(pools={"gpu": 100}))) == ["r1/p3"]


async def test_the_stored_size_of_a_pool_wins_over_the_one_of_the_claim(store: Store) -> None:
    """Whatever a process believes, it does not exceed the size that the store has."""
    await make(store, creation(None, *(task_row("p", index=index, pool="gpu") for index in range(5))))
    await store.pools.set_sizes({"gpu": 2})
    assert names(await store.runs.claim(claim(pools={"gpu": 100}))) == ["r1/p0", "r1/p1"]
    await store.pools.set_sizes({"gpu": 3})
    assert names(await store.runs.claim(claim(pools={"gpu": 1}))) == ["r1/p2"]
    assert await store.runs.claim(claim(pools={"gpu": 100})) == []


async def test_a_pool_that_the_claim_does_not_name_is_left_alone(store: Store) -> None:
    await make(store, creation(None, task_row("p", pool="gpu"), task_row("free")))
    assert names(await store.runs.claim(claim())) == ["r1/free"]
    assert await store.runs.claim(claim(pools={"other": 5, "gpu": 0})) == []


async def test_each_tenant_has_its_own_pool_of_a_name(store: Store) -> None:
    for run, tenant in (("r1", "a"), ("r2", "b")):
        tasks = (task_row("p", index=index, pool="gpu") for index in range(2))
        await make(store, creation(run_row(run, tenant=tenant), *tasks))
    loaded = [VersionKey("a", "flow", "v1"), VersionKey("b", "flow", "v1")]
    assert names(await store.runs.claim(claim(loaded=loaded, pools={"gpu": 1}))) == ["r1/p0", "r2/p0"]


async def test_concurrent_claims_share_a_pool(store: Store) -> None:
    await make(store, creation(None, *(task_row("p", index=index, pool="gpu") for index in range(20))))
    given = await asyncio.gather(*(store.runs.claim(claim(3, pools={"gpu": 7})) for _ in range(5)))
    given.append(await store.runs.claim(claim(pools={"gpu": 7})))  # task runs that concurrent claims passed over
    assert sum(len(one) for one in given) == 7


async def test_an_empty_claim_changes_nothing(store: Store) -> None:
    await make(store, creation(None, task_row(executor="other")))
    before = await everything(store, ["r1"])
    assert await store.runs.claim(claim()) == []
    assert await everything(store, ["r1"]) == before


async def test_a_failed_claim_returns_nothing(store: Store) -> None:
    await make(store, creation())
    before = await everything(store, ["r1"])
    fail_next(store, 1)
    with pytest.raises(StoreError, match="on purpose"):
        await store.runs.claim(claim())
    assert await everything(store, ["r1"]) == before


async def test_a_claim_makes_earlier_reads_stale(store: Store) -> None:
    await make(store, creation())
    (given,) = await store.runs.claim(claim())
    assert await store.runs.apply(move("r1", task_row(), task_row(reason="late"))) == Refused("stale")
    await make(store, move("r1", given.task, running(given.task)))


async def test_a_heartbeat_renews_the_leases_that_the_owner_still_holds(store: Store, clock: VirtualClock) -> None:
    """W-11: by the store's clock, and also if the lease has expired but was not taken over."""
    await make(store, creation(None, *(task_row("m", index=index) for index in range(4))))
    given = await store.runs.claim(claim())
    await make(store, move("r1", given[1].task, running(given[1].task)))
    await make(store, ending("r1", given[2].task))
    clock.advance_to(1000)
    assert len(await store.runs.list_lease_expired(10)) == 3
    keys = [AttemptKey("r1", "m", index, 1) for index in range(4)]
    wrong = [keys[3]._replace(attempt=2), keys[3]._replace(attempt=0), keys[3]._replace(run="r2")]
    revision = (await run_of(store)).revision
    assert await store.runs.renew_leases("node-1", [*keys[:3], *wrong], 30) == set(keys[:2])
    assert (await task_of(store, task="m", index=0)).lease_until == after(1030)
    assert [key.element for key, _ in await store.runs.list_lease_expired(10)] == [3]
    assert await store.runs.renew_leases("node-2", keys, 30) == set()
    assert await store.runs.renew_leases("node-1", [], 30) == set()
    assert (await run_of(store)).revision == revision


async def test_concurrent_claims_of_several_stores_get_different_tasks(database: ContractDatabase) -> None:
    """W-1: no task run is claimed twice, and none is left out."""
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    for run in range(10):
        await make(stores[0], creation(run_row(f"r{run}"), *(task_row("m", index=index) for index in range(12))))
    given: Counter[str] = Counter()

    async def take(store: Store, owner: str) -> None:
        while claimed := await store.runs.claim(claim(4, owner=owner)):
            given.update(names(claimed))
            for one in claimed:
                await make(store, ending(one.run.id, one.task))

    await asyncio.gather(*(take(store, f"n{number}") for number, store in enumerate(stores)))
    assert len(given) == 120
    assert set(given.values()) == {1}
    assert await stores[0].runs.count_claims() == {}
    await asyncio.gather(*(store.close() for store in stores))


async def test_concurrent_claims_of_several_stores_share_a_pool(database: ContractDatabase) -> None:
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    await make(stores[0], creation(None, *(task_row("p", index=index, pool="gpu") for index in range(20))))
    given = await asyncio.gather(*(store.runs.claim(claim(4, pools={"gpu": 6})) for store in stores))
    given.append(await stores[0].runs.claim(claim(pools={"gpu": 6})))  # task runs that concurrent claims passed over
    assert sum(len(one) for one in given) == 6
    await asyncio.gather(*(store.close() for store in stores))
