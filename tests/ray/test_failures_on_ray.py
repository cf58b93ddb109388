"""Rows of the failure matrix with an attempt that runs on a real Ray while its node has a failure."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.ray.cluster import RayCluster
from tests.ray.ray_node import ray_node
from tests.remote import matrix_flow
from tests.remote.failure_rows import (
    RunningTask,
    run_task,
    test_db_hiccup,
    test_leader_connection_blip,
    test_leader_overlap,
    test_scheduler_crash_mid_tick,
)

__all__ = ["test_db_hiccup", "test_leader_connection_blip", "test_leader_overlap", "test_scheduler_crash_mid_tick"]


@pytest.fixture
async def task(cluster: RayCluster, tmp_path: Path) -> AsyncIterator[RunningTask]:
    """A task that runs in an actor."""
    async with (
        ray_node(cluster, tmp_path, load=[matrix_flow.BY_EXECUTOR["ray"]]) as server,
        run_task(server.node, "ray", tmp_path) as running,
    ):
        yield running
