"""Failures of a cluster, each on one of its own: a lost node, a node short of memory, a head that dies and returns."""

from pathlib import Path

import pytest

from tests.ray.cluster import RayCluster, running_cluster
from tests.ray.gateways import SLEEPER, is_alive, opened, started_pid, until


def use(cluster: RayCluster, environment: pytest.MonkeyPatch) -> None:
    """Give the token of a cluster to gateways."""
    for name, value in cluster.environment.items():
        environment.setenv(name, value)


async def test_a_lost_node_and_a_restarted_head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """W-11: a lost node is a positive signal; a lost head is none, and its attempts are judged by their leases."""
    with running_cluster() as cluster:
        use(cluster, monkeypatch)
        node = cluster.add_node(resources='{"far": 1}')
        async with opened(cluster, "n/") as ray:
            await ray.create("n/1", *SLEEPER, str(tmp_path / "far"), resources={"far": 1})
            await ray.create("n/2", *SLEEPER, str(tmp_path / "near"), resources={"near": 1})
            await started_pid(tmp_path / "far")
            near = await started_pid(tmp_path / "near")
            node.kill()
            end = await ray.wait_for_state("n/1", "ended", "missing")
            assert end.cause == "node_lost", end
            assert is_alive(near)
            cluster.nodes[0].kill()
            await until(lambda: not ray.gateway.is_connected)
            assert ray.states("n/2")[-1] == "running"
            cluster.start_head()
            await until(lambda: len(ray.sessions) == 2)
            assert ray.sessions[0] != ray.sessions[1]
            await until(lambda: ray.lists[-1] == set())
            await ray.create("n/3", "-c", "pass")
            assert (await ray.wait_for_state("n/3", "ended", "missing")).cause == "completed"


async def test_a_node_short_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray's memory monitor ends the worker, the kernel its process; the cause is told apart."""
    with running_cluster(RAY_memory_usage_threshold="0.001", RAY_memory_monitor_refresh_ms="100") as cluster:
        use(cluster, monkeypatch)
        async with opened(cluster, "m/") as ray:
            await ray.create("m/1", *SLEEPER, str(tmp_path / "pid"))
            end = await ray.wait_for_state("m/1", "ended", "missing")
            assert end.cause == "oom", end
