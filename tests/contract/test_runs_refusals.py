"""Changes that are refused: what was found must still be so, and a refusal leaves nothing behind."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from itertools import combinations, product
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.run_samples import (
    LEASE,
    after,
    attempt_row,
    creation,
    ending,
    event_row,
    everything,
    fire_row,
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
from tidemill.kernel.clock import VirtualClock
from tidemill.storage.store import Store
from tidemill.workflows.change import Applied, Change, LeaderFence, PoolLimit, Refused, TaskChange
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.states import RunState, TaskState

STALE, FENCED, FIRED, FULL = Refused("stale"), Refused("fenced"), Refused("fired"), Refused("full")
SUPPRESSED, PAUSED, NOT_NEXT = Refused("suppressed"), Refused("paused"), Refused("not_next")
RUNNING = running(queued(task_row("a", pool="gpu")))


async def prepare(store: Store) -> int:
    """Create a run with a row in every table, and return the epoch of the leader."""
    epoch = await store.leases.acquire("leader", "node-1", 60)
    assert epoch is not None
    tasks = [RUNNING, task_row("b", TaskState.NONE), task_row("m", TaskState.NONE)]
    fire = fire_row(slot=after(0), digest="d")
    await make(store, creation(None, *tasks, fire=fire, **returned(output_row(task="m", value=b"before"))))
    return epoch


def big_change(epoch: int, **values: object) -> Change:
    """Return a change that writes to every table, and is not refused."""
    change = ending("r1", RUNNING)
    return replace(
        change,
        fence=LeaderFence("leader", epoch),
        tasks=[*change.tasks, TaskChange(task_row("b", TaskState.NONE), task_row("b"))],
        removed=[task_row("m", TaskState.NONE)],
        added=[task_row("m", index=0), task_row("m", index=1)],
        fire=fire_row(key="t", slot=after(5)),
        cleared_outputs=["m"],
        is_operator_action=True,
        **values,
    )


async def assert_refused(store: Store, change: Change, why: Refused) -> None:
    """Check that a change is refused, and that nothing of it is left."""
    before = await everything(store, ["r1", "r2"])
    assert await store.runs.apply(change) == why
    assert await everything(store, ["r1", "r2"]) == before


async def test_the_big_change_is_applied(store: Store) -> None:
    """Otherwise the tests below would prove nothing."""
    epoch = await prepare(store)
    before = await everything(store, ["r1", "r2"])
    await make(store, big_change(epoch, pools=[PoolLimit("public", "gpu", 0)]))
    assert await everything(store, ["r1", "r2"]) != before


GUARDED = [
    replace(RUNNING, state=TaskState.QUEUED),
    replace(RUNNING, state=TaskState.SUCCESS),
    replace(RUNNING, attempt=0),
    replace(RUNNING, attempt=2),
    replace(RUNNING, claimed_by="node-2"),
    replace(RUNNING, claimed_by=None),
    replace(RUNNING, claimed_by=""),
    replace(RUNNING, task="nothing"),
    replace(RUNNING, index=0),
]


@pytest.mark.parametrize("where", ["changed", "changed last", "removed"])
async def test_a_task_run_must_be_as_it_was_found(store: Store, where: str) -> None:
    """W-1: state, attempt and owner, each of them alone."""
    change = big_change(await prepare(store))
    other = change.tasks[1]
    for found in GUARDED:
        wrong = TaskChange(found, succeeded(found))
        match where:
            case "changed":
                refused = replace(change, tasks=[wrong, other])
            case "changed last":
                refused = replace(change, tasks=[other, wrong])
            case _:
                refused = replace(change, tasks=[other], removed=[found])
        await assert_refused(store, refused, STALE)


@pytest.mark.parametrize("twist", ["changed", "removed", "added", "fenced", "revision"])
async def test_a_change_of_a_run_that_seems_untouched_is_judged_like_any_other(store: Store, twist: str) -> None:
    """W-1, W-8: an unchanged revision does not bypass the guards; neighbours are written all the same."""
    epoch = await prepare(store)
    await make(store, creation(run_row("r2"), task_row(state=TaskState.RUNNING)))
    (record,) = await store.runs.load(["r1"])
    undecided, other = task_row("b", TaskState.NONE), task_row("b", TaskState.SKIPPED)
    good = replace(ending("r1", RUNNING), fence=LeaderFence("leader", epoch), expected_run=record.run)
    bad = {
        "changed": replace(good, tasks=[*good.tasks, TaskChange(other, task_row("b"))]),
        "removed": replace(good, removed=[other]),
        "added": replace(good, added=[undecided]),
        "fenced": replace(good, fence=LeaderFence("leader", epoch - 1)),
        "revision": replace(good, expected_run=replace(record.run, revision=record.run.revision + 7, clears=1)),
    }
    before = [record], await store.runs.read_attempts("r1"), await store.runs.read_events("r1")
    neighbour = ending("r2", task_row(state=TaskState.RUNNING))
    results = await asyncio.gather(store.runs.apply(bad[twist]), store.runs.apply(neighbour))
    assert results == [FENCED if twist == "fenced" else STALE, Applied(2)]
    assert (
        await store.runs.load(["r1"]),
        await store.runs.read_attempts("r1"),
        await store.runs.read_events("r1"),
    ) == before
    assert await store.runs.read_outputs("r1", ["a"]) == []
    assert await store.runs.apply(good) == Applied(record.run.revision + 1)
    assert [event.after for event in await store.runs.read_events("r1")][-1] == "success"


async def test_fields_that_are_not_guarded_may_differ(store: Store) -> None:
    """The reason, the lease, the times: they change without a decision."""
    await prepare(store)
    found = replace(RUNNING, reason="other", lease_until=after(1), since=None, tries=9)
    await make(store, move("r1", found, succeeded(found)))


async def test_guards_hold_in_every_state(store: Store) -> None:
    """W-1: the full product; exactly the right one passes."""
    guards = list(product(TaskState, (0, 1), (None, "node-1")))
    rows = [
        task_row("a", state, attempt=attempt, claimed_by=owner, index=index)
        for index, (state, attempt, owner) in enumerate(guards)
    ]
    await make(store, creation(None, *rows))
    for row in rows:
        found = [replace(row, state=state, attempt=attempt, claimed_by=owner) for state, attempt, owner in guards]
        results = await asyncio.gather(*(store.runs.apply(move("r1", one, row)) for one in found))
        assert [isinstance(result, Applied) for result in results] == [one == row for one in found]


async def test_a_late_report_of_an_old_attempt_is_refused(store: Store) -> None:
    """W-1: also if the same owner has the task again."""
    first = running(queued(task_row()))
    second = running(queued(first))
    await make(store, creation(None, first), move("r1", first, second))
    await assert_refused(store, ending("r1", first), STALE)
    await make(store, ending("r1", second))


async def test_an_expired_task_run_is_taken_over_only_if_its_lease_was_not_renewed(
    store: Store, clock: VirtualClock
) -> None:
    """W-11, I-9: one heartbeat between the read and the write shows that the owner is alive."""
    await make(store, creation(None, RUNNING, lease=LEASE, attempts=[attempt_row()]))
    clock.advance_to(clock.monotonic() + LEASE)
    ((_, seen),) = await store.runs.list_lease_expired(10)
    lost = replace(ending("r1", RUNNING), tasks=[TaskChange(RUNNING, succeeded(RUNNING), seen.lease_until)])
    assert await store.runs.renew_leases("node-1", {AttemptKey("r1", "a", -1, 1)}, LEASE)
    await assert_refused(store, lost, STALE)
    renewed = (await task_of(store)).lease_until
    await make(store, replace(lost, tasks=[TaskChange(RUNNING, succeeded(RUNNING), renewed)]))
    assert (await task_of(store)).state is TaskState.SUCCESS


async def test_a_run_must_be_as_it_was_found(store: Store) -> None:
    """Its state and `clears`; its revision may have moved on."""
    epoch = await prepare(store)
    found = await run_of(store)
    row = replace(found, state=RunState.SUCCESS, ended_at=after(1))
    for wrong in (replace(found, state=RunState.QUEUED), replace(found, clears=1)):
        await assert_refused(store, big_change(epoch, expected_run=wrong, updated_run=row), STALE)
    await make(store, Change(run="r1", history=history(event_row())))
    await make(store, big_change(epoch, expected_run=found, updated_run=row))


async def test_an_operator_action_makes_earlier_decisions_stale(store: Store) -> None:
    await prepare(store)
    found = await run_of(store)
    await make(store, Change(run="r1", is_operator_action=True))
    await assert_refused(store, Change(run="r1", expected_run=found, updated_run=found), STALE)


async def test_a_change_of_a_deleted_run_is_stale(store: Store) -> None:
    await prepare(store)
    await assert_refused(store, Change(run="r2", history=history(event_row("r2"))), STALE)
    await assert_refused(store, Change(run="r2", added=[task_row()], **returned(output_row("r2"))), STALE)


async def test_a_run_is_created_once(store: Store) -> None:
    await prepare(store)
    await assert_refused(store, creation(run_row(reason="again"), task_row("new")), STALE)


async def test_a_task_run_is_added_once(store: Store) -> None:
    epoch = await prepare(store)
    await assert_refused(store, replace(big_change(epoch), added=[task_row("new"), task_row("b")]), STALE)


async def test_a_former_leader_changes_nothing(store: Store) -> None:
    """W-8."""
    epoch = await prepare(store)
    assert await store.leases.acquire("leader", "node-2", 60, dead_holders=["node-1"]) == epoch + 1
    await assert_refused(store, big_change(epoch), FENCED)
    await assert_refused(store, big_change(epoch + 2), FENCED)
    await make(store, big_change(epoch + 1))


async def test_a_lease_without_a_holder_fences_every_change(store: Store) -> None:
    epoch = await prepare(store)
    await assert_refused(store, replace(big_change(epoch), fence=LeaderFence("other", epoch)), FENCED)


async def test_a_slot_has_one_run_permanently(store: Store) -> None:
    """W-13: also after its run has ended."""
    await prepare(store)
    again = creation(run_row("r2"), fire=fire_row("r2", slot=after(0)))
    await assert_refused(store, again, FIRED)
    found = await run_of(store)
    await make(store, Change(run="r1", updated_run=replace(found, state=RunState.SUCCESS, ended_at=after(1))))
    await assert_refused(store, again, FIRED)
    for key, values in [("r3", {"slot": after(1)}), ("r4", {"key": "t"}), ("r5", {"workflow": "w"})]:
        await make(store, creation(run_row(key), fire=fire_row(key, **({"slot": after(0)} | values))))  # type: ignore[operator]
    await make(store, creation(run_row("r6"), fire=fire_row("r6", tenant="other", slot=after(0))))


async def test_a_payload_has_one_run_while_that_is_active(store: Store) -> None:
    await prepare(store)
    again = creation(run_row("r2"), fire=fire_row("r2", digest="d"))
    await assert_refused(store, again, FIRED)
    for run, values in [("r3", {"digest": "e"}), ("r4", {"key": "t"}), ("r5", {"tenant": "other"})]:
        await make(store, creation(run_row(run), fire=fire_row(run, **({"digest": "d"} | values))))
    found = await run_of(store)
    await make(store, Change(run="r1", updated_run=replace(found, state=RunState.QUEUED)))
    await assert_refused(store, again, FIRED)
    await make(store, Change(run="r1", updated_run=replace(found, state=RunState.CANCELLED, ended_at=after(1))))
    await make(store, again)
    await assert_refused(store, creation(run_row("r7"), fire=fire_row("r7", digest="d")), FIRED)


async def test_a_run_that_is_active_again_counts_for_its_payload(store: Store) -> None:
    """The first of two with the same payload was cleared after both had ended."""
    ended = {"state": RunState.SUCCESS, "ended_at": after(1)}
    for run in ("r1", "r2"):
        await make(store, creation(run_row(run, **ended), fire=fire_row(run, digest="d")))
    await make(store, Change(run="r1", updated_run=run_row("r1"), is_operator_action=True))
    await assert_refused(store, creation(run_row("r3"), fire=fire_row("r3", digest="d")), FIRED)


def about(run: str, dedup: str = "sensor-1", **values: Any) -> Change:
    """Return the creation of a run by a fire that is about something; every fire has a key of its own."""
    fire = fire_row(run, **({"key": run, "slot": after(0), "dedup": dedup} | values))
    return creation(run_row(run, workflow=fire.workflow, tenant=fire.tenant), fire=fire)


async def test_something_has_one_run_while_that_is_active(store: Store) -> None:
    """api.md, `dedup` alone: whatever the key of the fire."""
    await make(store, about("r1"))
    await assert_refused(store, about("r2"), SUPPRESSED)
    await make(store, about("r3", "sensor-2"))
    await make(store, about("r4", workflow="other"))
    await make(store, about("r5", tenant="other"))
    await make(store, Change(run="r1", updated_run=run_row("r1", state=RunState.SUCCESS, ended_at=after(1))))
    await make(store, about("r2"))
    await assert_refused(store, about("r6"), SUPPRESSED)


async def test_something_has_one_run_per_cooldown(store: Store) -> None:
    """api.md: counted from the fire that started the last one, even if its run has ended or was deleted."""
    minute = {"cooldown": timedelta(minutes=1)}
    await make(store, about("r1", at=after(0), **minute))
    await make(store, Change(run="r1", updated_run=run_row("r1", state=RunState.SUCCESS, ended_at=after(1))))
    assert await store.runs.prune("public", after(1e6), 10) == 1
    await assert_refused(store, about("r2", at=after(59.999), **minute), SUPPRESSED)
    await make(store, about("r3", "sensor-2", at=after(1), **minute))
    await make(store, about("r4", at=after(60), **minute))
    await assert_refused(store, about("r5", at=after(90), **minute), SUPPRESSED)
    await assert_refused(store, about("r5", at=after(30), **minute), SUPPRESSED)
    await make(store, about("r5", at=after(120), **minute))


async def test_a_clock_that_is_set_back_does_not_prolong_a_cooldown(store: Store) -> None:
    """A fire an hour before the last one has a cooldown of its own, and so has one in between."""
    minute = {"cooldown": timedelta(minutes=1)}
    await make(store, about("r1", at=after(3600), **minute))
    await make(store, about("r2", at=after(0), **minute))
    await assert_refused(store, about("r3", at=after(59), **minute), SUPPRESSED)
    await assert_refused(store, about("r3", at=after(3541), **minute), SUPPRESSED)
    await make(store, about("r3", at=after(3540), **minute))


async def test_a_fire_that_is_repeated_has_fired_and_is_not_suppressed(store: Store) -> None:
    """A delivery that is repeated after a crash is no second alarm."""
    await make(store, about("r1", key="firing", cooldown=timedelta(minutes=1)))
    await assert_refused(store, about("r2", key="firing", cooldown=timedelta(minutes=1)), FIRED)


async def test_fires_without_slot_or_payload_are_all_different(store: Store) -> None:
    for number in range(3):
        await make(store, creation(run_row(f"r{number}"), fire=fire_row(f"r{number}")))


async def test_a_pool_has_a_limited_number_of_slots(store: Store) -> None:
    """Counted after the change, in the tenant, over all runs; every queued or running task run takes a slot."""
    await prepare(store)
    waiting = [task_row("a", pool="gpu", index=index) for index in range(3)]
    await make(store, creation(run_row("r2"), *waiting))
    limit = [PoolLimit("public", "gpu", 2)]
    await make(store, move("r2", waiting[0], queued(waiting[0]), pools=limit))
    await assert_refused(store, move("r2", waiting[1], queued(waiting[1]), pools=limit), FULL)
    both = [TaskChange(row, queued(row)) for row in waiting[1:]]
    await assert_refused(store, Change(run="r2", tasks=both, pools=[PoolLimit("public", "gpu", 3)]), FULL)
    await make(store, ending("r1", RUNNING))
    await make(store, move("r2", waiting[1], queued(waiting[1]), pools=limit))


async def test_the_stored_size_of_a_pool_is_its_limit(store: Store) -> None:
    """Whatever a process believes, it does not exceed the size that the store has."""
    waiting = [task_row("a", pool="gpu", index=index) for index in range(3)]
    await make(store, creation(run_row("r1"), *waiting))
    await store.pools.set_sizes({"gpu": 1})
    wide, narrow = [PoolLimit("public", "gpu", 9)], [PoolLimit("public", "gpu", 1)]
    await make(store, move("r1", waiting[0], queued(waiting[0]), pools=wide))
    await assert_refused(store, move("r1", waiting[1], queued(waiting[1]), pools=wide), FULL)
    await store.pools.set_sizes({"gpu": 2})
    await make(store, move("r1", waiting[1], queued(waiting[1]), pools=narrow))
    await assert_refused(store, move("r1", waiting[2], queued(waiting[2]), pools=wide), FULL)


async def test_pools_of_other_tenants_and_names_do_not_count(store: Store) -> None:
    row = task_row("a", pool="gpu")
    for run, tenant in (("r1", "a"), ("r2", "b")):
        await make(store, creation(run_row(run, tenant=tenant), row))
        await make(store, move(run, row, queued(row), pools=[PoolLimit(tenant, "gpu", 1), PoolLimit(tenant, "x", 0)]))


async def queue(store: Store, *runs: str, **values: object) -> None:
    """Create queued runs, one after the other."""
    for run in runs:
        await make(store, creation(run_row(run, state=RunState.QUEUED, **values)))


async def beginning(store: Store, run: str, *passes_over: str) -> Change:
    """Return the change that begins a queued run."""
    found = await run_of(store, run)
    begun = replace(found, state=RunState.RUNNING, started_at=after(1))
    return Change(run=run, expected_run=found, updated_run=begun, passes_over=passes_over)


async def test_runs_are_numbered_in_the_order_of_their_creation(store: Store) -> None:
    """The store gives the numbers, in the order of the changes: clocks and ids do not matter."""
    names = [f"r{number}" for number in (5, 2, 9, 1, 7)]
    changes = [creation(run_row(name, created_at=after(-number))) for number, name in enumerate(names)]
    results = await asyncio.gather(*(store.runs.apply(change) for change in changes))
    numbers = [result.sequence for result in results if isinstance(result, Applied)]
    assert numbers == sorted(set(numbers))
    assert [(await run_of(store, name)).sequence for name in names] == numbers
    assert await store.runs.apply(ending("r5", await task_of(store, "r5"))) == Applied(2)


async def test_no_run_begins_before_an_older_one_of_its_workflow(store: Store) -> None:
    """The transaction decides: a leader may not know of a run that another process has just created."""
    await queue(store, "r2", "r1", "r3")
    await assert_refused(store, await beginning(store, "r1"), NOT_NEXT)
    await assert_refused(store, await beginning(store, "r3", "r2"), NOT_NEXT)
    await assert_refused(store, creation(run_row("r4"), passes_over=()), NOT_NEXT)
    await make(store, creation(run_row("r5"), passes_over=("r1", "r2", "r3")))
    await make(store, await beginning(store, "r2"), await beginning(store, "r1"), await beginning(store, "r3"))
    await make(store, creation(run_row("r4"), passes_over=()))


async def test_only_queued_runs_of_the_same_workflow_are_older(store: Store) -> None:
    """Neither other tenants and workflows, nor backfills, which have a limit of their own."""
    await queue(store, "t", tenant="other")
    await queue(store, "w", workflow="other")
    await queue(store, "b", backfill="b1")
    await make(store, creation(run_row("running")), creation(run_row("r1"), passes_over=()))


async def test_runs_that_begin_together_begin_in_order(store: Store) -> None:
    """Also in one transaction, and none if the oldest of them is refused."""
    await queue(store, "r1", "r2", "r3")
    changes = [await beginning(store, run) for run in ("r1", "r2", "r3")]
    stale = replace(changes[0], expected_run=replace(await run_of(store, "r1"), clears=7))
    results = await asyncio.gather(*(store.runs.apply(change) for change in [stale, *changes[1:]]))
    assert results == [STALE, NOT_NEXT, NOT_NEXT]
    results = await asyncio.gather(*(store.runs.apply(change) for change in changes))
    assert [isinstance(result, Applied) for result in results] == [True, True, True]


async def test_a_former_leader_begins_no_run(store: Store) -> None:
    """W-8: fenced before not_next, so that it steps down."""
    epoch = await prepare(store)
    await queue(store, "r2", "r3")
    fence = LeaderFence("leader", epoch + 1)
    await assert_refused(store, replace(await beginning(store, "r3"), fence=fence), FENCED)


REASONS = [FENCED, STALE, FIRED, FULL]


async def test_the_weightiest_reason_is_returned(store: Store) -> None:
    """Fenced before stale before fired before full."""
    epoch = await prepare(store)
    for size in range(1, 5):
        for wrong in combinations(range(4), size):
            await assert_refused(store, _wrong(epoch, wrong), REASONS[min(wrong)])


def _wrong(epoch: int, wrong: Collection[int]) -> Change:
    change = big_change(epoch + 1 if 0 in wrong else epoch)
    if 1 in wrong:
        change = replace(change, removed=[task_row("m", attempt=7)])
    if 2 in wrong:
        change = replace(change, fire=fire_row(slot=after(0)))
    return replace(change, pools=[PoolLimit("public", "gpu", -1 if 3 in wrong else 1)])


async def test_fires_are_unique_across_stores(database: ContractDatabase) -> None:
    """W-13: competing schedulers make one run of a slot."""
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    for slot in range(10):
        runs = [f"r{slot}-{number}" for number in range(3)]
        changes = [creation(run_row(run), fire=fire_row(run, slot=after(slot))) for run in runs]
        calls = zip(stores, changes, strict=True)
        results = await asyncio.gather(*(store.runs.apply(change) for store, change in calls))
        assert sorted(isinstance(result, Applied) for result in results) == [False, False, True]
        assert results.count(FIRED) == 2
        assert len(await stores[0].runs.load(runs)) == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_one_of_several_stores_changes_a_task_run(database: ContractDatabase) -> None:
    """W-1."""
    stores = [database.store() for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    row = task_row()
    await make(stores[0], creation(None, row))
    for _ in range(10):
        taken = [queued(row, f"node-{number}") for number in range(3)]
        calls = (store.runs.apply(move("r1", row, one)) for store, one in zip(stores, taken, strict=True))
        results = await asyncio.gather(*calls)
        (winner,) = [number for number, result in enumerate(results) if isinstance(result, Applied)]
        assert results.count(STALE) == 2
        found = await task_of(stores[winner])
        assert found.claimed_by == f"node-{winner}"
        row = replace(found, state=TaskState.SCHEDULED, claimed_by=None)
        await make(stores[0], move("r1", found, row))
    await asyncio.gather(*(store.close() for store in stores))


# -- pauses


async def test_no_run_of_a_paused_workflow_is_created(store: Store) -> None:
    """cloacina.md 131: whatever started it; not even its slot is recorded."""
    await store.schedules.pause("public", "flow")
    await assert_refused(store, creation(), PAUSED)
    await assert_refused(store, creation(fire=fire_row(slot=after(0), digest="d")), PAUSED)
    others = [run_row("r2", workflow="other"), run_row("r3", tenant="other")]
    await make(store, *(creation(run) for run in others))
    await store.schedules.resume("public", "flow", after(0))
    await make(store, creation(fire=fire_row(slot=after(0), digest="d")))


async def test_a_pause_prevents_nothing_else(store: Store) -> None:
    """131: existing runs continue, and are changed as before."""
    epoch = await prepare(store)
    await store.schedules.pause("public", "flow")
    await make(store, big_change(epoch))


async def test_which_refusal_comes_first(store: Store) -> None:
    """A lost lease is reported before the pause, and the pause before the slot or an existing run."""
    epoch = await prepare(store)
    await store.schedules.pause("public", "flow")
    await assert_refused(store, creation(fence=LeaderFence("leader", epoch + 1)), FENCED)
    await assert_refused(store, creation(), PAUSED)
    await assert_refused(store, creation(run_row("r2"), fire=fire_row(run="r2", slot=after(0))), PAUSED)


async def test_runs_that_are_created_together_are_judged_one_by_one(store: Store) -> None:
    """131: a pause of one workflow is none of another."""
    await store.schedules.pause("public", "flow")
    changes = [creation(run_row("r1")), creation(run_row("r2", workflow="other")), creation(run_row("r3"))]
    first, second, third = await asyncio.gather(*(store.runs.apply(one) for one in changes))
    assert (first, third) == (PAUSED, PAUSED)
    assert isinstance(second, Applied)


async def test_a_pause_holds_on_every_node_at_once(database: ContractDatabase) -> None:
    """131: as soon as it is written."""
    here, there = database.store(), database.store()
    await here.open()
    await there.open()
    await there.schedules.pause("public", "flow")
    assert await here.runs.apply(creation()) == PAUSED
    await there.schedules.resume("public", "flow", after(0))
    assert isinstance(await here.runs.apply(creation()), Applied)
    await here.close()
    await there.close()
