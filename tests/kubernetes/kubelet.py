"""A kubelet for tests: it runs the pods of one namespace as processes of this machine, through any API server.

It is the default scheduler as well: pods without a node become its own. Tests make it fail as nodes do: memory runs
out, pods are evicted, images cannot be pulled, the node vanishes.
"""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import httpx

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.container import Container, decode_secret
from tests.kubernetes.lifecycles import LOW_MEMORY, NO_PULL, Step, ended, failed_by, running, waiting
from tests.kubernetes.log_endpoint import serve_logs
from tests.kubernetes.pods import MERGE_PATCH, Json, Pods

GRACE = 30.0  # seconds that an evicted pod has to end
PAUSE = 0.05  # seconds before a call is repeated that the API server did not answer
SCHEDULER = "default-scheduler"
ENDED = ("Succeeded", "Failed")

Answer = TypeVar("Answer")


class Kubelet:
    """Runs pods, each in a task of its own. `open_kubelet` makes one."""

    def __init__(self, pods: Pods, tasks: asyncio.TaskGroup, folder: Path) -> None:
        self.node = f"node-{token_hex(4)}"
        self.missing_images: set[str] = set()
        """Images that it cannot pull."""
        self.binds = True
        """Whether it takes pods that have no node yet."""
        self.is_lost = False
        """Whether the node has vanished: it starts, stops and reports nothing any more."""
        self._pods = pods
        self._tasks = tasks
        self._folder = folder
        self._containers: dict[str, Container] = {}  # by uid
        self._uids: dict[str, str] = {}  # of the newest pod of a name
        self._lives: dict[str, asyncio.Task[None]] = {}  # by uid
        self._verdicts: dict[str, Step] = {}  # what to report of a pod that the node ends itself, by uid
        self._stopping: set[str] = set()  # uids
        self._binding: set[str] = set()  # uids

    async def register(self, port: int) -> None:
        """Create the node, with the port at which the API server asks for logs."""
        endpoint = {"kubeletEndpoint": {"Port": port}}
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoint}
        client = self._pods.client
        made = await client.post("/api/v1/nodes", json={"metadata": {"name": self.node}})
        made.raise_for_status()
        path = f"/api/v1/nodes/{self.node}/status"
        (await client.patch(path, json={"status": status}, headers=MERGE_PATCH)).raise_for_status()

    async def run(self) -> None:
        """List and watch the pods until cancelled; whatever breaks is begun again."""
        while True:
            with suppress(httpx.TransportError, httpx.HTTPStatusError, _ExpiredError):
                found = await self._pods.select()
                for pod in found["items"]:
                    self._see(pod)
                version = found["metadata"]["resourceVersion"]
                async for event in self._pods.watch(resourceVersion=version):
                    if event["type"] == "ERROR":
                        raise _ExpiredError
                    self._see(event["object"], is_gone=event["type"] == "DELETED")
            await asyncio.sleep(PAUSE)

    def log_of(self, namespace: str, name: str) -> Path | None:
        """Return the file with the log of a pod."""
        container = self._containers.get(self._uids.get(name, ""))
        return container.log if container is not None and namespace == self._pods.namespace else None

    def run_out_of_memory(self, name: str) -> None:
        """Kill a pod as the kernel does when its memory limit is reached."""
        self._kill(name, ended(137, "OOMKilled"))

    def evict(self, name: str) -> None:
        """End a pod because the node lacks memory: within its grace period, as most evictions do."""
        uid = self._uids[name]
        self._verdicts[uid] = failed_by("Evicted", LOW_MEMORY, "TerminationByKubelet")
        self._tasks.create_task(self._end(uid, GRACE), name=f"kubelet: evict {name}")

    def lose(self) -> None:
        """Let the node vanish with everything that runs on it."""
        self.is_lost = True
        self.kill_all()

    def kill_all(self) -> None:
        """Kill every process that it started."""
        for container in self._containers.values():
            container.kill()

    def _kill(self, name: str, verdict: Step) -> None:
        uid = self._uids[name]
        self._verdicts[uid] = verdict
        self._containers[uid].kill()

    def _see(self, pod: Json, *, is_gone: bool = False) -> None:
        """Act on a pod as it is now."""
        uid, is_deleted = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
        node = pod["spec"].get("nodeName")
        if self.is_lost or node not in (None, self.node):
            return
        if is_gone:
            if uid in self._containers:
                self._containers[uid].kill()
        elif node is None:
            if self._takes(pod) and not is_deleted and uid not in self._binding:
                self._binding.add(uid)
                self._start(self._insist(lambda: self._pods.bind(pod["metadata"]["name"], self.node)), pod, "bind")
        elif is_deleted:
            if uid not in self._stopping:
                self._stopping.add(uid)
                self._start(self._stop(pod), pod, "stop")
        elif uid not in self._containers and pod["status"]["phase"] not in ENDED:
            self._adopt(pod)

    def _takes(self, pod: Json) -> bool:
        """Return whether it is the scheduler of a pod."""
        return self.binds and pod["spec"].get("schedulerName", SCHEDULER) == SCHEDULER

    def _adopt(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        folder = self._folder / uid
        folder.mkdir()
        self._containers[uid] = Container(pod, folder)
        self._uids[pod["metadata"]["name"]] = uid
        self._lives[uid] = self._start(self._live(pod), pod, "run")

    def _start(self, work: Awaitable[None], pod: Json, verb: str) -> asyncio.Task[None]:
        async def guarded() -> None:
            with suppress(httpx.HTTPStatusError):  # the pod has gone, or another has it: the watch says so
                await work

        return self._tasks.create_task(guarded(), name=f"kubelet: {verb} {pod['metadata']['name']}")

    async def _live(self, pod: Json) -> None:
        """Start the process of a pod, and report how it ends."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        container = self._containers[uid]
        await self._report(name, waiting("ContainerCreating"))
        secrets = await self._prepare(name, container)
        if uid in self._stopping:
            return
        await container.start(secrets)
        await self._report(name, running())
        code = await container.wait()
        await self._report(name, self._verdicts.get(uid) or ended(code, "Error" if code else "Completed"))

    async def _prepare(self, name: str, container: Container) -> dict[str, dict[str, bytes]]:
        """Pull the image and read the secrets of a pod, for as long as one is missing."""
        image = container.spec["image"]
        while image in self.missing_images and not self.is_lost and self._uids[name] not in self._stopping:
            await self._report(name, waiting("ErrImagePull", NO_PULL))
            await self._report(name, waiting("ImagePullBackOff", f'Back-off pulling image "{image}"'))
            await asyncio.sleep(PAUSE)
        secrets = {}
        for secret in container.secret_names:
            path = f"/api/v1/namespaces/{self._pods.namespace}/secrets/{secret}"
            while (answer := await self._insist(lambda path=path: self._pods.client.get(path))).is_error:  # type: ignore[misc]
                await self._report(name, waiting("CreateContainerConfigError", f'secret "{secret}" not found'))
                await asyncio.sleep(PAUSE)
            secrets[secret] = decode_secret(answer.json())
        return secrets

    async def _stop(self, pod: Json) -> None:
        """Stop the process of a deleted pod within its grace, then say that it has gone."""
        metadata = pod["metadata"]
        container = self._containers.get(metadata["uid"])
        if container is not None:
            await self._end(metadata["uid"], metadata["deletionGracePeriodSeconds"])
        last = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await self._insist(lambda: self._pods.delete(metadata["name"], **last))

    async def _end(self, uid: str, grace: float) -> None:
        """End the process of a pod: SIGTERM, then SIGKILL after its grace period."""
        container, life = self._containers[uid], self._lives[uid]
        container.kill(signal.SIGTERM)
        await asyncio.wait([life], timeout=grace)
        container.kill()
        await asyncio.wait([life])

    async def _report(self, name: str, step: Step) -> None:
        if not self.is_lost:
            await self._insist(lambda: step(self._pods, name))

    async def _insist(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeat a call until the API server answers."""
        while True:
            try:
                return await call()
            except httpx.TransportError:
                await asyncio.sleep(PAUSE)
            except httpx.HTTPStatusError as error:
                if error.response.is_client_error:
                    raise
                await asyncio.sleep(PAUSE)


class _ExpiredError(Exception):
    """The version from which a watch should continue is forgotten."""


@asynccontextmanager
async def open_kubelet(cluster: Cluster, namespace: str) -> AsyncIterator[Kubelet]:
    """Run the pods of a namespace; every process ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="tidemill-kubelet-"))
    try:
        async with cluster.client() as client, asyncio.TaskGroup() as tasks:
            kubelet = Kubelet(Pods(client, namespace), tasks, folder)
            async with serve_logs(kubelet.log_of, folder) as port:
                await kubelet.register(port)
                watching = tasks.create_task(kubelet.run(), name="kubelet: watch")
                try:
                    yield kubelet
                finally:
                    watching.cancel()
                    kubelet.lose()
                    await client.delete(f"/api/v1/nodes/{kubelet.node}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
