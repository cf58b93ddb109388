"""Tasks as pods, end to end: a node, its server, an API server, and a kubelet that runs `tidemill attempt`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.executor_harness import until
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelet import Kubelet, open_kubelet
from tests.kubernetes.launching import IMAGE
from tests.kubernetes.pod_node import pod_node
from tests.kubernetes.pods import Json, Pods
from tests.remote.remote_node import TIMEOUT, RemoteServer, starts
from tidemill.workflows.states import RunState, TaskState


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of a store that several nodes may use."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def kubelet(cluster: Cluster, pods: Pods) -> AsyncIterator[Kubelet]:
    """A machine of the cluster."""
    async with open_kubelet(cluster, pods.namespace) as kubelet:
        yield kubelet


@pytest.fixture
async def server(
    store: str, cluster: Cluster, pods: Pods, kubelet: Kubelet, tmp_path: Path
) -> AsyncIterator[RemoteServer]:
    """A served node on the cluster."""
    async with pod_node(store, cluster, pods.namespace, tmp_path) as server:
        yield server


async def only_pod(pods: Pods) -> Json:
    """Return the one pod that there is."""
    (pod,) = (await pods.select())["items"]
    return pod


async def until_no_pods(pods: Pods) -> None:
    """Wait until all pods are removed."""
    async with asyncio.timeout(TIMEOUT):
        while (await pods.select())["items"]:  # noqa: ASYNC110 - the node removes them
            await asyncio.sleep(0.05)


async def test_a_task_runs_in_a_pod_and_reports_its_result_and_log(
    server: RemoteServer, pods: Pods, tmp_path: Path
) -> None:
    """W-2: running begins with the handshake of the pod; the pod is removed when its result is recorded."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    assert await server.state_of(run) is TaskState.RUNNING
    labels = (await only_pod(pods))["metadata"]["labels"]
    assert (labels["tidemill/run"], labels["tidemill/task"], labels["tidemill/attempt"]) == (run.id, "count", "1")
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["double"].output) == (7, 14)
    assert await server.messages_of(run) == ["begun", "printed"]
    await until_no_pods(pods)


async def test_a_failure_of_the_code_uses_the_authors_retries(server: RemoteServer, tmp_path: Path) -> None:
    run = await server.begin(tmp_path, "flaky")
    result = await run.wait(timeout=TIMEOUT)
    assert (result.tasks["fail_once"].output, result.tasks["fail_once"].attempts) == ("recovered", 2)


async def test_a_cancelled_run_deletes_its_pod(server: RemoteServer, pods: Pods, tmp_path: Path) -> None:
    """Tasks: cancel reaches the running code."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    await run.cancel()
    assert (await run.wait(timeout=TIMEOUT)).state is RunState.CANCELLED
    await until_no_pods(pods)


async def test_a_pod_outlives_its_node_and_is_adopted(
    store: str, cluster: Cluster, pods: Pods, kubelet: Kubelet, tmp_path: Path
) -> None:
    """W-12: the task goes on while there is no node, and the next one takes its result."""
    async with pod_node(store, cluster, pods.namespace, tmp_path, lease=60) as server:
        run = await server.begin(tmp_path)
        await until(lambda: starts(tmp_path))
        before = (await only_pod(pods))["metadata"]["uid"]
    assert (await only_pod(pods))["metadata"]["uid"] == before
    (tmp_path / "gate").touch()
    async with pod_node(store, cluster, pods.namespace, tmp_path, port=server.port, lease=60) as server:
        result = await server.node.run_handle(run.id).wait(timeout=TIMEOUT)
    assert (result.tasks["count"].output, result.tasks["count"].attempts) == (7, 1)
    assert starts(tmp_path) == [1]


@pytest.mark.parametrize(("verb", "outcome"), [("evict", "evicted"), ("run_out_of_memory", "oom")])
async def test_the_cluster_ends_a_pod(
    server: RemoteServer, pods: Pods, kubelet: Kubelet, tmp_path: Path, verb: str, outcome: str
) -> None:
    """W-11: an eviction costs a recovery, and the task runs again; memory is a failure, for which it has no retries.

    A kubelet evicts with SIGTERM: the attempt ends in order, and the words of the kubelet decide.
    """
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    getattr(kubelet, verb)((await only_pod(pods))["metadata"]["name"])
    if outcome == "evicted":
        await until(lambda: len(starts(tmp_path)) == 2)
        (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert result.state is (RunState.SUCCESS if outcome == "evicted" else RunState.FAILED)
    first, *_ = await server.attempts_of(run)
    assert first.outcome == outcome
    assert await server.recoveries_of(run) == (outcome == "evicted")


async def test_an_image_that_cannot_be_pulled_fails_the_task_with_the_reason(
    store: str, cluster: Cluster, pods: Pods, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The words are those of the kubelet."""
    kubelet.missing_images.add(IMAGE)
    async with pod_node(store, cluster, pods.namespace, tmp_path, start_timeout="1s") as server:
        run = await server.begin(tmp_path)
        result = await run.wait(timeout=TIMEOUT)
        assert result.state is RunState.FAILED
        (attempt,) = await server.attempts_of(run)
        assert attempt.error is not None
        assert "ImagePull" in attempt.error.message
        await until_no_pods(pods)


async def test_only_the_server_that_has_an_attempt_gives_up_its_pod(
    store: str, cluster: Cluster, pods: Pods, tmp_path: Path
) -> None:
    """Two servers watch the same pods. One that does not start fails its attempt: it is not lost by a deletion."""
    others = tmp_path / "other"
    others.mkdir()
    timeouts = {"pending_timeout": "2s", "lease": 20.0}
    async with (
        pod_node(store, cluster, pods.namespace, tmp_path, **timeouts) as server,
        pod_node(store, cluster, pods.namespace, others, **timeouts) as other,
    ):
        runs = [await one.begin(tmp_path) for one in (server, other) for _ in range(2)]
        for run in runs:
            assert (await run.wait(timeout=TIMEOUT)).state is RunState.FAILED
            (attempt,) = await server.attempts_of(run)
            assert attempt.outcome == "not_started"
        await until_no_pods(pods)


async def test_a_deleted_pod_costs_no_retry(server: RemoteServer, pods: Pods, tmp_path: Path) -> None:
    """A person drains a node, or deletes the pod: the task runs again."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    await pods.delete((await only_pod(pods))["metadata"]["name"], gracePeriodSeconds=5)
    await until(lambda: len(starts(tmp_path)) == 2)
    (tmp_path / "gate").touch()
    result = await run.wait(timeout=TIMEOUT)
    assert result.state is RunState.SUCCESS


async def test_a_lost_machine_costs_a_recovery(
    server: RemoteServer, cluster: Cluster, pods: Pods, kubelet: Kubelet, tmp_path: Path
) -> None:
    """W-11: nothing is said about the pod any more; its lease runs out, and the task runs again on another machine."""
    run = await server.begin(tmp_path)
    await until(lambda: starts(tmp_path))
    kubelet.lose()
    async with open_kubelet(cluster, pods.namespace):
        await until(lambda: len(starts(tmp_path)) == 2)
        (tmp_path / "gate").touch()
        result = await run.wait(timeout=TIMEOUT)
    assert result.state is RunState.SUCCESS
    first, second = await server.attempts_of(run)
    assert (first.outcome, second.outcome) == ("lost", "success")
