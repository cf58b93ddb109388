"""The gateway to Ray: processes of actors, from their start to their end, across the deaths of everything else."""

import os
import signal
from pathlib import Path

import pytest

from tests.ray.cluster import RayCluster
from tests.ray.gateways import SLEEPER, OpenGateway, is_alive, opened, started_pid, until
from tidemill.kernel.errors import OperationError


@pytest.mark.parametrize("way", ["address", "client_address"])
async def test_a_process_runs_on_the_cluster_with_its_environment(cluster: RayCluster, way: str) -> None:
    """On a machine of the cluster a gateway is a driver; elsewhere it is a client."""
    async with opened(cluster, "a/", getattr(cluster, way)) as ray:
        program = "import os; print(os.environ['COLOUR'], 'sky'); raise SystemExit(3)"
        assert await ray.create("a/1", "-c", program) == ""
        end = await ray.wait_for_state("a/1", "ended", "missing")
        assert (end.cause, end.exit, end.log_tail) == ("error", 3, "blue sky\n")
        assert await ray.create("a/2", "-c", "pass") == ""
        assert (await ray.wait_for_state("a/2", "ended", "missing")).cause == "completed"
        assert ray.states("a/1") == ["pending", "running", "ended"]
        ray.gateway.remove("a/1")
        ray.gateway.remove("a/2")
        await until(lambda: ray.lists[-1] == set())


async def test_an_actor_that_exists_is_not_created_again(cluster: RayCluster, tmp_path: Path) -> None:
    async with opened(cluster, "b/") as ray, opened(cluster, "b/") as other:
        await ray.create("b/1", *SLEEPER, str(tmp_path / "first"))
        await other.create("b/1", *SLEEPER, str(tmp_path / "second"))
        pid = await started_pid(tmp_path / "first")
        await other.wait_for_state("b/1", "running")
        other.gateway.stop("b/1", 5.0)
        for one in (ray, other):
            end = await one.wait_for_state("b/1", "ended", "missing")
            assert (end.cause, end.exit) == ("deleted", -signal.SIGTERM)
        assert not (tmp_path / "second").exists()
        assert not is_alive(pid)


async def test_a_process_that_ignores_sigterm_is_killed(cluster: RayCluster, tmp_path: Path) -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER[1]
    async with opened(cluster, "c/") as ray:
        await ray.create("c/1", "-c", program, str(tmp_path / "pid"))
        pid = await started_pid(tmp_path / "pid")
        ray.gateway.stop("c/1", 0.2)
        end = await ray.wait_for_state("c/1", "ended", "missing")
        assert (end.cause, end.exit) == ("deleted", -signal.SIGKILL)
        assert not is_alive(pid)


async def test_an_actor_without_resources_waits_and_can_be_removed(cluster: RayCluster) -> None:
    async with opened(cluster, "d/") as ray:
        await ray.create("d/1", "-c", "pass", num_cpus=1000)
        await ray.wait_for_state("d/1", "pending")
        ray.gateway.stop("d/1", 5.0)
        assert (await ray.wait_for_state("d/1", "ended", "missing")).cause == "deleted"


async def test_a_removed_actor_lets_its_process_end(cluster: RayCluster, tmp_path: Path) -> None:
    """A process that has reported its result still deletes its files."""
    program = "import pathlib, sys, time; f = pathlib.Path(sys.argv[1]); f.touch(); time.sleep(1); f.unlink()"
    async with opened(cluster, "i/") as ray:
        await ray.create("i/1", "-c", program, str(tmp_path / "file"))
        await until((tmp_path / "file").exists)
        ray.gateway.remove("i/1")
        assert (await ray.wait_for_state("i/1", "ended", "missing")).cause == "completed"
        assert not (tmp_path / "file").exists()


async def test_an_actor_that_ray_rejects_says_why(cluster: RayCluster) -> None:
    async with opened(cluster, "e/") as ray:
        assert "num_cpus" in await ray.create("e/1", "-c", "pass", num_cpus=-1)
        assert "nonsense" in await ray.create("e/2", "-c", "pass", nonsense=1)


async def test_a_process_dies_with_the_worker_of_ray(cluster: RayCluster, tmp_path: Path) -> None:
    """Ray has given the resources of a dead worker to another: what it started must not run on."""
    async with opened(cluster, "f/") as ray:
        await ray.create("f/1", *SLEEPER, str(tmp_path / "pid"))
        pid = await started_pid(tmp_path / "pid")
        os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        end = await ray.wait_for_state("f/1", "ended", "missing")
        assert end.state == "missing"
        assert "the worker of Ray has died" in end.reason
        await until(lambda: not is_alive(pid))


async def test_actors_outlive_their_gateway_and_are_found_by_the_next(cluster: RayCluster, tmp_path: Path) -> None:
    async with opened(cluster, "g/") as ray:
        await ray.create("g/1", *SLEEPER, str(tmp_path / "pid"))
        pid = await started_pid(tmp_path / "pid")
    async with opened(cluster, "g/") as ray:
        assert ray.lists[0] == {"g/1"}
        await ray.wait_for_state("g/1", "running")
        assert is_alive(pid)
        ray.gateway.stop("g/1", 5.0)
        assert (await ray.wait_for_state("g/1", "ended", "missing")).cause == "deleted"


async def test_a_wrong_token_is_named(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    recorder = OpenGateway(cluster.address)
    await recorder.gateway.open("h/")
    try:
        await until(lambda: "token" in recorder.gateway.problem)
        assert "RAY_AUTH_TOKEN" in recorder.gateway.problem
        with pytest.raises(OperationError, match="cannot be reached: the cluster refuses the token"):
            await recorder.create("h/1", "-c", "pass")
    finally:
        await recorder.gateway.close()
