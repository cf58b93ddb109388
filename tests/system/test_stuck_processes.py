"""Nodes whose process is silent, because a call into C holds the interpreter lock: they live, so nothing is taken."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.system.workflow_nodes import (
    Fleet,
    all_ended,
    check_everything,
    executions,
    fleet_on,
    opened,
    until,
)
from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.store_client import make_store_client
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.telemetry.events import TASK_STUCK

SETTINGS = {
    "heartbeat_interval": "300ms",
    "heartbeat_timeout": "1500ms",
    "lease_ttl": "2s",
    "tick_interval": "100ms",
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """No nodes yet, and a pipe that releases what holds the lock."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.fresh_store()
    os.mkfifo(tmp_path / "pipe")
    async with fleet_on(address, tmp_path) as fleet:
        yield fleet


async def why(store: Store, run: str) -> str:
    """Return what is said about the task, without a node."""
    [sentence] = await make_store_client(store, SystemClock(), Settings(), executor="in_process").explainer.why(
        Caller("public", "test"), run, "holds"
    )
    return sentence


async def test_a_process_that_holds_the_interpreter_lock_is_reported_and_keeps_its_attempt(
    fleet: Fleet, tmp_path: Path
) -> None:
    """W-11: no heartbeat for longer than the timeout, but the process is there: its attempt is its own."""
    stuck = await fleet.add(workflows=["mute"], settings=SETTINGS)
    other = await fleet.add(workflows=["mute"], settings=SETTINGS)
    async with opened(fleet.address) as store:
        [run] = await other.start("mute")
        await until(lambda: len(executions(fleet.notes(), {})) == 1, "the task has begun")

        async def is_reported() -> bool:
            return (await other.metrics())["agent_stuck_tasks"] == 1

        await until(is_reported, "the other node leads, and reports the attempt as stuck")
        assert f"its process {stuck.pid} sends no heartbeats, but lives" in await why(store, run)
        (tmp_path / "pipe").open("w").close()
        await all_ended(store)
        assert (await other.metrics())["agent_lost_tasks_total"] == 0
        await fleet.stop()
        assert [(one.node, one.number) for one in executions(fleet.notes(), {})] == [(stuck.pid, 1)]
        assert {record.run.state for record in await check_everything(fleet)} == {"success"}
        assert (tmp_path / "node 1").read_text().count(TASK_STUCK) == 1


async def test_a_child_that_holds_its_interpreter_lock_is_kept_alive_by_its_node(fleet: Fleet, tmp_path: Path) -> None:
    """W-11: the node sends the heartbeats of its children; the lock of a child is its own."""
    node = await fleet.add(workflows=["mute"], settings=SETTINGS, executor="subprocess")
    other = await fleet.add(workflows=["mute"], settings=SETTINGS)
    async with opened(fleet.address) as store:
        [run] = await node.start("mute")
        await until(lambda: len(executions(fleet.notes(), {})) == 1, "the task has begun")
        [record] = await store.runs.load([run])
        first = record.tasks[0].lease_until
        assert first is not None

        async def is_renewed() -> bool:
            [record] = await store.runs.load([run])
            until = record.tasks[0].lease_until
            return until is not None and (until - first).total_seconds() > 3.0

        await until(is_renewed, "the attempt is kept alive")
        (tmp_path / "pipe").open("w").close()
        await all_ended(store)
        assert [(await one.metrics())["agent_stuck_tasks"] for one in (node, other)] == [0, 0]
        await fleet.stop()
        assert [one.number for one in executions(fleet.notes(), {})] == [1]
        assert {record.run.state for record in await check_everything(fleet)} == {"success"}


async def test_a_stuck_process_that_dies_gives_its_attempt_away_at_once(fleet: Fleet) -> None:
    """W-12: what was reported as stuck is recovered when its process is gone."""
    stuck = await fleet.add(workflows=["mute"], settings=SETTINGS)
    other = await fleet.add(workflows=["mute"], settings=SETTINGS)
    async with opened(fleet.address) as store:
        await other.start("mute")
        await until(lambda: len(executions(fleet.notes(), {})) == 1, "the task has begun")

        async def is_reported() -> bool:
            return (await other.metrics())["agent_stuck_tasks"] == 1

        await until(is_reported, "the other node leads, and reports the attempt as stuck")
        await fleet.kill(stuck)
        await all_ended(store)
        assert (await other.metrics())["agent_lost_tasks_total"] == 1

        async def is_none_stuck() -> bool:
            return (await other.metrics())["agent_stuck_tasks"] == 0

        await until(is_none_stuck, "the leader has looked again, and no attempt is stuck")
        await fleet.stop()
