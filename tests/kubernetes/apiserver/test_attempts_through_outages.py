"""Tasks in pods while a real control plane is killed: what runs goes on, what waits starts later, none runs twice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.pod_node import pod_node
from tests.kubernetes.pods import Pods
from tests.remote.remote_node import starts
from tests.service.server.serving_node import Served
from tidemill.workflows.states import RunState

TIMEOUT = 100.0
RUNS = 12


@pytest.fixture
async def pods(own_control_plane: ControlPlane) -> AsyncIterator[Pods]:
    """The pods of a namespace with a kubelet, on a control plane that the test may stop."""
    async with own_control_plane.cluster.client() as client:
        namespace = await create_namespace(client)
        async with open_kubelet(own_control_plane.cluster, namespace):
            yield Pods(client, namespace)


@pytest.fixture
async def server(own_control_plane: ControlPlane, pods: Pods, tmp_path: Path) -> AsyncIterator[Served]:
    """A served node that runs tasks in pods."""
    store = f"sqlite:///{tmp_path}/store.db"
    config = {"request_timeout": "1s"}
    async with pod_node(store, own_control_plane.cluster, pods.namespace, tmp_path, **config) as server:
        yield server  # type: ignore[misc]


async def test_a_result_arrives_while_there_is_no_api_server(
    own_control_plane: ControlPlane, server: Served, pods: Pods, tmp_path: Path
) -> None:
    """A pod reports to the node, not through the cluster; its remains go when the API server is back."""
    run = await server.node.start("remote", folder=str(tmp_path))
    await until(lambda: starts(tmp_path))
    await asyncio.to_thread(own_control_plane.kill_server)
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["count"].attempts) == (7, 1)
    await asyncio.to_thread(own_control_plane.start_server)
    await until_no_pods(pods)
    assert starts(tmp_path) == [1]


async def test_a_task_that_is_ready_while_there_is_no_api_server_starts_later(
    own_control_plane: ControlPlane, server: Served, tmp_path: Path
) -> None:
    """It has not failed, and costs no retry."""
    (tmp_path / "gate").touch()
    await asyncio.to_thread(own_control_plane.kill_server)
    run = await server.node.start("remote", folder=str(tmp_path))
    await asyncio.sleep(1.0)  # so that a launch is tried in vain
    await asyncio.to_thread(own_control_plane.start_server)
    result = await run.wait(timeout=TIMEOUT)
    assert result.state is RunState.SUCCESS
    assert len(starts(tmp_path)) == 1


@pytest.mark.timeout(240)
async def test_nothing_is_lost_or_runs_twice_while_the_control_plane_dies_again_and_again(
    own_control_plane: ControlPlane, server: Served, pods: Pods, tmp_path: Path
) -> None:
    """W-11, W-12: neither the API server nor its database takes an attempt along."""
    folders = [tmp_path / f"run-{number}" for number in range(RUNS)]
    for folder in folders:
        folder.mkdir()
    runs = [await server.node.start("remote", folder=str(folder)) for folder in folders]
    for kill, start in (
        (own_control_plane.kill_server, own_control_plane.start_server),
        (own_control_plane.kill_etcd, own_control_plane.start_etcd),
        (own_control_plane.kill_server, own_control_plane.start_server),
    ):
        await asyncio.to_thread(kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(start)
    for folder in folders:
        (folder / "gate").touch()
    results = [await run.wait(timeout=TIMEOUT) for run in runs]
    assert [result.state for result in results] == [RunState.SUCCESS] * RUNS
    assert [len(starts(folder)) for folder in folders] == [1] * RUNS
    await until_no_pods(pods)


async def until_no_pods(pods: Pods) -> None:
    """Wait until all pods are removed."""
    async with asyncio.timeout(TIMEOUT):
        while (await pods.select())["items"]:  # noqa: ASYNC110 - the node removes them
            await asyncio.sleep(0.1)
