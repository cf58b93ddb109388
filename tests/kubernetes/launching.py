"""A launcher of pods under test: it launches, and what it sees is recorded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster
from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.kubernetes.launcher import KubernetesLauncher
from tidemill.engine.workflows.executors.kubernetes.pod_names import pod_name
from tidemill.engine.workflows.executors.remote.interface import Launch, UnitObserver, UnitStatus
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey

TIMEOUT = 30.0
IMAGE = "registry.test/tidemill"
INSTANCE = "store-of-the-tests"


class RecordingObserver(UnitObserver):
    """Records every status of every unit."""

    def __init__(self) -> None:
        self.seen: dict[AttemptKey, list[UnitStatus]] = {}
        self.removed: list[AttemptKey] = []
        self._news = asyncio.Event()

    def on_unit(self, key: AttemptKey, status: UnitStatus) -> None:
        self.seen.setdefault(key, []).append(status)
        self._news.set()

    def on_removed(self, key: AttemptKey) -> None:
        self.removed.append(key)
        self._news.set()

    async def until(self, key: AttemptKey, is_so: Callable[[UnitStatus], bool]) -> UnitStatus:
        """Wait until a unit has had a status that a test needs."""
        async with asyncio.timeout(TIMEOUT):
            while (found := next(filter(is_so, self.seen.get(key, ())), None)) is None:
                self._news.clear()
                await self._news.wait()
        return found

    async def until_over(self, key: AttemptKey) -> UnitStatus:
        """Wait for the end of a unit."""
        return await self.until(key, lambda status: status.is_over)

    async def until_state(self, key: AttemptKey, state: str) -> UnitStatus:
        """Wait until a unit has a state."""
        return await self.until(key, lambda status: status.state == state)


def launch_of(run: str, **more: Any) -> Launch:
    """Return the launch of an attempt, by the name of its run."""
    key = AttemptKey(run, "fit", UNMAPPED, 1)
    environment = {"TIDEMILL_SERVER_URL": "http://127.0.0.1:1"}
    common = {"tenant": "public", "workflow": "train", "version": "1", "token": "hidden", "environment": environment}
    return Launch(key=key, **common | more)


def name_of(launch: Launch, instance: str = INSTANCE) -> str:
    """Return the name of the pod of a launch."""
    return pod_name(instance, launch.key, launch.workflow)


@asynccontextmanager
async def open_launcher(
    cluster: Cluster,
    namespace: str,
    folder: Path,
    observer: UnitObserver,
    *,
    instance: str = INSTANCE,
    clock: Clock | None = None,
    **config: Any,
) -> AsyncIterator[KubernetesLauncher]:
    """A launcher that has seen the pods of a namespace. No scheduler takes its own: a test decides on them."""
    kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig", namespace)
    template = {"spec": {"schedulerName": "test"}}
    options = {"image": IMAGE, "namespace": namespace, "kubeconfig": str(kubeconfig), "template": template} | config
    launcher = KubernetesLauncher(KubernetesConfig(**options), clock or SystemClock())
    await launcher.open(observer, instance)
    try:
        async with asyncio.timeout(TIMEOUT):
            while not launcher.is_watching("public"):  # noqa: ASYNC110 - the launcher has no event for it
                await asyncio.sleep(0.01)
        yield launcher
    finally:
        await launcher.close()
