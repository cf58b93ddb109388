"""Observes the pods of one namespace: a list, then the changes since; a new list whenever changes may be missing."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Never, Protocol

from tidemill.engine.workflows.executors.kubernetes.cluster import Cluster, GoneError
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.telemetry import events
from tidemill.telemetry.logs import FailureStreaks

logger = logging.getLogger(__name__)

RESYNC_INTERVAL = 120.0
"""Seconds after which the pods are listed again: a connection that died silently delivers no changes."""
_BACKOFF = Backoff(0.5, 30.0)


class PodObserver(Protocol):
    """Receives what a watch sees."""

    def on_list(self, namespace: str, pods: list[dict[str, Any]], asked_at: float) -> None:
        """Accept all pods of the namespace, asked for at a moment of the monotonic clock."""

    def on_change(self, kind: str, pod: Mapping[str, Any]) -> None:
        """Accept one change: ADDED, MODIFIED or DELETED."""


class PodWatch:
    """Watches the pods with given labels in one namespace until cancelled."""

    def __init__(
        self, cluster: Cluster, clock: Clock, namespace: str, labels: Mapping[str, str], observer: PodObserver
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace
        self._labels = labels
        self._observer = observer
        self._streaks = FailureStreaks()
        self.is_synced = False
        """Whether the cluster answers, and its pods are known."""
        self.problem = "they have not been listed yet"
        """Why its pods are not known."""

    async def run(self) -> Never:
        """List and watch, again and again."""
        failures = 0
        while True:
            try:
                version = await self._list()
                failures = 0
                async with asyncio.timeout(RESYNC_INTERVAL):  # real time: it bounds a connection
                    await self._watch(version)
            except TimeoutError:
                continue
            except GoneError:
                await self._clock.sleep(_BACKOFF.initial_delay / 10)
            except Exception as error:  # without its watch, the node would no longer judge any pod of the namespace
                failures += 1
                self._record_failure(error)
                await self._clock.sleep(_BACKOFF.delay(failures))

    async def _list(self) -> str:
        asked_at = self._clock.monotonic()
        pods, version = await self._cluster.list_pods(self._namespace, self._labels)
        self._observer.on_list(self._namespace, pods, asked_at)
        self.is_synced = True
        if failures := self._streaks.reset(self._namespace):
            logger.info(events.CLUSTER_RECOVERED, extra={"namespace": self._namespace, "failures": failures})
        return version

    async def _watch(self, version: str) -> None:
        stream = self._cluster.watch_pods(self._namespace, self._labels, version, int(RESYNC_INTERVAL))
        async for kind, pod in stream:
            self._observer.on_change(kind, pod)

    def _record_failure(self, error: Exception) -> None:
        self.is_synced, self.problem = False, str(error)
        if (failures := self._streaks.record_failure(self._namespace, type(error).__name__)) is not None:
            extra = {"executor": "kubernetes", "namespace": self._namespace, "error": str(error), "failures": failures}
            traceback = None if isinstance(error, OperationError) else error
            logger.warning(events.CLUSTER_UNAVAILABLE, exc_info=traceback, extra=extra)
