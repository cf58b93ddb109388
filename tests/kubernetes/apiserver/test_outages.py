"""The launcher of pods while a real API server, or its database, is killed, frozen and forgetful."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.launching import IMAGE, RecordingObserver, launch_of, name_of, open_launcher
from tests.kubernetes.lifecycles import begin, ended, live
from tests.kubernetes.pods import Pods
from tidemill.engine.workflows.executors.kubernetes.cluster import Cluster, GoneError
from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.kubernetes.launcher import KubernetesLauncher
from tidemill.engine.workflows.executors.remote.interface import Launch
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import OperationError

HASTY = {"request_timeout": 1.0}


@pytest.fixture
async def pods(own_control_plane: ControlPlane) -> AsyncIterator[Pods]:
    """The pods of a namespace, on a server that the test may stop."""
    async with own_control_plane.cluster.client() as client:
        yield Pods(client, await create_namespace(client))


@pytest.fixture
def observer() -> RecordingObserver:
    """What the launcher has seen."""
    return RecordingObserver()


@pytest.fixture
async def launcher(
    own_control_plane: ControlPlane, pods: Pods, observer: RecordingObserver, tmp_path: Path
) -> AsyncIterator[KubernetesLauncher]:
    """A launcher that does not wait for long."""
    async with open_launcher(own_control_plane.cluster, pods.namespace, tmp_path, observer, **HASTY) as launcher:
        yield launcher


async def test_units_outlive_a_killed_api_server(
    own_control_plane: ControlPlane, pods: Pods, launcher: KubernetesLauncher, observer: RecordingObserver
) -> None:
    """A server that does not answer says nothing about its pods: none is reported as lost."""
    running, ending = launch_of("running"), launch_of("ending")
    for launch in (running, ending):
        await launcher.launch(launch)
        await begin(pods, name_of(launch))
        await observer.until_state(launch.key, "running")
    own_control_plane.kill_server()
    with pytest.raises(OperationError):
        await launcher.launch(launch_of("later"))
    assert launcher.free_slots() == 0
    assert not [status for seen in observer.seen.values() for status in seen if status.is_over]
    own_control_plane.start_server()
    async with own_control_plane.cluster.client() as client:
        await ended(0, "Completed")(Pods(client, pods.namespace), name_of(ending))
    assert (await observer.until_over(ending.key)).cause == "completed"
    assert observer.seen[running.key][-1].state == "running"
    await launcher.launch(launch_of("later"))


async def test_what_happened_while_it_did_not_watch_is_seen_later(
    own_control_plane: ControlPlane, pods: Pods, launcher: KubernetesLauncher, observer: RecordingObserver
) -> None:
    """The history of these changes is forgotten, too: only a new list can tell."""
    launches = {life: launch_of(life.replace(" ", "-")) for life in ("evicted", "out of memory", "deleted")}
    for launch in launches.values():
        await launcher.launch(launch)
    own_control_plane.kill_server()
    with pytest.raises(OperationError):
        await launcher.launch(launch_of("later"))
    own_control_plane.start_server()
    async with own_control_plane.cluster.client() as client:
        for life, launch in launches.items():
            await live(Pods(client, pods.namespace), name_of(launch), life)
        own_control_plane.compact()
        causes = {life: (await observer.until_over(launch.key)).cause for life, launch in launches.items()}
    assert causes == {"evicted": "evicted", "out of memory": "oom", "deleted": "deleted"}


async def test_a_database_that_restarts_loses_no_unit(
    own_control_plane: ControlPlane, pods: Pods, launcher: KubernetesLauncher, observer: RecordingObserver
) -> None:
    """Whether an unanswered launch created its pod is unknown; to launch again is right either way."""
    first, second = launch_of("first"), launch_of("second")
    await launcher.launch(first)
    own_control_plane.kill_etcd()
    with pytest.raises(OperationError):
        await launcher.launch(second)
    own_control_plane.start_etcd()
    async with asyncio.timeout(60):
        while not await was_launched(launcher, second):  # noqa: ASYNC110 - another process comes up
            await asyncio.sleep(0.2)
    assert {name_of(first), name_of(second)} == {one["metadata"]["name"] for one in (await pods.select())["items"]}
    await live(pods, name_of(second), "failed")
    assert (await observer.until_over(second.key)).cause == "error"


async def test_a_frozen_api_server_does_not_hold_a_launch(
    own_control_plane: ControlPlane, launcher: KubernetesLauncher, pods: Pods
) -> None:
    await launcher.launch(launch_of("before"))
    own_control_plane.pause_server()
    try:
        async with asyncio.timeout(30):
            with pytest.raises(OperationError, match="does not answer in time"):
                await launcher.launch(launch_of("after"))
    finally:
        own_control_plane.continue_server()
    await launcher.launch(launch_of("after"))
    assert len((await pods.select())["items"]) == 2


async def test_a_forgotten_version_is_told_apart(own_control_plane: ControlPlane, pods: Pods, tmp_path: Path) -> None:
    """The answer to the watch is 200, and its first event an error of code 410: both mean a new list."""
    version = (await pods.create("one"))["metadata"]["resourceVersion"]
    await pods.create("two")
    own_control_plane.compact()
    own_control_plane.kill_server()
    own_control_plane.start_server()
    kubeconfig = own_control_plane.cluster.write_kubeconfig(tmp_path / "kubeconfig", pods.namespace)
    cluster = Cluster(KubernetesConfig(image=IMAGE, kubeconfig=str(kubeconfig)), SystemClock())
    try:
        with pytest.raises(GoneError, match="too old resource version"):
            await anext(cluster.watch_pods(pods.namespace, {}, version, 5))
    finally:
        await cluster.close()


async def was_launched(launcher: KubernetesLauncher, launch: Launch) -> bool:
    """Launch, and return whether the cluster took it."""
    try:
        await launcher.launch(launch)
    except OperationError:
        return False
    return True
