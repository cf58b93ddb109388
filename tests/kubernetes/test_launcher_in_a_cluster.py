"""The launcher of pods with an API server: what it creates, what it sees of pods' lives, and what it may not do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster, create_identity, documented_rules, without_verb
from tests.kubernetes.launching import INSTANCE, RecordingObserver, launch_of, name_of, open_launcher
from tests.kubernetes.lifecycles import LIVES, begin, live
from tests.kubernetes.pods import MERGE_PATCH, Pods
from tidemill.engine.workflows.executors.kubernetes.launcher import KubernetesLauncher
from tidemill.engine.workflows.executors.remote.interface import Launch, UnitStatus
from tidemill.kernel.errors import OperationError

ENDS = {
    "succeeded": ("ended", "completed", 0),
    "failed": ("ended", "error", 3),
    "out of memory": ("ended", "oom", 137),
    "killed before it was seen to run": ("ended", "error", 1),
    "unschedulable at first": ("ended", "completed", 0),
    "image after a while": ("ended", "completed", 0),
    "no program": ("ended", "error", 128),
    "evicted": ("ended", "evicted", 137),
    "node shut down": ("ended", "evicted", 137),
    "no room on the node": ("ended", "evicted", None),
    "too long": ("ended", "error", 137),
    "deleted": ("ended", "deleted", 143),
    "deleted while pending": ("missing", "deleted", None),
    "preempted": ("ended", "evicted", 143),
    "drained": ("ended", "evicted", 143),
    "node lost": ("missing", "node_lost", None),
}
"""What the attempt hears of each life: state, cause, exit code."""

PROBLEMS = {"unschedulable": None, "no image": "image_pull", "bad image name": "image_pull", "no secret": "error"}
"""What the attempt hears of each life that never starts: it waits, and the executor decides for how long."""


@pytest.fixture
def observer() -> RecordingObserver:
    """What the launcher has seen."""
    return RecordingObserver()


@pytest.fixture
async def launcher(
    cluster: Cluster, pods: Pods, observer: RecordingObserver, tmp_path: Path
) -> AsyncIterator[KubernetesLauncher]:
    """A launcher for the namespace of `pods`."""
    async with open_launcher(cluster, pods.namespace, tmp_path, observer) as launcher:
        yield launcher


async def until_known(observer: RecordingObserver, launch: Launch, life: str) -> UnitStatus:
    """Wait until all has been seen of a pod's life that there is to see."""
    if life not in PROBLEMS:
        return await observer.until_over(launch.key)
    return await observer.until(
        launch.key, lambda status: bool(status.reason) and (status.problem is not None or life == "unschedulable")
    )


def check_end(status: UnitStatus, life: str) -> None:
    """Assert that a status is the end of a life."""
    if life in PROBLEMS:
        assert (status.state, status.problem) == ("pending", PROBLEMS[life])
    else:
        assert (status.state, status.cause, status.exit) == ENDS[life]
    assert status.reason or life in ("succeeded", "unschedulable at first", "image after a while")


@pytest.mark.parametrize("life", LIVES)
async def test_the_end_of_a_life_is_told_apart(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver, life: str
) -> None:
    launch = launch_of("one")
    await launcher.launch(launch)
    await live(pods, name_of(launch), life)
    check_end(await until_known(observer, launch, life), life)


@pytest.mark.parametrize("life", LIVES)
async def test_a_life_that_ended_unwatched_is_told_apart(
    cluster: Cluster, pods: Pods, observer: RecordingObserver, tmp_path: Path, life: str
) -> None:
    """W-12: another node lists what exists; only a pod that is gone leaves no trace."""
    launch = launch_of("one")
    async with open_launcher(cluster, pods.namespace, tmp_path, RecordingObserver()) as first:
        await first.launch(launch)
    await live(pods, name_of(launch), life)
    async with open_launcher(cluster, pods.namespace, tmp_path, observer) as second:
        if await pods.exists(name_of(launch)):
            check_end(await until_known(observer, launch, life), life)
        else:
            later = launch_of("later")
            await second.launch(later)
            await begin(pods, name_of(later))
            await observer.until_state(later.key, "running")
            assert launch.key not in observer.seen


async def test_a_pod_has_what_its_attempt_needs(launcher: KubernetesLauncher, pods: Pods) -> None:
    launch = launch_of("one", resources={"cpu": 0.5, "memory": 2**30}, options={"image": "registry.test/other"})
    await launcher.launch(launch)
    pod = await pods.get(name_of(launch))
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.test/other"
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": str(2**30)}
    assert "hidden" not in str(pod)
    secret = (await pods.client.get(f"/api/v1/namespaces/{pods.namespace}/secrets/{name_of(launch)}")).json()
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == pod["metadata"]["uid"]


