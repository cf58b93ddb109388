"""The executor `ray` end to end: a real Ray runs attempts, which report to a real server."""

import asyncio
import os
import signal
from pathlib import Path

import httpx

from tests.ray.cluster import RayCluster
from tests.ray.gateways import TIMEOUT, is_alive, until
from tests.ray.ray_node import attempts_of, begin, pids, ray_node
from tidemill.workflows.states import RunState


def ancestor(pid: int, name: str) -> int:
    """Return the nearest process above one that has a name."""
    while name not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


async def test_an_attempt_runs_on_ray_and_reports_to_the_server(cluster: RayCluster, tmp_path: Path) -> None:
    """Results go through Tidemill's store; what follows is planned at once."""
    async with ray_node(cluster, tmp_path) as server:
        run = await begin(server, "on_ray", tmp_path)
        await until(lambda: pids(tmp_path, "count"))
        (tmp_path / "gate").touch()
        result = await run.wait(timeout=TIMEOUT)
        assert (result.tasks["count"].output, result.tasks["double"].output) == (7, 14)
        assert result.tasks["count"].attempts == 1


async def test_a_cancelled_run_ends_the_process_on_ray(cluster: RayCluster, tmp_path: Path) -> None:
    """Tasks: cancel reaches the running code."""
    async with ray_node(cluster, tmp_path) as server:
        run = await begin(server, "on_ray", tmp_path)
        await until(lambda: pids(tmp_path, "count"))
        (pid,) = pids(tmp_path, "count")
        await run.cancel()
        assert (await run.wait(timeout=TIMEOUT)).state is RunState.CANCELLED
        await until(lambda: not is_alive(pid))


async def test_a_timeout_ends_the_process_on_ray(cluster: RayCluster, tmp_path: Path) -> None:
    async with ray_node(cluster, tmp_path) as server:
        run = await begin(server, "slow", tmp_path)
        assert (await run.wait(timeout=TIMEOUT)).state is RunState.FAILED
        (attempt,) = await attempts_of(server, run)
        assert attempt.outcome == "timeout"
        await until(lambda: not any(map(is_alive, pids(tmp_path, "endless"))))


async def test_ray_reserves_what_tasks_ask_for(cluster: RayCluster, tmp_path: Path) -> None:
    """Two attempts that need the only one of a resource run one after the other."""
    async with ray_node(cluster, tmp_path) as server:
        run = await begin(server, "exclusive", tmp_path)
        await until(lambda: pids(tmp_path, "exclusive"))
        await asyncio.sleep(2.0)
        assert len(pids(tmp_path, "exclusive")) == 1
        (tmp_path / "gate").touch()
        assert (await run.wait(timeout=TIMEOUT)).state is RunState.SUCCESS
        assert len(pids(tmp_path, "exclusive")) == 2


async def test_an_attempt_that_no_machine_can_run_fails_in_time(cluster: RayCluster, tmp_path: Path) -> None:
    async with ray_node(cluster, tmp_path, ray_pending_timeout="1s") as server:
        run = await begin(server, "huge", tmp_path)
        assert (await run.wait(timeout=TIMEOUT)).state is RunState.FAILED
        (attempt,) = await attempts_of(server, run)
        assert attempt.outcome == "not_started"
        assert attempt.error is not None
        assert attempt.error.message == "it did not start within 1s: no node of the Ray cluster has its resources free"


async def test_the_death_of_a_worker_of_ray_costs_a_recovery(cluster: RayCluster, tmp_path: Path) -> None:
    """W-11: a positive signal that nothing will report, and no fault of the author."""
    async with ray_node(cluster, tmp_path) as server:
        run = await begin(server, "on_ray", tmp_path)
        await until(lambda: pids(tmp_path, "count"))
        (pid,) = pids(tmp_path, "count")
        os.kill(ancestor(pid, "ray::"), signal.SIGKILL)
        await until(lambda: len(pids(tmp_path, "count")) == 2)
        assert not is_alive(pid)
        (tmp_path / "gate").touch()
        assert (await run.wait(timeout=TIMEOUT)).tasks["count"].output == 7
        lost, *_ = await attempts_of(server, run)
        assert lost.outcome == "lost"


async def test_attempts_outlive_their_server_and_are_adopted(cluster: RayCluster, tmp_path: Path) -> None:
    """W-12 does not hold here: the death of the owner says nothing about the attempt."""
    async with ray_node(cluster, tmp_path) as server:
        port = httpx.URL(server.url).port
        run = await begin(server, "on_ray", tmp_path)
        await until(lambda: pids(tmp_path, "count"))
    assert all(map(is_alive, pids(tmp_path, "count")))
    async with ray_node(cluster, tmp_path, port=port or 0) as server:
        await asyncio.sleep(1.0)
        (tmp_path / "gate").touch()
        result = await server.node.run_handle(run.id).wait(timeout=TIMEOUT)
        assert (result.tasks["count"].output, result.tasks["count"].attempts) == (7, 1)
    assert len(pids(tmp_path, "count")) == 1
