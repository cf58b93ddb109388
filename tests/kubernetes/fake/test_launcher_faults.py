"""The launcher of pods while its API server is slow, fails, forgets, or cuts connections."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.api_server import ApiServer, Cut, Fault, Request
from tests.kubernetes.cluster import create_identity, create_namespace, documented_rules
from tests.kubernetes.kubelet import open_kubelet
from tests.kubernetes.launching import IMAGE, RecordingObserver, launch_of, name_of, open_launcher
from tests.kubernetes.lifecycles import LOW_MEMORY, Step, begin, ended, failed_by, live
from tests.kubernetes.objects import ApiError
from tests.kubernetes.pods import Pods
from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig, PodPolicy
from tidemill.engine.workflows.executors.kubernetes.launcher import KubernetesLauncher
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import OperationError

TIMEOUT = 20.0


class HastyClock(SystemClock):
    """A clock whose pauses are short: those between two tries."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 20)


@pytest.fixture
def observer() -> RecordingObserver:
    """What the launcher has seen."""
    return RecordingObserver()


@pytest.fixture
async def pods(api_server: ApiServer) -> AsyncIterator[Pods]:
    """The pods of a namespace."""
    async with api_server.cluster.client() as client:
        yield Pods(client, await create_namespace(client))


@pytest.fixture
def config() -> dict[str, Any]:
    """The configuration of the launcher; a test may parametrize it."""
    return {}


@pytest.fixture
async def launcher(
    api_server: ApiServer, pods: Pods, observer: RecordingObserver, tmp_path: Path, config: dict[str, Any]
) -> AsyncIterator[KubernetesLauncher]:
    """A launcher for the namespace of `pods`, which has seen the cluster."""
    async with open_launcher(api_server.cluster, pods.namespace, tmp_path, observer, **config) as launcher:
        await until(lambda: launcher.free_slots() > 0)
        yield launcher


