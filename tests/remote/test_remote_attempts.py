"""Remote attempts end to end: real processes run them, and report to a real server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.executor_harness import until
from tests.remote.local_launcher import LocalLauncher, is_alive
from tests.remote.remote_node import (
    TIMEOUT,
    RemoteNode,
    attempts_of,
    first_attempt,
    messages_of,
    remote_node,
    starts,
    task_state,
)
from tests.service.server.serving_node import Served
from tidemill.engine.workflows.executors.remote.exit_codes import NOT_WANTED
from tidemill.workflows.states import RunState, TaskState


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[LocalLauncher]:
    """A cluster of this machine."""
    launcher = LocalLauncher(tmp_path / "units")
    yield launcher
    launcher.end()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of a store that several nodes may use."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def server(store: str, launcher: LocalLauncher) -> AsyncIterator[Served]:
    """A served node."""
    async with remote_node(store, launcher) as server:
        yield server


def node_of(server: Served) -> RemoteNode:
    """Return the node of a server."""
    assert isinstance(server.node, RemoteNode)
    return server.node


async def test_a_unit_runs_the_code_and_reports_its_result_and_log(server: Served, tmp_path: Path) -> None:
    """W-2: running begins with the unit's own handshake; what follows is planned at once."""
    run = await node_of(server).begin(tmp_path)
    await until(lambda: starts(tmp_path))
    assert await task_state(server, run) is TaskState.RUNNING
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["double"].output) == (7, 14)
    assert await messages_of(server, run) == ["begun", "printed"]


async def test_the_log_is_readable_while_the_code_runs(server: Served, tmp_path: Path) -> None:
    """Streams logs within half a second."""
    run = await node_of(server).begin(tmp_path)
    await until(lambda: starts(tmp_path))
    await asyncio.sleep(0.6)
    assert "begun" in await messages_of(server, run)
    (tmp_path / "gate").touch()
    await run.wait(timeout=TIMEOUT)


async def test_a_failure_of_the_code_uses_the_authors_retries(server: Served, tmp_path: Path) -> None:
    run = await node_of(server).begin(tmp_path, "flaky")
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["fail_once"].output, result.tasks["fail_once"].attempts) == ("recovered", 2)
    first, _ = await attempts_of(server, run, "fail_once")
    assert (first.outcome, first.error and first.error.message) == ("failed", "broken on purpose")


async def test_a_cancelled_run_stops_the_unit(server: Served, tmp_path: Path) -> None:
    """Tasks: cancel reaches the running code."""
    node = node_of(server)
    run = await node.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    pid = node.launcher.pid(first_attempt(run))
    await run.cancel()
    assert (await run.wait(timeout=TIMEOUT)).state is RunState.CANCELLED
    await until(lambda: not is_alive(pid))
    await until(lambda: node.launcher.free_slots() == 8)


async def test_an_attempt_survives_a_restart_of_the_server(store: str, launcher: LocalLauncher, tmp_path: Path) -> None:
    """A result that is ready while no server answers waits, and is delivered to the next one: the node adopts it."""
    async with remote_node(store, launcher) as server:
        port = httpx.URL(server.url).port
        run = await node_of(server).begin(tmp_path)
        await until(lambda: starts(tmp_path))
    (tmp_path / "gate").touch()
    await asyncio.sleep(0.5)
    again = LocalLauncher(tmp_path / "units")
    async with remote_node(store, again, port=port) as server:
        result = await node_of(server).run_handle(run.id).wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["count"].attempts) == (7, 1)
    assert starts(tmp_path) == [1]


async def test_a_unit_that_is_killed_costs_a_recovery(server: Served, tmp_path: Path) -> None:
    """W-11: not one of the author's retries."""
    node = node_of(server)
    run = await node.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    node.launcher.kill(first_attempt(run), "evicted")
    await until(lambda: len(starts(tmp_path)) == 2)
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert result.tasks["count"].output == 7
    first, _ = await attempts_of(server, run)
    assert first.outcome == "evicted"


async def test_the_token_of_an_ended_attempt_opens_nothing(server: Served, tmp_path: Path) -> None:
    """W-1: late reports are refused and counted."""
    node = node_of(server)
    (tmp_path / "gate").touch()
    run = await node.begin(tmp_path)
    await run.wait(timeout=TIMEOUT)
    headers = {"authorization": f"Bearer {node.launcher.launches[0].token}"}
    for path, body in [
        ("start", {"process": "late"}),
        ("heartbeat", {}),
        ("logs", {"number": 9, "records": []}),
        ("calls", {"call": ""}),
        ("result", {"handed_back": "late"}),
    ]:
        answer = await server.http.post(f"/attempts/{path}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "attempt_ended"), path
    assert (await server.http.get("/attempts/code", headers=headers)).status_code == 409
    assert node.metrics()["late_reports_total"] == 1


async def test_a_second_process_with_the_same_token_does_not_run_the_code(server: Served, tmp_path: Path) -> None:
    """Executors: each attempt runs at most once, although its unit was started twice."""
    node = node_of(server)
    run = await node.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    launch = node.launcher.launches[0]
    twin = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidemill", "attempt", env=os.environ | launch.full_environment()
    )
    assert await twin.wait() == NOT_WANTED
    (tmp_path / "gate").touch()
    await run.wait(timeout=TIMEOUT)
    assert starts(tmp_path) == [1]


async def test_a_terminated_unit_hands_its_attempt_back(server: Served, tmp_path: Path) -> None:
    """SIGTERM, as when a pod is drained: it costs neither a retry nor a recovery."""
    node = node_of(server)
    run = await node.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    os.kill(node.launcher.pid(first_attempt(run)), signal.SIGTERM)
    await until(lambda: len(starts(tmp_path)) == 2)
    (tmp_path / "gate").touch()
    await run.wait(timeout=TIMEOUT)
    first, second = await attempts_of(server, run)
    assert (first.outcome, second.outcome) == ("returned", "success")
