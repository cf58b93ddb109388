"""Reads the status of a pod: whether its attempt waits, runs or has ended, and why. Pure."""

from collections.abc import Mapping
from typing import Any

from tidemill.engine.workflows.executors.kubernetes.pod_manifest import CONTAINER
from tidemill.engine.workflows.executors.remote.interface import UnitCause, UnitStatus

_IMAGE_REASONS = frozenset(
    [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    ]
)
_CONFIG_REASONS = frozenset(["CreateContainerConfigError", "CreateContainerError", "RunContainerError"])

_CAUSES_BY_POD_REASON: Mapping[str, UnitCause] = {
    "Evicted": "evicted",
    "Preempting": "evicted",
    "Preempted": "evicted",
    "Shutdown": "evicted",
    "NodeShutdown": "evicted",
    "Terminated": "evicted",
    "NodeAffinity": "evicted",
    "NodeLost": "node_lost",
    "UnexpectedAdmissionError": "evicted",
}
_CAUSES_BY_DISRUPTION: Mapping[str, UnitCause] = {
    "EvictionByEvictionAPI": "evicted",
    "PreemptionByScheduler": "evicted",
    "PreemptionByKubeScheduler": "evicted",
    "TerminationByKubelet": "evicted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
}


def read_pod(pod: Mapping[str, Any]) -> UnitStatus:
    """Return the state of a pod that exists."""
    status = pod.get("status") or {}
    own, others = _container_statuses(status)
    is_deleted = pod["metadata"].get("deletionTimestamp") is not None
    if (ended := _state(own, "terminated")) is not None:
        return _ended(status, ended, is_deleted)
    if status.get("phase") in ("Succeeded", "Failed"):
        failed = next((one for one in map(_failure, others) if one is not None), None)
        return _ended(status, failed, is_deleted)
    if _state(own, "running") is not None:
        return UnitStatus(state="running")
    waiting = next((one for one in map(_blocked, [*others, own]) if one is not None), None)
    if waiting is not None:
        problem = _find_problem(waiting, pod["metadata"]["name"])
        return UnitStatus(state="pending", reason=_sentence(waiting), problem=problem)
    return UnitStatus(state="pending", reason=_waiting_reason(status))


def _find_problem(waiting: Mapping[str, Any], name: str) -> UnitCause:
    """Return what keeps a container from starting.

    "deleted": the Secret with its token is missing. Its server died before it stored the token, or a person deleted it.
    """
    if waiting.get("reason") in _IMAGE_REASONS:
        return "image_pull"
    return "deleted" if f'secret "{name}" not found' in waiting.get("message", "") else "error"


def read_deleted_pod(pod: Mapping[str, Any]) -> UnitStatus:
    """Return how a pod has ended that is gone: as it said itself, or without a trace."""
    seen = read_pod(pod)
    if seen.state == "ended":
        return seen
    status = pod.get("status") or {}
    cause = _disruption(status) or _CAUSES_BY_POD_REASON.get(status.get("reason", ""), "deleted")
    return UnitStatus(state="missing", cause=cause, reason=_disruption_message(status) or "the pod was deleted")


def _container_statuses(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the status of the attempt's container, and those of the others."""
    found = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    own: Mapping[str, Any] = next((one for one in found if one.get("name") == CONTAINER), {})
    return own, [one for one in found if one.get("name") != CONTAINER]


def _state(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    state: Mapping[str, Any] | None = (container.get("state") or {}).get(name)
    return state


def _failure(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    ended = _state(container, "terminated")
    return ended if ended is not None and ended.get("exitCode") else None


def _blocked(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    waiting = _state(container, "waiting")
    return waiting if waiting is not None and waiting.get("reason") in _IMAGE_REASONS | _CONFIG_REASONS else None


def _ended(status: Mapping[str, Any], container: Mapping[str, Any] | None, is_deleted: bool) -> UnitStatus:
    code = None if container is None else container.get("exitCode")
    cause = _cause(status, container)
    reason = _disruption_message(status) or _sentence(status)
    if not reason and container is not None:
        reason = _sentence(container)
    if cause == "oom":
        reason = "the container used more memory than its limit, and the kernel killed it"
    elif cause == "error" and is_deleted:
        cause, reason = "deleted", "the pod was deleted"
    return UnitStatus(state="ended", cause=cause, exit=code, reason=reason)


def _cause(status: Mapping[str, Any], container: Mapping[str, Any] | None) -> UnitCause:
    if container is not None and container.get("reason") == "OOMKilled":
        return "oom"
    pod_reason = status.get("reason", "")
    if pod_reason.startswith("OutOf"):  # the node rejected it: another one has room
        return "evicted"
    if (found := _CAUSES_BY_POD_REASON.get(pod_reason)) is not None:
        return found
    if container is not None and container.get("exitCode") == 0:
        return "completed"
    if (found := _disruption(status)) is not None:
        return found
    if container is not None and container.get("reason") == "ContainerStatusUnknown":
        return "node_lost"
    return "completed" if container is None and status.get("phase") == "Succeeded" else "error"


def _disruption(status: Mapping[str, Any]) -> UnitCause | None:
    return _CAUSES_BY_DISRUPTION.get((_condition(status, "DisruptionTarget") or {}).get("reason", ""))


def _disruption_message(status: Mapping[str, Any]) -> str:
    return _sentence(_condition(status, "DisruptionTarget") or {})


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), None)


def _waiting_reason(status: Mapping[str, Any]) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled is None or scheduled.get("status") == "True":
        return _sentence(status)
    return _sentence(scheduled)


def _sentence(said: Mapping[str, Any]) -> str:
    """Return what the cluster says: reason and message."""
    reason, message = said.get("reason") or "", said.get("message") or ""
    return ": ".join(one for one in (reason, message) if one)
