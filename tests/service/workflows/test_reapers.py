"""The two reapers: they act only on a positive sign that a run or an attempt will never be updated again."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START
from tests.service.workflows.faults import (
    QUICK,
    Neighbour,
    blocked_flow,
    breaking,
    lose_overdue,
    miss_ends,
    only_task,
    overwrite,
    plain_flow,
    store_of,
    troubles,
    write_orphan,
)
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.states import RunState, TaskState

THRESHOLD = timedelta(minutes=5)
ACTIVE = [state for state in TaskState if state.is_active]


def pair_flow() -> tm.Workflow:
    """Return workflow `flow`: `second` comes after `first`."""
    flow = tm.Workflow("flow")

    @flow.task
    async def first() -> int:
        return 1

    @flow.task(after=["first"])
    async def second() -> int:
        return 2

    return flow


# -- runs


@pytest.mark.parametrize("active", ACTIVE)
async def test_anything_active_protects_a_run_however_old(
    store: str | None, active: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10, contract 39: one active task is enough."""
    flow = pair_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        states = {"first": TaskState.SUCCESS, "second": active}
        await write_orphan(node, flow, "r1", states, START - timedelta(days=30))
        await node.probe.workflows.scheduler.run_reaper.reap()
        assert (await store_of(node).runs.load(["r1"]))[0].run.state is RunState.RUNNING
        assert troubles(node) == {}


