"""Nodes whose event loop is blocked by a task: what they run is theirs for as long as their process is there."""

import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.simulation.run_audit import audit
from tests.system.workflow_nodes import (
    Execution,
    Fleet,
    NodeProcess,
    all_ended,
    check_everything,
    executions,
    fleet_on,
    opened,
    specs,
    until,
)
from tidemill.storage.store import Store
from tidemill.telemetry.events import LEADERSHIP_LOST, LOOP_BLOCKED

TIMEOUT = timedelta(seconds=2)
SETTINGS = {
    "heartbeat_interval": "400ms",
    "heartbeat_timeout": "2s",
    "lease_ttl": "2s",
    "tick_interval": "100ms",
}
SILENCE = 5.0  # seconds until another one plans, after the loop of the leader stood still


@pytest.fixture(params=["sqlite", "postgresql"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Two nodes on one store that soon give up what is silent."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.fresh_store()
    async with fleet_on(address, tmp_path) as fleet:
        for _ in range(2):
            await fleet.add(workflows=["greedy", "patient"], settings=SETTINGS)
        yield fleet


async def block(fleet: Fleet) -> tuple[NodeProcess, NodeProcess, str]:
    """Let a task block the loop of the leader, beside one on a thread; return that node, the other, and the run."""
    leader = await fleet.leader()
    other = next(node for node in fleet.nodes if node is not leader)
    await leader.start("patient")
    await until(lambda: len(executions(fleet.notes(), {})) == 1, "a task runs on a thread")
    [run] = await other.start("greedy")
    await until(lambda: bool(hogs(fleet)), "a task blocks a loop")
    assert {one.node for one in executions(fleet.notes(), {})} == {leader.pid}
    return leader, other, run


def hogs(fleet: Fleet) -> list[Execution]:
    """Return the executions of tasks that block their loop."""
    return [one for one in executions(fleet.notes(), {}) if one.who.endswith("/hog")]


async def lease(store: Store, run: str) -> datetime:
    """Return until when the first attempt at a run's only task is its owner's."""
    [record] = await store.runs.load([run])
    [row] = record.tasks
    assert row.attempt == 1, f"it was given to another worker: {row}"
    assert row.lease_until is not None
    return row.lease_until


async def outlast(store: Store, run: str, timeouts: int) -> None:
    """Wait until a lease was renewed until long after the loop could have renewed it for the last time."""
    first = await lease(store, run)

    async def is_renewed() -> bool:
        return await lease(store, run) > first + timeouts * TIMEOUT

    await until(is_renewed, "the attempt is kept alive")


async def test_a_task_that_blocks_the_loop_is_alive(fleet: Fleet, tmp_path: Path) -> None:
    """W-11, W-9: it and what else runs there are begun once, however long it blocks; only the office goes."""
    async with opened(fleet.address) as store:
        hog, other, run = await block(fleet)
        [execution] = hogs(fleet)
        await fleet.next_leader(execution.begin, SILENCE, but=hog)
        await outlast(store, run, 2)
        fleet.let_go()
        await all_ended(store)
        await hog.hear(LEADERSHIP_LOST, after=execution.begin)
        for node in (hog, other):
            metrics = await node.metrics()
            assert (metrics["agent_lost_tasks_total"], metrics["late_reports_total"]) == (0, 0)
        await fleet.stop()
        assert [one.number for one in executions(fleet.notes(), {})] == [1, 1]
        assert {record.run.state for record in await check_everything(fleet)} == {"success"}
        assert LOOP_BLOCKED in (tmp_path / f"node {fleet.all.index(hog)}").read_text()


async def test_a_frozen_process_falls_silent_although_its_loop_was_blocked(fleet: Fleet) -> None:
    """W-11: a stopped process sends no heartbeat; what it ran is given away, and its late report is refused."""
    async with opened(fleet.address) as store:
        hog, other, run = await block(fleet)
        await outlast(store, run, 1)
        hog.signal(signal.SIGSTOP)
        try:
            await until(lambda: len(hogs(fleet)) == 2, "the task was begun elsewhere")
        finally:
            hog.signal(signal.SIGCONT)
        assert [(one.node, one.number) for one in hogs(fleet)] == [(hog.pid, 1), (other.pid, 2)]
        fleet.let_go()
        await all_ended(store)

        async def is_refused() -> bool:
            return (await hog.metrics())["late_reports_total"] > 0

        await until(is_refused, "what it reported late was refused")
        await fleet.stop()
        assert {record.run.state for record in await audit(store, specs())} == {"success"}
        outcomes = [row.outcome for row in await store.runs.read_attempts(run)]
        assert outcomes == ["lost", "success"]