async def test_a_second_launch_of_an_attempt_creates_nothing(launcher: KubernetesLauncher, pods: Pods) -> None:
    launch = launch_of("one")
    await launcher.launch(launch)
    first = await pods.get(name_of(launch))
    await launcher.launch(launch)
    assert (await pods.get(name_of(launch)))["metadata"]["uid"] == first["metadata"]["uid"]
    assert len((await pods.select())["items"]) == 1


async def test_a_foreign_pod_of_the_same_name_is_left_alone(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver
) -> None:
    launch = launch_of("one")
    await pods.create(name_of(launch))
    await launcher.launch(launch)
    status = await observer.until_over(launch.key)
    assert status.cause == "refused"
    assert "not of this attempt" in status.reason


async def test_a_pod_that_the_cluster_rejects_is_refused_with_the_field(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver
) -> None:
    launch = launch_of("one", options={"pod": {"spec": {"nodeSelector": {"not a label": "x"}}}})
    await launcher.launch(launch)
    status = await observer.until_over(launch.key)
    assert status.cause == "refused"
    assert "nodeSelector" in status.reason


async def test_a_deleted_attempt_takes_its_pod_along(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver
) -> None:
    launch = launch_of("one")
    await launcher.launch(launch)
    await launcher.delete(launch.key, 5.0)
    assert (await observer.until_over(launch.key)).cause == "deleted"
    assert not await pods.exists(name_of(launch))
    await launcher.delete(launch.key, 5.0)


async def test_pods_of_other_stores_are_left_alone(
    cluster: Cluster, pods: Pods, launcher: KubernetesLauncher, observer: RecordingObserver, tmp_path: Path
) -> None:
    others, ours, theirs = RecordingObserver(), launch_of("ours"), launch_of("theirs")
    async with open_launcher(cluster, pods.namespace, tmp_path, others, instance="another store") as other:
        for launched, by, seen in ((theirs, other, others), (ours, launcher, observer)):
            await by.launch(launched)
            await begin(pods, name_of(launched, "another store" if by is other else INSTANCE))
            await seen.until_state(launched.key, "running")
    assert (set(observer.seen), set(others.seen)) == ({ours.key}, {theirs.key})


async def test_a_full_quota_hands_an_attempt_back(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver
) -> None:
    """It passes: the attempt is not refused, and starts when there is room."""
    quotas = f"/api/v1/namespaces/{pods.namespace}/resourcequotas"
    await pods.client.post(quotas, json={"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    await pods.client.patch(f"{quotas}/few/status", json=status, headers=MERGE_PATCH)
    launch = launch_of("one")
    with pytest.raises(OperationError, match="exceeded quota: few"):
        await launcher.launch(launch)
    assert observer.seen == {}
    await pods.client.delete(f"{quotas}/few")
    await launcher.launch(launch)
    assert await pods.exists(name_of(launch))


@pytest.mark.parametrize(("resource", "verb"), [("pods", "create"), ("pods", "delete"), ("secrets", "create")])
async def test_a_missing_right_is_named(
    cluster: Cluster, pods: Pods, observer: RecordingObserver, tmp_path: Path, resource: str, verb: str
) -> None:
    rules = without_verb(documented_rules(), resource, verb)
    token = await create_identity(pods.client, pods.namespace, "tidemill", rules)
    async with open_launcher(cluster.as_identity(token), pods.namespace, tmp_path, observer) as launcher:
        with pytest.raises(OperationError, match=f'cannot {verb} resource "{resource}"'):
            await launch_and_delete(launcher, launch_of("one"))


async def launch_and_delete(launcher: KubernetesLauncher, launch: Launch) -> None:
    """Start a unit and stop it."""
    await launcher.launch(launch)
    await launcher.delete(launch.key, 5.0)


async def test_the_documented_rights_are_enough(
    cluster: Cluster, pods: Pods, observer: RecordingObserver, tmp_path: Path
) -> None:
    token = await create_identity(pods.client, pods.namespace, "tidemill", documented_rules())
    launch = launch_of("one")
    async with open_launcher(cluster.as_identity(token), pods.namespace, tmp_path, observer) as launcher:
        await launcher.launch(launch)
        await launcher.launch(launch)  # which reads the pod, and replaces its secret
        await live(pods, name_of(launch), "failed")
        assert (await observer.until_over(launch.key)).cause == "error"
        await launcher.delete(launch.key, 5.0)
