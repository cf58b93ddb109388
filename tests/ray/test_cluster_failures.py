"""Failures of a cluster, each on one of its own: a lost node, a node short of memory, a head that dies and returns."""

import asyncio
from pathlib import Path

import pytest

from tests.ray.cluster import running_cluster, token_of
from tests.ray.gateways import SLEEPER, TIMEOUT, opened, started_pid, until
from tests.ray.ray_node import attempts_of, begin, pids, ray_node
from tidemill.kernel.errors import OperationError


async def test_a_restarted_head_says_nothing_about_what_ran_before(tmp_path: Path) -> None:
    """W-11: silence is no signal. The gateway reconnects, and what it no longer sees is judged by its lease."""
    with running_cluster() as cluster, token_of(cluster):
        async with opened(cluster, "n/") as ray:
            await ray.create("n/1", *SLEEPER, str(tmp_path / "pid"))
            await started_pid(tmp_path / "pid")
            cluster.nodes[0].kill()
            await until(lambda: not ray.gateway.is_connected)
            with pytest.raises(OperationError, match="cannot be reached"):
                await ray.create("n/2", "-c", "pass")
            await asyncio.to_thread(cluster.start_head)
            await until(lambda: len(ray.sessions) == 2 and ray.lists[-1] == set())
            assert ray.sessions[0] != ray.sessions[1]
            await ray.create("n/3", "-c", "pass")
            assert (await ray.wait_for_state("n/3", "ended", "missing")).cause == "completed"


async def test_a_node_short_of_memory(tmp_path: Path) -> None:
    """Ray's memory monitor ends the worker, the kernel its process; the status has the cause."""
    shortage = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    with running_cluster(**shortage) as cluster, token_of(cluster):
        async with opened(cluster, "m/") as ray:
            await ray.create("m/1", *SLEEPER, str(tmp_path / "pid"))
            end = await ray.wait_for_state("m/1", "ended", "missing")
            assert end.cause == "oom", end


async def test_attempts_survive_the_head_and_are_recovered_from_a_lost_node(tmp_path: Path) -> None:
    """W-11, end to end: the loss of a node costs a recovery; the loss of the head harms no attempt that can report.

    Ray reports the lost node long before a heartbeat is overdue.
    """
    with running_cluster() as cluster, token_of(cluster):
        node = cluster.add_node(resources='{"far": 1}')
        async with ray_node(cluster, tmp_path, heartbeat_timeout=TIMEOUT) as server:
            run = await begin(server, "far", tmp_path)
            await until(lambda: pids(tmp_path, "distant"))
            node.kill()
            other = await asyncio.to_thread(cluster.add_node, resources='{"far": 1}')
            await until(lambda: len(pids(tmp_path, "distant")) == 2)
            cluster.nodes[0].kill()
            (tmp_path / "gate").touch()
            assert (await run.wait(timeout=TIMEOUT)).tasks["distant"].output == 7
            assert [one.outcome for one in await attempts_of(server, run)] == ["node_lost", "success"]
            waiting = await begin(server, "on_ray", tmp_path)
            other.kill()
            await asyncio.to_thread(cluster.start_head)
            assert (await waiting.wait(timeout=TIMEOUT)).tasks["double"].output == 14