@pytest.mark.parametrize(
    ("age", "is_reaped"),
    [
        (THRESHOLD + timedelta(microseconds=1), True),
        (THRESHOLD - timedelta(seconds=1), False),
        (-timedelta(hours=1), False),
    ],
)
async def test_a_run_is_reaped_from_its_threshold_on(
    store: str | None, age: timedelta, is_reaped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10, contract 42: at the threshold, and not before it; a time in the future is no age at all."""
    flow = plain_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await write_orphan(node, flow, "r1", {"work": TaskState.SUCCESS}, START - age)
        await node.advance("1ms")
        await node.probe.workflows.scheduler.run_reaper.reap()
        assert troubles(node) == ({"orphan_reaped": 1} if is_reaped else {})


async def test_an_orphan_gets_its_true_outcome_and_is_left_alone_after(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10, contracts 40, 41: its leaves decide; the second pass finds nothing."""
    flow = pair_flow()
    miss_ends(monkeypatch)
    old = START - timedelta(hours=1)
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await write_orphan(node, flow, "good", {"first": TaskState.SUCCESS, "second": TaskState.SUCCESS}, old)
        await write_orphan(node, flow, "bad", {"first": TaskState.SUCCESS, "second": TaskState.FAILED}, old)
        await node.advance("10m")
        assert (await node.run_handle("good").state()).state is RunState.SUCCESS
        assert (await node.run_handle("bad").state()).state is RunState.FAILED
        events = await store_of(node).runs.read_events("good")
        await node.advance("20m")
        assert await store_of(node).runs.read_events("good") == events
        assert troubles(node) == {"orphan_reaped": 2}


async def test_what_no_leader_decided_on_is_planned_once_more(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10: `none` left over comes to its turn, and the run to its end, without being failed."""
    flow = pair_flow()
    miss_ends(monkeypatch)
    states = {"first": TaskState.SUCCESS, "second": TaskState.NONE}
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await write_orphan(node, flow, "r1", states, START - timedelta(hours=1))
        await node.advance("1m")
        result = await node.run_handle("r1").state()
        assert (result.state, result.tasks["second"].output) == (RunState.RUNNING, 2)
        assert troubles(node) == {}
        await node.advance("10m")  # and its end is missed again
        assert (await node.run_handle("r1").state()).state is RunState.SUCCESS
        assert troubles(node) == {"orphan_reaped": 1}


async def test_if_nothing_results_the_run_is_failed_as_orphaned(
    store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-10: a plan that decides nothing, although no task is active, must not leave a run behind."""
    flow = plain_flow()
    async with tm.testing.node(store, load=[flow], start=START) as node:
        monkeypatch.setattr("tidemill.workflows.run_draft.plan", lambda run, now: [])
        await write_orphan(node, flow, "r1", {"work": TaskState.NONE}, START - timedelta(hours=1))
        await node.advance("1m")
        result = await node.run_handle("r1").state()
        assert result.state is RunState.FAILED
        assert "orphaned" in result.reason
        assert troubles(node) == {"orphan_reaped": 1}


async def test_a_backlog_drains_over_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """W-10, contract 49: at most 100 a pass; 250 are gone after three."""
    flow = plain_flow()
    miss_ends(monkeypatch)
    async with tm.testing.node(load=[flow], start=START) as node:
        for number in range(250):
            age = timedelta(hours=1) - timedelta(seconds=number)
            await write_orphan(node, flow, f"r{number:03}", {"work": TaskState.SUCCESS}, START - age)
        await node.probe.workflows.coordinator.refresh()
        reaper, seen = node.probe.workflows.scheduler.run_reaper, []
        for _ in range(4):
            await reaper.reap()
            seen.append(node.metrics()["orphan_reaped"])
        assert seen == [100, 200, 250, 250]
        left = await store_of(node).runs.find(RunFilter(tenant="public", states=[RunState.RUNNING]))
        assert left == []


# -- tasks


async def test_lost_after_90_seconds_of_silence_and_not_before(store: str | None) -> None:
    """W-11, contracts 43, 71: within the threshold and two ticks."""
    flow, _ = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("10s")  # no heartbeat yet: the claim itself is the last sign of life
        await node.kill_worker()
        await node.advance("79s")
        assert (await run.state()).tasks["work"].state is TaskState.RUNNING
        assert troubles(node) == {}
        await node.advance("3s")
        assert troubles(node) == {"agent_lost_tasks_total": 1}
        (lost, again) = await store_of(node).runs.read_attempts(run.id)
        assert (lost.outcome, again.outcome) == ("lost", "")


async def test_also_after_a_long_quiet_time(store: str | None) -> None:
    """W-11: a node with nothing to do ticks rarely; as soon as it has, it keeps to its rhythm."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        await node.advance("3h")
        await node.start("flow")
        await node.advance("1s")
        await node.kill_worker()
        await node.advance("100s")
        assert troubles(node) == {"agent_lost_tasks_total": 1}
        assert len(blocked.begun) == 2


async def test_a_healthy_task_is_never_touched(store: str | None) -> None:
    """W-11, contract 45: ten times the threshold, and a heartbeat that failed now and then."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        for _ in range(5):
            await node.advance("2m50s")
            with breaking(store_of(node).runs, "renew_leases", times=1):
                await node.advance("16s")
        assert troubles(node) == {"heartbeat_errors_total": 5}
        blocked.go.set()
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS
        assert blocked.begun == [f"{run.id}/work#1"]


async def test_what_lives_under_the_leaders_own_eyes_is_never_lost(store: str | None) -> None:
    """W-11: an expired lease means nothing if the leader itself runs the attempt; only its heartbeats do not arrive."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("40s")
        with breaking(node.probe.workflows.heartbeats, "renew_leases", StoreError("refused")):
            await node.advance("10m")
        assert "agent_lost_tasks_total" not in troubles(node)
        blocked.go.set()
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS
        assert len(blocked.begun) == 1


async def test_no_node_is_lost_because_the_store_was_away(store: str | None) -> None:
    """W-11, fault 28: leases expired during an outage of the store; after it, heartbeats are awaited first."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("20s")
        runs = store_of(node).runs
        with breaking(runs, "renew_leases"), breaking(runs, "list_active"), breaking(runs, "count_claims"):
            await node.advance("10m")
        await node.advance("5m")
        assert "agent_lost_tasks_total" not in troubles(node)
        blocked.go.set()
        await node.settle()
        assert (await run.state()).state is RunState.SUCCESS
        assert len(blocked.begun) == 1


async def test_a_new_leader_listens_before_it_judges(store: str | None) -> None:
    """W-11: an attempt of an unknown owner whose lease expired long ago is kept for two heartbeats."""
    flow, _ = blocked_flow()
    async with Neighbour(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        await overwrite(node, run.id, claimed_by="elsewhere")  # leased for 0 s: it has run out already
        node.probe.workflows.step_down()
        await node.advance("28s")
        assert "agent_lost_tasks_total" not in troubles(node)
        await node.advance("10s")
        assert troubles(node)["agent_lost_tasks_total"] == 1


async def test_a_node_that_was_suspended_listens_before_it_judges(store: str | None) -> None:
    """W-11, fault 50: time jumps over its own ticks; what looks silent may only not have been heard."""
    flow, _ = blocked_flow()
    async with Neighbour(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("40s")
        await overwrite(node, run.id, claimed_by="elsewhere")
        node.clock.advance_to(node.clock.monotonic() + 600)
        await node.advance("20s")
        assert "agent_lost_tasks_total" not in troubles(node)
        await node.advance("20s")
        assert troubles(node)["agent_lost_tasks_total"] == 1


async def test_a_heartbeat_between_the_look_and_the_write_saves_the_attempt(store: str | None) -> None:
    """W-11, I-9: the evidence is compared when the loss is written."""
    flow, _ = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("40s")
        await overwrite(node, run.id, claimed_by="elsewhere")
        runs = store_of(node).runs
        overdue, beat = runs.list_lease_expired, runs.renew_leases
        row = await only_task(node, run.id)
        key = (await runs.read_attempts(run.id))[-1].key

        async def look_and_beat(limit: int) -> Any:
            found = await overdue(limit)
            assert [one.attempt for _, one in found] == [row.attempt]
            assert await beat("elsewhere", {key}, 90.0) == {key}
            return found

        runs.list_lease_expired = look_and_beat
        await node.probe.workflows.scheduler.task_reaper.reap_expired_leases()
        runs.list_lease_expired = overdue
        assert "agent_lost_tasks_total" not in troubles(node)
        assert (await only_task(node, run.id)).state is TaskState.RUNNING


async def test_after_three_recoveries_it_is_failed_with_the_reason(store: str | None) -> None:
    """W-11, I-19: a task that kills its workers is not recovered without limit; its retries are another budget."""
    flow, blocked = blocked_flow(retry=tm.Retry(5, delay="1s"))
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        for _ in range(4):
            await node.advance("1s")
            await node.kill_worker()
            await node.advance("95s")
        result = await run.state()
        assert result.state is RunState.FAILED
        assert "lost 4 times: no heartbeat for 90 s" in result.tasks["work"].reason
        assert len(blocked.begun) == 4
        assert troubles(node) == {"agent_lost_tasks_total": 4}


async def test_a_late_report_of_a_lost_attempt_is_refused_and_counted(store: str | None) -> None:
    """W-1, W-11, contract 48: it does not resurrect the attempt, and does not disturb the next one."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("40s")
        with breaking(node.probe.workflows.heartbeats, "renew_leases", StoreError("frozen")):
            await node.advance("100s")  # alive, but no other node hears of it
            await lose_overdue(node)
        assert troubles(node)["agent_lost_tasks_total"] == 1
        assert len(blocked.begun) == 2
        blocked.go.set()
        await node.advance("1s")
        assert (await run.state()).state is RunState.SUCCESS
        assert troubles(node)["late_reports_total"] == 1
        outcomes = [one.outcome for one in await store_of(node).runs.read_attempts(run.id)]
        assert outcomes == ["lost", "success"]
        assert not node.probe.workflows.attempts.claimed


async def test_a_candidate_that_fails_does_not_keep_the_others(store: str | None) -> None:
    """W-5, F7: one whose run cannot be planned is counted; the rest are taken back in the same pass."""
    flow, _blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        poisoned, healthy = await node.start("flow"), await node.start("flow")
        await node.advance("1s")
        await node.kill_worker()
        node.break_run(poisoned.id)
        await node.advance("95s")
        assert node.metrics()["agent_lost_tasks_total"] == 1
        assert node.metrics()["agent_lost_error"] >= 1
        assert (await healthy.state()).tasks["work"].attempts == 2


async def test_what_a_dead_process_ran_resumes_at_once(store: str | None) -> None:
    """W-12, contract 46: the successor knows that its predecessor is gone; it does not wait for the lease."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        node = await node.crash()
        await node.advance("0ms")
        assert blocked.begun == [f"{run.id}/work#1", f"{run.id}/work#2"]
        assert troubles(node) == {"agent_lost_tasks_total": 1}
        assert (await only_task(node, run.id)).recoveries == 1


async def test_a_claimed_task_that_never_began_is_recovered(store: str | None) -> None:
    """Contract 47: queued is leased as running is."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        node.slow_executor("1h")
        run = await node.start("flow")
        await node.advance("1s")
        assert (await only_task(node, run.id)).state is TaskState.QUEUED
        node = await node.crash()
        await node.advance("0ms")
        assert blocked.begun == [f"{run.id}/work#2"]


async def test_writes_are_fenced_by_attempt_and_owner(store: str | None) -> None:
    """W-1: a report of the right attempt by the wrong owner, or the other way round, changes nothing."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        await overwrite(node, run.id, claimed_by="elsewhere")
        blocked.go.set()
        await asyncio.sleep(0)
        await node.advance("1s")
        row = await only_task(node, run.id)
        assert (row.state, row.claimed_by) == (TaskState.RUNNING, "elsewhere")
        assert troubles(node) == {"late_reports_total": 1}
