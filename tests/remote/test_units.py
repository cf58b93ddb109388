"""What a cluster does to units: it refuses, evicts and kills them; and nodes die, and others adopt their units."""

import asyncio
import sys
from pathlib import Path

import httpx

from tests.contract.executor_harness import until
from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import SHORT_LEASE, TIMEOUT, RemoteServer, key_of, remote_node, starts
from tidemill.workflows.states import RunState, TaskState


async def test_a_unit_that_the_cluster_takes_away_costs_a_recovery(server: RemoteServer, tmp_path: Path) -> None:
    """W-11: not one of the author's retries, of which this task has none."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    server.launcher.kill(key_of(run), "evicted")
    await until(lambda: len(starts(tmp_path)) == 2)
    (tmp_path / "gate").touch()
    assert (await run.wait(timeout=TIMEOUT)).state is RunState.SUCCESS
    first, _ = await server.attempts_of(run)
    assert first.outcome == "evicted"


async def test_a_unit_without_memory_fails(server: RemoteServer, tmp_path: Path) -> None:
    """It would happen again: it is a failure, with a message, and the end of its output in the log."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    server.launcher.kill(key_of(run), "oom")
    result = await run.wait(timeout=TIMEOUT)
    assert result.state is RunState.FAILED
    (attempt,) = await server.attempts_of(run)
    assert attempt.outcome == "oom"
    assert attempt.error is not None
    assert "memory" in attempt.error.message


async def test_a_cluster_that_takes_no_units_is_asked_again_later(
    server: RemoteServer, launcher: LocalLauncher, tmp_path: Path
) -> None:
    """A quota or an API that is away costs nothing; the attempts are handed back, without a busy loop."""
    launcher.refusal = "exceeded quota"
    run = await server.begin(tmp_path)
    await until(lambda: launcher.launches)
    await asyncio.sleep(0.5)
    assert len(launcher.launches) <= 2
    launcher.refusal = None
    (tmp_path / "gate").touch()
    assert (await run.wait(timeout=TIMEOUT)).state is RunState.SUCCESS
    assert {one.outcome for one in (await server.attempts_of(run))[:-1]} == {"returned"}


async def test_a_pending_unit_keeps_its_attempt(store: str, launcher: LocalLauncher, tmp_path: Path) -> None:
    """W-11: the node renews the lease while the unit waits for its machine, however long."""
    launcher.pending = asyncio.Event()
    async with remote_node(store, launcher, **SHORT_LEASE) as server:
        run = await server.begin(tmp_path)
        await server.until_renewed(run)
        assert await server.state_of(run) is TaskState.QUEUED
        launcher.pending.set()
        (tmp_path / "gate").touch()
        result = await run.wait(timeout=TIMEOUT)
        assert result.tasks["count"].attempts == 1


async def test_a_unit_whose_attempt_is_over_is_deleted(store: str, launcher: LocalLauncher, tmp_path: Path) -> None:
    """Do no harm, and leave nothing behind: the run was cancelled while no node watched the unit."""
    async with remote_node(store, launcher, heartbeat_timeout=60.0, heartbeat_interval=20.0) as server:
        run = await server.begin(tmp_path)
        await until(lambda: starts(tmp_path))
        process = launcher.process(key_of(run))
    without = LocalLauncher(tmp_path / "elsewhere")
    async with remote_node(store, without) as server:
        await server.node.run_handle(run.id).cancel()
    async with remote_node(store, LocalLauncher(tmp_path / "units")):
        await asyncio.to_thread(process.wait, TIMEOUT)


async def test_a_node_that_is_killed_leaves_its_unit_to_the_next_one(store: str, tmp_path: Path) -> None:
    """W-12: kill -9 of node and server while the unit runs; the next one adopts it, and the code runs once."""
    units = tmp_path / "units"
    arguments = ["-m", "tests.remote.node_program", store, str(units), str(tmp_path), "0"]
    killed = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert killed.stdout is not None
    run, url = (await killed.stdout.readline()).decode().split()
    await until(lambda: starts(tmp_path))
    killed.kill()
    await killed.wait()
    async with remote_node(store, LocalLauncher(units), httpx.URL(url).port or 0) as server:
        await until(lambda: server.node.metrics()["adopted_attempts_total"])
        (tmp_path / "gate").touch()
        handle = server.node.run_handle(run)
        assert (await handle.wait(timeout=TIMEOUT)).tasks["double"].output == 14
        (attempt,) = await server.attempts_of(handle)
        assert attempt.outcome == "success"
    assert starts(tmp_path) == [1]