async def until(is_so: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(TIMEOUT):
        while not is_so():  # noqa: ASYNC110 - the launcher has no event for it
            await asyncio.sleep(0.01)


async def until_gone(pods: Pods, name: str) -> None:
    """Wait until there is no pod of a name."""
    async with asyncio.timeout(TIMEOUT):
        while await pods.exists(name):  # noqa: ASYNC110 - another client deletes it
            await asyncio.sleep(0.01)


def first(times: int, verb: str, resource: str, fault: ApiError | Cut | str) -> Fault:
    """Return a fault of the first requests of a kind."""
    remaining = iter(range(times))

    def decide(request: Request) -> ApiError | Cut | str | None:
        is_meant = (request.verb, request.resource) == (verb, resource)
        return fault if is_meant and next(remaining, None) is not None else None

    return decide


async def take_step(api_server: ApiServer, pods: Pods, name: str, step: Step) -> None:
    """Take a step of a pod's life over a new connection."""
    async with api_server.cluster.client() as client:
        await step(Pods(client, pods.namespace), name)


UNAVAILABLE = ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


async def test_what_happens_after_a_cut_connection_is_seen(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """A watch that breaks begins with a new list, so no change is missed."""
    launch = launch_of("one")
    await launcher.launch(launch)
    await begin(pods, name_of(launch))
    await observer.until_state(launch.key, "running")
    api_server.cut_connections()
    await take_step(api_server, pods, name_of(launch), failed_by("Evicted", LOW_MEMORY))
    assert (await observer.until_over(launch.key)).cause == "evicted"


async def test_a_created_pod_is_reported_without_the_watch(
    launcher: KubernetesLauncher, observer: RecordingObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-11: a watch that hangs must not cost a pod whose image takes minutes its lease."""
    monkeypatch.setattr(launcher, "on_change", lambda kind, pod: None)
    launch = launch_of("one")
    await launcher.launch(launch)
    assert [one.state for one in observer.seen[launch.key]] == ["pending"]


@pytest.mark.parametrize("is_watching", [True, False])
async def test_a_pod_that_has_ended_is_forgotten_once_it_is_deleted(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver, is_watching: bool
) -> None:
    """A node sees the pods of all nodes, for years: another one deletes this pod."""
    launch = launch_of("one")
    await launcher.launch(launch)
    await live(pods, name_of(launch), "succeeded")
    await observer.until_over(launch.key)
    assert observer.removed == []
    api_server.objects.delete(("pods", pods.namespace, name_of(launch)), {"gracePeriodSeconds": 0})
    if not is_watching:
        api_server.objects.compact()
    await until(lambda: observer.removed)
    assert sum(one.is_over for one in observer.seen[launch.key]) == 1


async def test_a_forgotten_history_is_read_again(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """410: pods that have gone meanwhile are reported, and those that run are not lost."""
    going, staying = launch_of("going"), launch_of("staying")
    for launch in (going, staying):
        await launcher.launch(launch)
        await begin(pods, name_of(launch))
        await observer.until_state(launch.key, "running")
    lists = api_server.count("list", "pods")
    api_server.objects.delete(("pods", pods.namespace, name_of(going)), {"gracePeriodSeconds": 0})
    api_server.objects.compact()
    gone = await observer.until_over(going.key)
    assert (gone.state, gone.cause) == ("missing", "deleted")
    assert api_server.count("list", "pods") == lists + 1
    assert [one.state for one in observer.seen[staying.key]] == ["pending", "running"]


async def test_a_server_that_is_away_loses_no_unit(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """W-11, do no harm: silence says nothing about pods. There are no slots until it is back."""
    launch = launch_of("one")
    await launcher.launch(launch)
    await begin(pods, name_of(launch))
    await observer.until_state(launch.key, "running")
    await api_server.stop()
    await until(lambda: launcher.free_slots() == 0)
    assert [one.state for one in observer.seen[launch.key]] == ["pending", "running"]
    await api_server.start()
    await take_step(api_server, pods, name_of(launch), ended(137, "OOMKilled"))
    assert (await observer.until_over(launch.key)).cause == "oom"
    assert launcher.free_slots() > 0


@pytest.mark.parametrize(
    "fault", [UNAVAILABLE, Cut(), "<html>bad gateway</html>", ApiError(500, "InternalError", "etcd is slow")]
)
async def test_a_creation_is_repeated_and_creates_one_pod(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, fault: ApiError | Cut | str
) -> None:
    """Also if the first one was carried out, and only its answer was lost: then the second finds the pod."""
    api_server.fault = first(2, "create", "pods", fault)
    await launcher.launch(launch_of("one"))
    assert [one["metadata"]["name"] for one in (await pods.select())["items"]] == [name_of(launch_of("one"))]


async def test_a_busy_server_is_asked_again_when_it_says(launcher: KubernetesLauncher, api_server: ApiServer) -> None:
    """429 with Retry-After."""
    api_server.fault = first(1, "create", "pods", ApiError(429, "TooManyRequests", "please try again later"))
    began = asyncio.get_running_loop().time()
    await launcher.launch(launch_of("one"))
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert api_server.count("create", "pods") == 2


async def test_a_server_that_stays_unavailable_hands_the_attempt_back(
    launcher: KubernetesLauncher, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """Nothing is reported about a pod that was never created."""
    api_server.fault = first(1000, "create", "pods", UNAVAILABLE)
    with pytest.raises(OperationError, match="Kubernetes, create pods: the server is currently unable"):
        await launcher.launch(launch_of("one"))
    assert observer.seen == {}


async def test_a_pod_whose_token_cannot_be_stored_is_taken_back(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """The attempt is handed back and launched anew; the end of the first pod is not its end."""
    launch = launch_of("one")
    api_server.fault = first(1000, "create", "secrets", UNAVAILABLE)
    with pytest.raises(OperationError, match="create secrets"):
        await launcher.launch(launch)
    assert not await pods.exists(name_of(launch))
    api_server.fault = lambda request: None
    await launcher.launch(launch)
    await live(pods, name_of(launch), "succeeded")
    assert (await observer.until_over(launch.key)).cause == "completed"
    assert sum(one.is_over for one in observer.seen[launch.key]) == 1


async def test_a_pod_that_could_not_be_taken_back_is_removed_later(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, observer: RecordingObserver
) -> None:
    """Neither its token could be stored nor the pod deleted. It takes no slot, and no launch finds it."""
    launch = launch_of("one")
    writes = {("create", "secrets"), ("delete", "pods")}
    forbidden = ApiError(403, "Forbidden", 'User "tidemill" cannot write resource')
    api_server.fault = lambda request: forbidden if (request.verb, request.resource) in writes else None
    with pytest.raises(OperationError, match="create secrets"):
        await launcher.launch(launch)
    assert await pods.exists(name_of(launch))
    with pytest.raises(OperationError, match="is being deleted"):
        await launcher.launch(launch)
    assert launcher.free_slots() == 100
    api_server.fault = lambda request: None
    await until_gone(pods, name_of(launch))
    await until(lambda: observer.removed)
    assert not any(one.is_over for one in observer.seen.get(launch.key, ()))


async def test_a_namespace_that_cannot_be_watched_takes_no_pods(
    api_server: ApiServer, pods: Pods, observer: RecordingObserver, tmp_path: Path
) -> None:
    """Such as one in which the server has no right to list pods; the tenants of other namespaces go on."""
    elsewhere = Pods(pods.client, await create_namespace(pods.client))
    forbidden = ApiError(403, "Forbidden", 'User "tidemill" cannot list resource "pods"')
    api_server.fault = lambda request: forbidden if request.namespace == elsewhere.namespace else None
    tenants = {"acme": {"namespace": elsewhere.namespace}}
    async with open_launcher(api_server.cluster, pods.namespace, tmp_path, observer, tenants=tenants) as launcher:
        await launcher.launch(launch_of("one"))
        with pytest.raises(OperationError, match=f"namespace {elsewhere.namespace} cannot be watched"):
            await launcher.launch(launch_of("two", tenant="acme"))
        assert (launcher.is_watching("public"), launcher.is_watching("acme")) == (True, False)
        api_server.fault = lambda request: None
        await until(lambda: launcher.is_watching("acme"))
        await launcher.launch(launch_of("two", tenant="acme"))
        await live(elsewhere, name_of(launch_of("two")), "succeeded")
        await observer.until_over(launch_of("two").key)
        assert [one.state for one in observer.seen[launch_of("one").key]] == ["pending"]


async def test_a_watch_outlives_every_error(
    launcher: KubernetesLauncher, pods: Pods, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is a bug: it is logged, and the namespace is listed again."""
    failures = iter([ZeroDivisionError("a bug")])
    on_list = launcher.on_list

    def fail_once(*arguments: Any) -> None:
        if (error := next(failures, None)) is not None:
            raise error
        on_list(*arguments)

    monkeypatch.setattr(launcher, "on_list", fail_once)
    api_server.cut_connections()
    await until(lambda: not launcher.is_watching("public"))
    await until(lambda: launcher.is_watching("public"))


async def test_a_program_that_signs_in_may_fail_for_a_while(
    api_server: ApiServer, pods: Pods, observer: RecordingObserver, tmp_path: Path
) -> None:
    """Such as one that asks a service of a cloud: the watch goes on once it works, and launches are handed back."""
    kubeconfig, answer = tmp_path / "kubeconfig", tmp_path / "credential.json"
    document = yaml.safe_load(api_server.cluster.write_kubeconfig(kubeconfig, pods.namespace).read_text())
    version = "client.authentication.k8s.io/v1beta1"
    document["users"][0]["user"] = {"exec": {"apiVersion": version, "command": "cat", "args": [str(answer)]}}
    kubeconfig.write_text(yaml.safe_dump(document))
    config = KubernetesConfig(image=IMAGE, namespace=pods.namespace, kubeconfig=str(kubeconfig))
    launcher = KubernetesLauncher(config, HastyClock())
    await launcher.open(observer, "store")
    try:
        problem = ""
        async with asyncio.timeout(TIMEOUT):
            while "Exec cat returned 1" not in problem:
                with pytest.raises(OperationError) as caught:
                    await launcher.launch(launch_of("one"))
                problem = str(caught.value)
                await asyncio.sleep(0.01)
        token = await create_identity(pods.client, pods.namespace, "tidemill", documented_rules())
        answer.write_text(json.dumps({"kind": "ExecCredential", "status": {"token": token}}))
        await until(lambda: launcher.is_watching("public"))
    finally:
        await launcher.close()


@pytest.mark.parametrize("config", [{"concurrent_requests": 3, "concurrency": 20}])
async def test_requests_are_bounded_and_slots_are_counted(
    launcher: KubernetesLauncher, api_server: ApiServer, config: dict[str, Any]
) -> None:
    """A slow server gets no more requests at a time than configured, however many pods are launched."""
    waiting = most = 0

    def slow(request: Request) -> float | None:
        nonlocal waiting, most
        if request.verb != "create":
            return None
        waiting += 1
        most = max(most, waiting)
        asyncio.get_running_loop().call_later(0.02, leave)
        return 0.02

    def leave() -> None:
        nonlocal waiting
        waiting -= 1

    api_server.fault = slow
    async with asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(launcher.launch(launch_of(f"run-{number}")), name=f"launch {number}")
        await asyncio.sleep(0)
        assert launcher.free_slots() == 8  # a pod takes its slot before it is created
    assert most == 3
    assert launcher.free_slots() == 8


async def test_pods_are_removed_after_their_result_and_failed_ones_stay(
    launcher: KubernetesLauncher, pods: Pods, observer: RecordingObserver
) -> None:
    """`keep_failed_pods` is an hour: people can look at the pod and its log."""
    for life in ("failed", "succeeded"):
        launch = launch_of(life)
        await launcher.launch(launch)
        await live(pods, name_of(launch), life)
        await observer.until_over(launch.key)
        await launcher.discard(launch.key)
    await until_gone(pods, name_of(launch_of("succeeded")))
    assert await pods.exists(name_of(launch_of("failed")))


CRASH = ["sh", "-c", "echo no module named train; exit 3"]
CRASHES = PodPolicy(pod={"spec": {"containers": [{"name": "attempt", "command": CRASH}]}})


@pytest.mark.parametrize("config", [{"policy": CRASHES, "template": {}}])
async def test_a_program_that_ends_without_a_report_leaves_its_last_words(
    launcher: KubernetesLauncher,
    pods: Pods,
    api_server: ApiServer,
    observer: RecordingObserver,
    config: dict[str, Any],
) -> None:
    """The end of the pod's log comes with its status, because nothing else explains it."""
    async with open_kubelet(api_server.cluster, pods.namespace):
        await launcher.launch(launch_of("one"))
        status = await observer.until_over(launch_of("one").key)
    assert (status.cause, status.exit, status.log_tail) == ("error", 3, "no module named train\n")


async def test_a_pod_named_after_namespaces_is_no_missing_namespace(
    launcher: KubernetesLauncher, observer: RecordingObserver, pods: Pods, api_server: ApiServer
) -> None:
    """The API server says which kind of object there is not; the words of its message include names of authors."""
    launch = launch_of("r1", workflow="namespaces")
    await launcher.launch(launch)
    gone = ApiError(404, "NotFound", f'pods "{name_of(launch)}" not found', {"kind": "pods"})
    api_server.fault = first(1, "delete", "pods", gone)
    assert "namespaces" in name_of(launch)
    await launcher.delete(launch.key, 1.0)


async def test_a_kubeconfig_without_a_user_is_named(api_server: ApiServer, pods: Pods, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    document = yaml.safe_load(api_server.cluster.write_kubeconfig(kubeconfig, pods.namespace).read_text())
    for context in document["contexts"]:
        del context["context"]["user"]
    kubeconfig.write_text(yaml.safe_dump(document))
    config = KubernetesConfig(image=IMAGE, namespace=pods.namespace, kubeconfig=str(kubeconfig))
    with pytest.raises(OperationError, match="names no user"):
        await KubernetesLauncher(config, SystemClock()).open(RecordingObserver(), "store")
