"""Pods as the API server returns them, in the states that clusters put them into."""

from typing import Any

from tests.unit.engine.kubernetes.launches import CONFIG, INSTANCE, KEY, launch
from tidemill.engine.workflows.executors.kubernetes.pod_manifest import build_pod
from tidemill.workflows.records import AttemptKey


def stored_pod(
    status: dict[str, Any] | None = None, key: AttemptKey = KEY, uid: str = "uid-1", **metadata: Any
) -> dict[str, Any]:
    """Return the pod of an attempt as it is stored."""
    pod = build_pod(launch(key), INSTANCE, CONFIG)
    pod["metadata"] |= {"uid": uid, **metadata}
    return {**pod, "status": status or {"phase": "Pending"}}


def container(**state: Any) -> list[dict[str, Any]]:
    """Return the statuses of the containers of a pod: that of the attempt."""
    return [{"name": "attempt", "state": state}]


def terminated(code: int, reason: str = "Error") -> list[dict[str, Any]]:
    """Return the statuses of a pod whose container has ended."""
    return container(terminated={"exitCode": code, "reason": reason})


def disruption(reason: str) -> list[dict[str, Any]]:
    """Return the conditions of a pod that the cluster takes away."""
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "as planned"}]


RUNNING = {"phase": "Running", "containerStatuses": container(running={"startedAt": "2026-01-01T00:00:00Z"})}
SUCCEEDED = {"phase": "Succeeded", "containerStatuses": terminated(0, "Completed")}
FAILED = {"phase": "Failed", "containerStatuses": terminated(3)}
NO_IMAGE = {
    "phase": "Pending",
    "containerStatuses": container(waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling image"}),
}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}],
}
