"""Remote attempts end to end: real processes run them, and report to a real server."""

import asyncio
import os
import signal
import sys
from base64 import b64encode
from pathlib import Path

import msgspec

from tests.contract.executor_harness import until
from tests.remote.local_launcher import LocalLauncher, is_alive
from tests.remote.remote_node import SHORT_LEASE, TIMEOUT, RemoteServer, key_of, remote_node, starts
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.engine.workflows.executors.forkserver.protocol import ResultMessage
from tidemill.engine.workflows.executors.remote.unit_results import LEASE_LOST, NOT_WANTED
from tidemill.workflows.states import RunState, TaskState

LATE_RESULT = b64encode(msgspec.msgpack.encode(ResultMessage(skipped="late"))).decode()


async def test_a_unit_runs_the_code_and_reports_its_result_and_log(server: RemoteServer, tmp_path: Path) -> None:
    """W-2: running begins with the unit's own handshake; what follows is planned at once. Its log is live."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    assert await server.state_of(run) is TaskState.RUNNING
    await asyncio.sleep(0.6)
    assert "begun" in await server.messages_of(run)
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["double"].output) == (7, 14)
    assert await server.messages_of(run) == ["begun", "printed"]


async def test_a_failure_of_the_code_uses_the_authors_retries(server: RemoteServer, tmp_path: Path) -> None:
    run = await server.begin(tmp_path, "flaky")
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["fail_once"].output, result.tasks["fail_once"].attempts) == ("recovered", 2)
    first, _ = await server.attempts_of(run, "fail_once")
    assert first.outcome == "failed"
    assert first.error is not None
    assert "broken on purpose" in first.error.message


async def test_calls_of_the_code_reach_the_node_and_secrets_are_masked(server: RemoteServer, tmp_path: Path) -> None:
    """API: ctx.secret, ctx.variable and ctx.start; a secret shows neither in the log nor in the unit's output."""
    await server.node.access.secrets.set(LOCAL_PRINCIPAL, "password", "correct horse battery")
    await server.node.access.variables.set(LOCAL_PRINCIPAL, "region", "eu")
    run = await server.begin(tmp_path, "talkative")
    result = await run.wait(timeout=TIMEOUT)
    region, started = result.tasks["tell"].output
    assert region == "eu"
    assert (await server.node.run_handle(started).wait(timeout=TIMEOUT)).state is RunState.SUCCESS
    (message,) = await server.messages_of(run, "tell")
    assert message == "the password is ***"
    assert "correct horse" not in server.launcher.output(key_of(run, "tell"))


async def test_a_cancelled_run_stops_the_unit(server: RemoteServer, tmp_path: Path) -> None:
    """Tasks: cancel reaches the running code."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    pid = server.launcher.pid(key_of(run))
    await run.cancel()
    assert (await run.wait(timeout=TIMEOUT)).state is RunState.CANCELLED
    await until(lambda: not is_alive(pid))
    await until(lambda: server.launcher.free_slots() == 8)


async def test_a_terminated_unit_costs_a_recovery(server: RemoteServer, tmp_path: Path) -> None:
    """W-11: SIGTERM, as when a pod is drained or evicted: not a retry, but code that brings it about ends sometime."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    os.kill(server.launcher.pid(key_of(run)), signal.SIGTERM)
    await until(lambda: len(starts(tmp_path)) == 2)
    (tmp_path / "gate").touch()
    await run.wait(timeout=TIMEOUT)
    first, second = await server.attempts_of(run)
    assert (first.outcome, second.outcome) == ("lost", "success")
    assert (await server.recoveries_of(run), starts(tmp_path)) == (1, [1, 2])


async def test_the_token_of_an_ended_attempt_opens_nothing(server: RemoteServer, tmp_path: Path) -> None:
    """W-1: late reports are refused and counted."""
    (tmp_path / "gate").touch()
    run = await server.begin(tmp_path)
    await run.wait(timeout=TIMEOUT)
    headers = {"authorization": f"Bearer {server.launcher.launches[0].token}"}
    for path, body in [
        ("start", {"process": "late"}),
        ("heartbeat", {}),
        ("logs", {"number": 9, "records": []}),
        ("calls", {"call": ""}),
        ("result", {"result": LATE_RESULT}),
    ]:
        answer = await server.http.post(f"/attempts/{path}", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "attempt_ended"), path
    assert (await server.http.get("/attempts/code", headers=headers)).status_code == 409
    assert server.node.metrics()["late_reports_total"] == 1


async def test_a_second_process_with_the_same_token_does_not_run_the_code(server: RemoteServer, tmp_path: Path) -> None:
    """Executors: each attempt runs at most once, although its unit was started twice."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    launch = server.launcher.launches[0]
    await server.launcher.launch(launch)
    environment = os.environ | launch.full_environment()
    twin = await asyncio.create_subprocess_exec(sys.executable, "-m", "tidemill", "attempt", env=environment)
    assert await twin.wait() == NOT_WANTED
    (tmp_path / "gate").touch()
    await run.wait(timeout=TIMEOUT)
    assert starts(tmp_path) == [1]


# -- servers that come and go


async def test_an_attempt_survives_a_restart_of_its_node_and_server(
    store: str, launcher: LocalLauncher, tmp_path: Path
) -> None:
    """Closing leaves units alone. A result that is ready while no server answers is delivered to the next one."""
    async with remote_node(store, launcher) as server:
        run, port = await server.begin(tmp_path), server.port
        await until(lambda: starts(tmp_path))
    (tmp_path / "gate").touch()
    await asyncio.sleep(0.5)
    async with remote_node(store, LocalLauncher(tmp_path / "units"), port) as server:
        result = await server.node.run_handle(run.id).wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["count"].attempts) == (7, 1)
    assert starts(tmp_path) == [1]


async def test_any_server_of_the_store_takes_the_reports(store: str, launcher: LocalLauncher, tmp_path: Path) -> None:
    """The row of the task run is the fence: the server that takes the reports has not claimed the attempt."""
    idle = LocalLauncher(tmp_path / "units", limit=0)
    async with (
        remote_node(store, idle, **SHORT_LEASE) as other,
        remote_node(store, launcher, server_url=other.url, **SHORT_LEASE) as server,
    ):
        run = await server.begin(tmp_path)
        await until(lambda: starts(tmp_path))
        assert launcher.launches[0].environment["TIDEMILL_SERVER_URL"] == other.url
        await server.until_renewed(run)  # by the attempt itself
        assert await server.state_of(run) is TaskState.RUNNING
        (tmp_path / "gate").touch()
        result = await run.wait(timeout=TIMEOUT)
        assert (result.tasks["double"].output, result.tasks["count"].attempts) == (14, 1)
        await until(lambda: launcher.free_slots() == 8)


async def test_an_attempt_that_no_server_answers_stops_its_code(
    store: str, launcher: LocalLauncher, tmp_path: Path
) -> None:
    """W-11: the code has ended before another node may start it again."""
    async with remote_node(store, launcher, **SHORT_LEASE) as server:
        await server.begin(tmp_path)
        await until(lambda: starts(tmp_path))
    process = launcher.process(launcher.launches[-1].key)
    assert await asyncio.to_thread(process.wait, TIMEOUT) == LEASE_LOST
