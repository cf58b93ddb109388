"""Rows of the failure matrix for each executor: an attempt runs while the node has a failure, and ends once.

Nodes, processes and pods are real here; the API server of Kubernetes is scripted. The other rows do not depend on the
executor: they are about stored runs that no attempt belongs to any more, or about a run that cannot be planned.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.kubernetes.chosen_cluster import open_chosen_cluster
from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.pod_node import pod_node
from tests.remote import matrix_flow
from tests.remote.local_launcher import LocalLauncher
from tests.remote.remote_node import QUICK, TIMEOUT, remote_node, starts
from tests.service.workflows.faults import breaking
from tidemill.engine.workflows.client.handle import RunHandle
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.node import Node
from tidemill.workflows.states import RunState

WORKFLOWS = {"in_process": "on_in_process", "subprocess": "on_subprocess"}
"""By executor; those of the others name `kubernetes`."""


@asynccontextmanager
async def open_node(executor: str, folder: Path) -> AsyncIterator[Node]:
    """A node with one of the executors."""
    store = f"sqlite:///{folder}/store.db"
    if executor == "kubernetes":
        async with open_chosen_cluster(folder) as cluster, cluster.client() as client:
            namespace = await create_namespace(client)
            async with (
                open_kubelet(cluster, namespace),
                pod_node(store, cluster, namespace, folder, lease=20.0, load=matrix_flow.ALL) as server,
            ):
                yield server.node
    elif executor == "remote":
        launcher = LocalLauncher(folder / "units")
        try:
            async with remote_node(store, launcher, load=matrix_flow.ALL) as server:
                yield server.node
        finally:
            launcher.end()
    else:
        async with Node(store, load=[*matrix_flow.ALL[:2]], settings=QUICK) as node:
            yield node


class RunningTask:
    """A node, and a run whose task runs there."""

    def __init__(self, node: Node, run: RunHandle, folder: Path) -> None:
        self.node = node
        self.engine = node._workflows
        self._run = run
        self._folder = folder

    def release(self) -> None:
        """Let the task end."""
        (self._folder / "gate").touch()

    async def check_end(self) -> None:
        """Assert that the run succeeds, and that its task has run once."""
        self.release()
        result = await self._run.wait(timeout=TIMEOUT)
        assert (result.state, result.tasks["work"].output) == (RunState.SUCCESS, 7)
        assert starts(self._folder) == [1]
        metrics = self.node.metrics()
        assert (metrics["agent_lost_tasks_total"], metrics["late_reports_total"]) == (0, 0)


@pytest.fixture(params=["in_process", "subprocess", "remote", "kubernetes"])
async def task(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningTask]:
    """A task that runs on each executor."""
    async with open_node(request.param, tmp_path) as node:
        run = await node.start(WORKFLOWS.get(request.param, "on_kubernetes"), folder=str(tmp_path))
        await until(lambda: starts(tmp_path))
        running = RunningTask(node, run, tmp_path)
        try:
            yield running
        finally:
            running.release()


async def test_scheduler_crash_mid_tick(task: RunningTask) -> None:
    """F1: phases of the tick raise, and the next tick resumes from the store."""
    with breaking(task.node.store.runs, "list_active", times=3) as calls:
        task.engine.on_remote_change()
        await until(lambda: len(calls) > 3 or task.node.metrics()["scheduler_phase_errors_total"])
        await task.check_end()


async def test_db_hiccup(task: RunningTask) -> None:
    """F5: the result cannot be written at first, and is written once."""
    with breaking(task.node.store.runs, "apply", times=2) as calls:
        task.release()
        await until(lambda: len(calls) > 2)
        await task.check_end()


async def test_leader_connection_blip(task: RunningTask) -> None:
    """F8: the leadership is lost and won again; the attempt runs on."""
    coordinator = task.engine.leader.coordinator
    assert coordinator is not None
    task.engine.election.step_down(coordinator.term)
    await until(lambda: task.engine.leader.coordinator not in (None, coordinator))
    await task.check_end()


async def test_leader_overlap(task: RunningTask) -> None:
    """F9, W-8: another node leads for a moment, and this one does not know; the result is written all the same."""
    epoch = await task.node.store.leases.acquire(LEASE_NAME, "another", 1.0, [task.engine.owner.id])
    assert epoch is not None
    await task.check_end()
