"""Hosts on Ray: as many as are wanted run, whatever dies."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.ray.cluster import RayCluster
from tests.ray.gateways import is_alive, until
from tidemill.engine.ray.hosts import RayHosts
from tidemill.kernel.clock import SystemClock

PROGRAM = (
    "import os, pathlib, signal, sys, time; file = pathlib.Path(sys.argv[1]) / str(os.getpid()); file.touch(); "
    "signal.signal(signal.SIGTERM, lambda *_: (file.rename(f'{file}.stopped'), sys.exit(0))); time.sleep(600)"
)


@asynccontextmanager
async def keeping(
    cluster: RayCluster, instance: str, count: int, folder: Path, *, is_leader: bool = True
) -> AsyncIterator[None]:
    """Keep hosts that leave a file with their process id in a folder."""
    hosts = RayHosts(
        cluster.address,
        SystemClock(),
        namespace="tidemill",
        count=count,
        arguments=["-c", PROGRAM, str(folder)],
        environment={},
        runtime_env={},
        stop_grace=10.0,
        is_leader=lambda: is_leader,
    )
    await hosts.open(instance)
    try:
        yield
    finally:
        await hosts.close()


def running(folder: Path) -> set[int]:
    """Return the process ids of the hosts that run."""
    return {int(file.name) for file in folder.iterdir() if file.name.isdigit() and is_alive(int(file.name))}


async def test_hosts_are_replaced_and_stopped_in_order(cluster: RayCluster, tmp_path: Path) -> None:
    async with keeping(cluster, "one", 2, tmp_path):
        await until(lambda: len(running(tmp_path)) == 2)
        first = running(tmp_path)
        os.kill(min(first), signal.SIGKILL)
        await until(lambda: len(running(tmp_path) - first) == 1 and len(running(tmp_path)) == 2)
    kept = running(tmp_path)
    assert len(kept) == 2  # they outlive the server
    async with keeping(cluster, "one", 0, tmp_path, is_leader=False), keeping(cluster, "two", 0, tmp_path):
        async with keeping(cluster, "one", 1, tmp_path):
            await until(lambda: len(running(tmp_path)) == 1)
        assert running(tmp_path) < kept  # neither another leader nor another store has stopped the rest
    async with keeping(cluster, "one", 0, tmp_path):
        await until(lambda: not running(tmp_path))
    assert len(list(tmp_path.glob("*.stopped"))) == 2
