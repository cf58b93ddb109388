"""The launcher of Ray in the contract of executors: `make test-ray` runs it on a real cluster."""

import atexit
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

from tests.ray.cluster import RayCluster, running_cluster, token_of
from tidemill.engine.workflows.executors.ray.launcher import RayLauncher
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.kernel.clock import SystemClock


@cache
def start_shared_cluster() -> RayCluster:
    """Return the cluster that most tests share, with one node of sixteen cores: a start takes seconds."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running_cluster(cpus=16))


@asynccontextmanager
async def open_ray_launcher(folder: Path) -> AsyncIterator[AttemptLauncher]:
    """A launcher on the shared cluster."""
    cluster = start_shared_cluster()
    with token_of(cluster):
        yield RayLauncher(
            cluster.address,
            SystemClock(),
            namespace="tidemill",
            runtime_env={},
            max_attempts=8,
            pending_timeout=60.0,
        )
