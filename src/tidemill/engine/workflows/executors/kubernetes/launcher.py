"""The launcher of the Kubernetes executor: one pod per attempt."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.kubernetes.cluster import Cluster, ExistsError, RejectedError
from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig, read_config
from tidemill.engine.workflows.executors.kubernetes.pod_manifest import (
    CONTAINER,
    RefusedPodError,
    build_pod,
    build_token_secret,
    pod_labels_of,
)
from tidemill.engine.workflows.executors.kubernetes.pod_names import INSTANCE_LABEL, instance_label, read_key
from tidemill.engine.workflows.executors.kubernetes.pod_table import PodTable, TrackedPod
from tidemill.engine.workflows.executors.kubernetes.pod_watch import PodWatch
from tidemill.engine.workflows.executors.remote.interface import (
    AttemptLauncher,
    Launch,
    StartTimeouts,
    UnitObserver,
    UnitStatus,
)
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.kernel.settings import Settings
from tidemill.telemetry import events
from tidemill.workflows.cluster_options import KUBERNETES_EXECUTOR
from tidemill.workflows.records import AttemptKey

logger = logging.getLogger(__name__)

_SWEEP_INTERVAL = 1.0
_NO_OUTPUT = frozenset(["completed", "evicted", "node_lost", "deleted"])
"""Causes whose pods have printed nothing that explains them."""


class KubernetesLauncher(AttemptLauncher):
    """Starts a pod per attempt, and observes all pods of its store."""

    name = KUBERNETES_EXECUTOR

    def __init__(self, config: KubernetesConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._table = PodTable(config)
        self._tasks = TaskScope()
        self._launching: set[AttemptKey] = set()
        self._watches: dict[str, PodWatch] = {}
        """By namespace."""
        self.start_timeouts = StartTimeouts(pending=config.pending_timeout, problem=config.start_timeout)
        self._cluster: Cluster | None = None
        self._observer: UnitObserver | None = None
        self._instance = ""

    async def open(self, observer: UnitObserver, instance: str) -> None:
        self._observer, self._instance = observer, instance
        self._cluster = Cluster(self._config, self._clock)
        labels = {INSTANCE_LABEL: instance_label(instance)}
        self._watches = {
            namespace: PodWatch(self._cluster, self._clock, namespace, labels, self)
            for namespace in self._config.namespaces()
        }
        await self._tasks.open()
        for watch in self._watches.values():
            self._tasks.start("watch pods", watch.run())
        self._tasks.start("sweep pods", self._sweep_forever())

    async def close(self) -> None:
        await self._tasks.close()
        if self._cluster is not None:
            await self._cluster.close()

    def free_slots(self) -> int:
        if not any(one.is_synced for one in self._watches.values()):
            return 0
        return max(0, self._config.concurrency - len(self._launching | self._table.live_keys()))

    def is_watching(self, tenant: str) -> bool:
        watch = self._watches.get(self._config.for_tenant(tenant).namespace)
        return watch is not None and watch.is_synced

    async def launch(self, launch: Launch) -> None:
        self._launching.add(launch.key)
        try:
            await self._launch(launch)
        finally:
            self._launching.discard(launch.key)

    async def _launch(self, launch: Launch) -> None:
        namespace = self._config.for_tenant(launch.tenant).namespace
        if not (watch := self._watches[namespace]).is_synced:
            raise OperationError(f"the pods of the namespace {namespace} cannot be watched: {watch.problem}")
        try:
            manifest = build_pod(launch, self._instance, self._config)
            pod = await self._create(manifest)
        except (RefusedPodError, RejectedError) as error:
            self._report(launch.key, UnitStatus(state="ended", cause="refused", reason=str(error)))
            return
        try:
            await self._opened.put_secret(build_token_secret(launch, pod, pod["metadata"]["uid"]))
        except OperationError:  # the pod could never start
            await self._remove(self._table.abandon(launch.key, pod, self._clock.monotonic()))
            raise
        if (news := self._table.add_created(pod, self._clock.monotonic())) is not None:
            self._report_news(*news)

    async def delete(self, key: AttemptKey, grace: float) -> None:
        if (known := self._table.get(key)) is not None:
            await self._opened.delete_pod(known.namespace, known.name, math.ceil(grace))

    async def discard(self, key: AttemptKey) -> None:
        if (known := self._table.get(key)) is not None and known.discarded_at is None:
            known.discarded_at = self._clock.monotonic()

    # -- what the watches see

    def on_list(self, namespace: str, pods: list[dict[str, Any]], asked_at: float) -> None:
        """Take over all pods of a namespace, and report what has changed."""
        before = self._table.keys()
        for known, status in self._table.take_list(namespace, pods, asked_at, self._clock.monotonic()):
            self._report_news(known, status)
        self._report_removed(before)

    def on_change(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Take over a change of a pod, and report what it means for its attempt."""
        now, is_deleted = self._clock.monotonic(), kind == "DELETED"
        news = self._table.remove(pod, now) if is_deleted else self._table.see(pod, now)
        if news is not None:
            self._report_news(*news)
        if is_deleted and (key := read_key(pod)) is not None:
            self._report_removed({key})

    def _report_news(self, known: TrackedPod, status: UnitStatus) -> None:
        if status.state == "ended" and status.cause not in _NO_OUTPUT:
            self._tasks.start("read the log of a pod", self._report_with_log(known, status))
        else:
            self._report(known.key, status)

    async def _report_with_log(self, known: TrackedPod, status: UnitStatus) -> None:
        tail = await self._opened.read_log_tail(known.namespace, known.name, CONTAINER)
        ended = UnitStatus(
            state=status.state, cause=status.cause, exit=status.exit, reason=status.reason, log_tail=tail
        )
        self._report(known.key, ended)

    def _report_removed(self, keys: set[AttemptKey]) -> None:
        """Report those of some pods that are no longer known."""
        if self._observer is not None:
            for key in keys - self._table.keys():
                self._observer.on_removed(key)

    def _report(self, key: AttemptKey, status: UnitStatus) -> None:
        if self._observer is not None:
            self._observer.on_unit(key, status)

    # -- pods that have served

    async def _sweep_forever(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_INTERVAL)
            for known in self._table.find_removable(self._clock.monotonic()):
                self._tasks.start("delete a pod", self._remove(known))

    async def _remove(self, known: TrackedPod) -> None:
        """Delete a pod that has served; if that fails, log it: the next sweep tries again."""
        known.is_being_deleted = True
        try:
            await self._opened.delete_pod(known.namespace, known.name)
        except OperationError as error:
            known.is_being_deleted = False
            extra = {"pod": known.name, "namespace": known.namespace, "error": str(error)}
            logger.warning(events.POD_DELETION_FAILED, extra=extra)

    async def _create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod; one that exists already is returned, if it belongs to the same attempt."""
        metadata = manifest["metadata"]
        try:
            return await self._opened.create_pod(manifest)
        except ExistsError:
            found = await self._opened.get_pod(metadata["namespace"], metadata["name"])
        if found is None or found["metadata"].get("deletionTimestamp") or self._table.is_discarded(found):
            raise OperationError(f"an older pod named {metadata['name']} is being deleted")
        if pod_labels_of(found) != pod_labels_of(manifest):
            message = f"a pod named {metadata['name']} in the namespace {metadata['namespace']} is not of this attempt"
            raise RejectedError(f"{message}: delete it")
        return found

    @property
    def _opened(self) -> Cluster:
        if self._cluster is None:
            raise OperationError("the executor 'kubernetes' is not open")
        return self._cluster


def make_launcher(settings: Settings, clock: Clock) -> KubernetesLauncher:
    """Return the launcher that a node's settings configure."""
    if settings.kubernetes_config is None:
        raise OperationError("the executor 'kubernetes' is not configured: set kubernetes_config")
    return KubernetesLauncher(read_config(settings.kubernetes_config), clock)
