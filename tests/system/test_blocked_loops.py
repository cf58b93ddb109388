"""Nodes whose event loop is blocked by a task: what they run is theirs for as long as their process is there."""

import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from functools import partial
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
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.storage.graph_ports import PartKey, PartOwner
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Lease
from tidemill.telemetry.events import LEADERSHIP_LOST, LEADERSHIP_WON, LOOP_BLOCKED, LOOP_GIVEN_UP

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
    """A store for nodes that soon give up what is silent."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.fresh_store()
    async with fleet_on(address, tmp_path) as fleet:
        yield fleet


async def add_nodes(fleet: Fleet, **settings: str) -> None:
    """Start two nodes; the first one leads and owns the reactor."""
    for _ in range(2):
        await fleet.add(workflows=["greedy", "patient", "market"], settings=SETTINGS | settings)
    assert await fleet.leader() is fleet.nodes[0]


async def terms(store: Store) -> tuple[Lease, PartOwner]:
    """Return who leads, and who owns the reactor, each with the epoch."""
    lease = await store.leases.current(LEASE_NAME)
    [owner] = await store.part_owners.owners_of([PartKey("public", "reactor", "market")])
    assert lease is not None
    return lease, owner._replace(renewals=0)


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


async def test_a_blocked_loop_costs_neither_leadership_nor_reactors(fleet: Fleet, tmp_path: Path) -> None:
    """D11: a thread renews both for longer than they last; and the log names the task, its file and its line."""
    await add_nodes(fleet)
    async with opened(fleet.address) as store:
        before = await terms(store)
        hog, other, run = await block(fleet)
        await outlast(store, run, 2)
        assert await terms(store) == before
        fleet.let_go()
        await all_ended(store)
        await see_renewals(store)
        assert await terms(store) == before
        assert hog.is_in_office
        assert [line for line in other.said if line["what"] == LEADERSHIP_WON] == []
        metrics = await hog.metrics()
        assert metrics["loop_blocked_total"] == 1
        assert metrics["loop_blocked_seconds_total"] > TIMEOUT.total_seconds()
        await fleet.stop()
        assert {record.run.state for record in await check_everything(fleet)} == {"success"}
    log = (tmp_path / f"node {fleet.all.index(hog)}").read_text()
    assert LOOP_BLOCKED in log


async def see_renewals(store: Store, number: int = 3) -> None:
    """Wait until the owner of the reactor has renewed it a few times."""
    part = PartKey("public", "reactor", "market")
    [first] = await store.part_owners.owners_of([part])

    async def are_seen() -> bool:
        [now] = await store.part_owners.owners_of([part])
        return now.renewals >= first.renewals + number

    await until(are_seen, "the node renews what it owns")


async def test_a_loop_that_is_blocked_for_too_long_costs_its_leadership(fleet: Fleet, tmp_path: Path) -> None:
    """W-11, W-9, D11: after the limit another node leads and owns; the attempts go on, and each was started once."""
    await add_nodes(fleet, blocked_loop_limit="500ms")
    async with opened(fleet.address) as store:
        (_, owner), (hog, other, run) = await terms(store), await block(fleet)
        [execution] = hogs(fleet)
        await fleet.next_leader(execution.begin, SILENCE, but=hog)
        await until(partial(is_owned_elsewhere, store, owner), "another node owns the reactor")
        await outlast(store, run, 1)
        fleet.let_go()
        await all_ended(store)
        await hog.hear(LEADERSHIP_LOST, after=execution.begin)
        for node in (hog, other):
            metrics = await node.metrics()
            assert (metrics["agent_lost_tasks_total"], metrics["late_reports_total"]) == (0, 0)
        await fleet.stop()
        assert [one.number for one in executions(fleet.notes(), {})] == [1, 1]
        assert {record.run.state for record in await check_everything(fleet)} == {"success"}
        assert LOOP_GIVEN_UP in (tmp_path / f"node {fleet.all.index(hog)}").read_text()


async def is_owned_elsewhere(store: Store, before: PartOwner) -> bool:
    """Return whether another node has acquired the reactor."""
    return (await terms(store))[1].epoch > before.epoch


async def test_a_frozen_process_falls_silent_although_its_loop_was_blocked(fleet: Fleet) -> None:
    """W-11, D11: a stopped process renews nothing: others lead, own and run; its late report is refused."""
    await add_nodes(fleet)
    async with opened(fleet.address) as store:
        (lease, owner), (hog, other, run) = await terms(store), await block(fleet)
        await outlast(store, run, 1)
        assert await terms(store) == (lease, owner)
        stopped_at = hog.signal(signal.SIGSTOP)
        try:
            await fleet.next_leader(stopped_at, SILENCE, but=hog)
            await until(partial(is_owned_elsewhere, store, owner), "another node owns the reactor")
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
