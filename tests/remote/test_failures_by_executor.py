"""Rows of the failure matrix for each executor: an attempt runs while the node has a failure, and ends once.

Nodes, workers, processes and pods are real here; the API server of Kubernetes is scripted. `tests/ray` has the same
rows on a real Ray.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kubernetes.chosen_cluster import open_chosen_cluster
from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.pod_node import pod_node
from tests.remote import matrix_flow
from tests.remote.failure_rows import (
    RunningTask,
    run_task,
    test_db_hiccup,
    test_leader_connection_blip,
    test_leader_overlap,
    test_scheduler_crash_mid_tick,
)
from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import QUICK, remote_node
from tidemill.node import Node
from tidemill.worker import WorkerNode

__all__ = ["test_db_hiccup", "test_leader_connection_blip", "test_leader_overlap", "test_scheduler_crash_mid_tick"]


@asynccontextmanager
async def run_in_pod(store: str, folder: Path) -> AsyncIterator[RunningTask]:
    """A task in a pod of a scripted cluster."""
    async with open_chosen_cluster(folder) as cluster, cluster.client() as client:
        namespace = await create_namespace(client)
        load = [matrix_flow.BY_EXECUTOR["kubernetes"]]
        async with (
            open_kubelet(cluster, namespace),
            pod_node(store, cluster, namespace, folder, lease=20.0, load=load) as server,
            run_task(server.node, "kubernetes", folder) as running,
        ):
            yield running


@asynccontextmanager
async def run_in_unit(store: str, folder: Path) -> AsyncIterator[RunningTask]:
    """A task in a local process, as a unit."""
    launcher = LocalLauncher(folder / "units")
    try:
        async with (
            remote_node(store, launcher, load=[matrix_flow.BY_EXECUTOR["kubernetes"]]) as server,
            run_task(server.node, "kubernetes", folder) as running,
        ):
            yield running
    finally:
        launcher.end()


@asynccontextmanager
async def run_on_worker(store: str, folder: Path) -> AsyncIterator[RunningTask]:
    """A task on a worker, which reports to the store by itself."""
    load = [matrix_flow.BY_EXECUTOR["worker"]]
    async with (
        Node(store, load=load, settings=QUICK) as node,
        WorkerNode(store, load=load, settings=QUICK) as worker,
        run_task(node, "worker", folder, worker) as running,
    ):
        yield running


REMOTE = {"worker": run_on_worker, "remote": run_in_unit, "kubernetes": run_in_pod}


@pytest.fixture(params=["in_process", "subprocess", *REMOTE])
async def task(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningTask]:
    """A task that runs on each executor."""
    store, executor = f"sqlite:///{tmp_path}/store.db", request.param
    if executor in REMOTE:
        async with REMOTE[executor](store, tmp_path) as running:
            yield running
        return
    load = [matrix_flow.BY_EXECUTOR[executor]]
    async with Node(store, load=load, settings=QUICK) as node, run_task(node, executor, tmp_path) as running:
        yield running
