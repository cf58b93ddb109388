"""The pods of attempts that a launcher knows: what changed, and which can be removed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig
from tidemill.engine.workflows.executors.kubernetes.pod_names import read_key
from tidemill.engine.workflows.executors.kubernetes.pod_status import read_deleted_pod, read_pod
from tidemill.engine.workflows.executors.remote.interface import UnitStatus
from tidemill.workflows.records import AttemptKey

EXIT_TIMEOUT = 60.0
"""Seconds that a pod has to end by itself after its attempt's result is recorded."""


_GIVEN_UP = UnitStatus(state="ended", cause="completed")
"""Of a pod that has nothing to show: its attempt was handed back."""


class TrackedPod:
    """One pod, and since when it is as it is. Times are monotonic."""

    __slots__ = (
        "discarded_at",
        "ended_at",
        "is_being_deleted",
        "key",
        "name",
        "namespace",
        "pod",
        "status",
        "tracked_at",
        "uid",
    )

    def __init__(self, key: AttemptKey, pod: Mapping[str, Any], now: float) -> None:
        self.key = key
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self.tracked_at = now
        self.status: UnitStatus | None = None
        """What was reported last."""
        self.pod = pod
        self.ended_at: float | None = None
        self.discarded_at: float | None = None
        self.is_being_deleted = False

    @property
    def is_over(self) -> bool:
        """Whether the pod no longer runs anything."""
        return self.ended_at is not None

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted, and only its machine has not confirmed that: a lost one never will."""
        return self.pod["metadata"].get("deletionTimestamp") is not None

    def report(self, status: UnitStatus, now: float) -> UnitStatus | None:
        """Return a status that has not been reported yet; None if there is no news, or the end is known already."""
        if self.is_over or status == self.status:
            return None
        self.status = status
        if status.is_over:
            self.ended_at = now
        return status


News = tuple[TrackedPod, UnitStatus]
"""A pod, and a status of it that has not been reported yet."""


class PodTable:
    """All known pods by attempt."""

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config
        self._pods: dict[AttemptKey, TrackedPod] = {}

    def get(self, key: AttemptKey) -> TrackedPod | None:
        """Return the pod of an attempt; None if none is known."""
        return self._pods.get(key)

    def keys(self) -> set[AttemptKey]:
        """Return the attempts whose pods are known."""
        return set(self._pods)

    def live_keys(self) -> set[AttemptKey]:
        """Return the attempts whose pods may still run something, and are to do so."""
        return {key for key, one in self._pods.items() if not one.is_over and not one.is_deleted}

    def see(self, pod: Mapping[str, Any], now: float) -> News | None:
        """Take over a pod as it is now; return what is new about it, None if nothing is."""
        if (key := read_key(pod)) is None:
            return None
        known = self._pods.get(key)
        if known is None or known.uid != pod["metadata"]["uid"]:
            known = self._pods[key] = TrackedPod(key, pod, now)
        known.pod = pod
        news = known.report(read_pod(pod), now)
        return None if news is None else (known, news)

    def add_created(self, pod: Mapping[str, Any], now: float) -> News | None:
        """Take over a pod that was just created, unless the watch was faster and knows it better; return the news."""
        if (key := read_key(pod)) is None:
            return None
        known = self._pods.get(key)
        return self.see(pod, now) if known is None or known.uid != pod["metadata"]["uid"] else None

    def abandon(self, key: AttemptKey, pod: Mapping[str, Any], now: float) -> TrackedPod:
        """Report nothing more about a pod that was created in vain, and keep it until it is removed."""
        known = self._pods[key] = TrackedPod(key, pod, now)
        known.status = _GIVEN_UP
        known.ended_at = known.discarded_at = now
        return known

    def is_discarded(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is only kept until it is removed."""
        known = None if (key := read_key(pod)) is None else self._pods.get(key)
        return known is not None and known.uid == pod["metadata"]["uid"] and known.discarded_at is not None

    def remove(self, pod: Mapping[str, Any], now: float) -> News | None:
        """Forget a pod that the cluster has deleted; return how it ended, if that is news."""
        key = read_key(pod)
        known = None if key is None else self._pods.get(key)
        if known is None or known.uid != pod["metadata"]["uid"]:
            return None
        del self._pods[known.key]
        news = known.report(read_deleted_pod(pod), now)
        return None if news is None else (known, news)

    def take_list(
        self, namespace: str, pods: Iterable[Mapping[str, Any]], asked_at: float, now: float
    ) -> Iterator[News]:
        """Take over all pods of a namespace, and yield the news; a pod that is not among them was deleted unseen.

        A pod that was created after the list was asked for may be missing in it, and stays.
        """
        uids = set()
        for pod in pods:
            uids.add(pod["metadata"]["uid"])
            if (news := self.see(pod, now)) is not None:
                yield news
        missing = [one for one in self._pods.values() if one.namespace == namespace and one.uid not in uids]
        for one in missing:
            if one.tracked_at < asked_at and (news := self.remove(one.pod, now)) is not None:
                yield news

    def find_removable(self, now: float) -> Iterable[TrackedPod]:
        """Return pods that have served: failed ones are kept for a while, so that people can look at them."""
        return [one for one in self._pods.values() if not one.is_being_deleted and self._is_removable(one, now)]

    def _is_removable(self, one: TrackedPod, now: float) -> bool:
        if one.discarded_at is None:
            return False
        if one.ended_at is None:
            return now - one.discarded_at >= EXIT_TIMEOUT
        has_failed = one.status is not None and one.status.cause != "completed"
        return now - one.ended_at >= (self._config.keep_failed_pods if has_failed else 0.0)
