"""The kubelet of these tests treats pods as a real one does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelet import SCHEDULER, Kubelet, open_kubelet
from tests.kubernetes.pods import TIMEOUT, Json, Pods

IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
SLEEPS = "import signal; print('up', flush=True); signal.pause()"


@pytest.fixture
async def kubelet(cluster: Cluster, pods: Pods) -> AsyncIterator[Kubelet]:
    """A kubelet for the namespace of `pods`."""
    async with open_kubelet(cluster, pods.namespace) as kubelet:
        yield kubelet


async def test_a_pod_runs_and_its_exit_code_is_reported(pods: Pods, kubelet: Kubelet) -> None:
    await create(pods, "fine", "pass")
    await create(pods, "failing", "raise SystemExit(3)")
    fine, failing = await until(pods, "fine", has_ended), await until(pods, "failing", has_ended)
    assert (fine["status"]["phase"], exit_code(fine)) == ("Succeeded", 0)
    assert (failing["status"]["phase"], exit_code(failing)) == ("Failed", 3)
    assert fine["spec"]["nodeName"] == kubelet.node


async def test_a_pod_gets_its_variables_and_its_secret(pods: Pods, kubelet: Kubelet, tmp_path: Path) -> None:
    secret = {"metadata": {"name": "token"}, "stringData": {"token": "hidden"}}
    await create(
        pods,
        "one",
        "import os, sys; print(os.environ['PLAIN'], os.environ['HIDDEN'], open(os.environ['FILE']).read())",
        env=[
            {"name": "PLAIN", "value": "open"},
            {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
            {"name": "FILE", "value": "/run/token/token"},
        ],
        volumeMounts=[{"name": "token", "mountPath": "/run/token"}],
        volumes=[{"name": "token", "secret": {"secretName": "token"}}],
    )
    await until(pods, "one", lambda pod: waits_for(pod) == "CreateContainerConfigError")
    (await pods.client.post(pods.path.replace("pods", "secrets"), json=secret)).raise_for_status()
    await until(pods, "one", has_ended)
    answer = await pods.client.get(f"{pods.path}/one/log", params={"tailLines": 1})
    assert answer.text == "open hidden hidden\n"


async def test_a_deleted_pod_is_asked_to_end_then_gone(pods: Pods, kubelet: Kubelet) -> None:
    await create(pods, "one", SLEEPS)
    await until(pods, "one", is_running)
    version = (await pods.select())["metadata"]["resourceVersion"]
    await pods.delete("one", gracePeriodSeconds=600)
    events = await pods.watch_until(lambda event: event["type"] == "DELETED", resourceVersion=version)
    assert 143 in [exit_code(event["object"]) for event in events]


async def test_a_pod_that_does_not_end_within_its_grace_is_killed(pods: Pods, kubelet: Kubelet) -> None:
    await create(pods, "one", IGNORES_SIGTERM)
    await until(pods, "one", is_running)
    await printed(pods, "one", "up")
    version = (await pods.select())["metadata"]["resourceVersion"]
    await pods.delete("one", gracePeriodSeconds=1)
    events = await pods.watch_until(lambda event: event["type"] == "DELETED", resourceVersion=version)
    assert 137 in [exit_code(event["object"]) for event in events]


async def test_a_node_fails_as_tests_want(pods: Pods, kubelet: Kubelet) -> None:
    for name in ("greedy", "evicted"):
        await create(pods, name, SLEEPS)
        await until(pods, name, is_running)
    kubelet.run_out_of_memory("greedy")
    kubelet.evict("evicted")
    greedy, evicted = await until(pods, "greedy", has_ended), await until(pods, "evicted", has_ended)
    assert greedy["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"
    assert evicted["status"]["reason"] == "Evicted"


async def test_an_image_that_cannot_be_pulled_keeps_a_pod_waiting(pods: Pods, kubelet: Kubelet) -> None:
    kubelet.missing_images.add("registry.test/tidemill")
    await create(pods, "one", "pass")
    await until(pods, "one", lambda pod: waits_for(pod) == "ImagePullBackOff")
    kubelet.missing_images.clear()
    await until(pods, "one", has_ended)


async def create(pods: Pods, name: str, script: str, *, volumes: Sequence[Json] = (), **more: Any) -> None:
    """Create a pod that runs a Python script."""
    own = {"name": "attempt", "image": "registry.test/tidemill", "command": [sys.executable, "-c", script], **more}
    await pods.create(name, containers=[own], volumes=list(volumes), schedulerName=SCHEDULER)


async def until(pods: Pods, name: str, is_so: Callable[[Json], bool]) -> Json:
    """Wait until a pod is as a test needs it."""
    events = await pods.watch_until(
        lambda event: event["type"] != "DELETED" and is_so(event["object"]), fieldSelector=f"metadata.name={name}"
    )
    last: Json = events[-1]["object"]
    return last


async def printed(pods: Pods, name: str, text: str) -> None:
    """Wait until a pod has printed a text."""
    async with asyncio.timeout(TIMEOUT):
        while text not in (await pods.client.get(f"{pods.path}/{name}/log")).text:  # noqa: ASYNC110 - a process prints
            await asyncio.sleep(0.02)


def has_ended(pod: Json) -> bool:
    """Return whether a pod runs nothing any more."""
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def is_running(pod: Json) -> bool:
    """Return whether the process of a pod runs."""
    return pod["status"]["phase"] == "Running"


def exit_code(pod: Json) -> int | None:
    """Return the exit code of a pod."""
    (container,) = pod["status"]["containerStatuses"]
    code: int | None = container["state"].get("terminated", {}).get("exitCode")
    return code


def waits_for(pod: Json) -> str | None:
    """Return why the container of a pod does not start."""
    (container,) = pod["status"].get("containerStatuses", [{"state": {}}])
    reason: str | None = container["state"].get("waiting", {}).get("reason")
    return reason
