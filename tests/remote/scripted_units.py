"""A cluster of units that tests play themselves, on the virtual clock: no processes, no network."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import tidemill as tm
from tidemill.engine.workflows.executors.remote.interface import (
    AttemptLauncher,
    Launch,
    StartTimeouts,
    UnitObserver,
    UnitStatus,
)
from tidemill.engine.workflows.executors.remote.orders import decode_order
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.kernel.settings import Settings
from tidemill.node_arguments import make_executors
from tidemill.workflows.attempt_results import AttemptResult, Succeeded
from tidemill.workflows.cluster_options import KUBERNETES_EXECUTOR
from tidemill.workflows.records import AttemptKey


class Cluster:
    """Units by attempt, and the launchers that observe them."""

    def __init__(self) -> None:
        self.units: dict[AttemptKey, UnitStatus] = {}
        self.launched: list[AttemptKey] = []
        self.deleted: list[AttemptKey] = []
        self.undeletable: set[AttemptKey] = set()
        self.is_full = False
        """Whether its units wait for a machine."""
        self.is_seen = True
        """Whether the launchers see what happens."""
        self.delay = 0.0
        """Seconds that the cluster takes to accept a unit."""
        self.refusals: dict[str, OperationError] = {}
        """By tenant: why the cluster takes no unit of it."""
        self.refused: list[AttemptKey] = []
        self.answer: Callable[[AttemptKey], Awaitable[None]] | None = None
        """What it does after it has started a unit, before it says so."""
        self.observers: list[UnitObserver] = []
        self.closed = asyncio.Event()
        """Set once a launcher is closed."""

    def report(self, key: AttemptKey, status: UnitStatus) -> None:
        """Change the status of a unit; every launcher sees it."""
        self.units[key] = status
        for observer in self.observers:
            observer.on_unit(key, status)


class ScriptedLauncher(AttemptLauncher):
    """Launches units of a cluster: they are running at once, and do nothing."""

    name = KUBERNETES_EXECUTOR
    start_timeouts = StartTimeouts(pending=600.0, problem=60.0)

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def open(self, observer: UnitObserver, instance: str) -> None:
        self._observer = observer
        self._cluster.observers.append(observer)
        for key, status in self._cluster.units.items():
            observer.on_unit(key, status)

    async def close(self) -> None:
        self._cluster.observers.remove(self._observer)
        self._cluster.closed.set()

    def free_slots(self) -> int:
        return 100

    def is_watching(self, tenant: str) -> bool:
        return self._cluster.is_seen

    async def launch(self, launch: Launch) -> None:
        if self._cluster.delay:
            await self._clock.sleep(self._cluster.delay)
        if (refusal := self._cluster.refusals.get(launch.tenant)) is not None:
            self._cluster.refused.append(launch.key)
            raise refusal
        self._cluster.launched.append(launch.key)
        self._cluster.report(launch.key, UnitStatus(state="pending" if self._cluster.is_full else "running"))
        if self._cluster.answer is not None:
            await self._cluster.answer(launch.key)

    async def delete(self, key: AttemptKey, grace: float) -> None:
        if key in self._cluster.undeletable:
            raise OperationError("forbidden")
        self._cluster.deleted.append(key)
        self._cluster.report(key, UnitStatus(state="ended", cause="deleted"))

    async def discard(self, key: AttemptKey) -> None:
        self._cluster.units.pop(key, None)


class RemoteTestNode(tm.testing.TestNode):
    """A test node whose remote executor starts units of a cluster."""

    __test__ = False
    cluster: Cluster

    def __init__(self, *arguments: Any, **options: Any) -> None:
        profile = {"make_launchers": self._make_scripted, "make_executors": make_executors}
        super().__init__(*arguments, **options | {"_profile": profile})
        self.suggest_server_url("http://127.0.0.1:1")

    def _make_scripted(self, settings: Settings, clock: Clock) -> list[AttemptLauncher]:
        return [ScriptedLauncher(self.cluster, clock)]


def make_node_class(cluster: Cluster) -> type[RemoteTestNode]:
    """Return the class of nodes on one cluster; a successor of a crashed node is of the same class."""
    return type("ClusterNode", (RemoteTestNode,), {"cluster": cluster})


async def begin(node: RemoteTestNode, key: AttemptKey, process: str = "p1") -> None:
    """Report the start of an attempt, as its unit would."""
    await _play(node, node.remote_reports.start(key, process))


async def beat(node: RemoteTestNode, key: AttemptKey) -> None:
    """Renew the lease of an attempt, as its unit would."""
    await _play(node, node.remote_reports.renew(key))


async def end(node: RemoteTestNode, key: AttemptKey, result: AttemptResult | None = None) -> None:
    """Report the result of an attempt, as its unit would."""
    stored = await node.store.attempt_orders.get(key)
    assert stored is not None
    result = Succeeded(msgspec.msgpack.encode(1)) if result is None else result
    await _play(node, node.remote_reports.end(decode_order(stored.payload), result))


async def _play(node: RemoteTestNode, work: Any) -> None:
    """Let the node do what a report needs."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work, name="a report")
            while not task.done():
                await node.advance("1ms")
    except* TidemillError as errors:
        raise errors.exceptions[0] from None
