"""Lives of pods, as scheduler, kubelet and the controllers of a cluster write them into the API server.

Each life is a list of steps. `live` takes them over HTTP, so it works with every API server; statuses have the form
that kubelets of Kubernetes 1.26 and newer write.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tests.kubernetes.pods import Json, Pods

NODE = "test-node"
STARTED = "2026-01-01T00:00:01Z"
FINISHED = "2026-01-01T00:00:09Z"

Step = Callable[[Pods, str], Coroutine[Any, Any, Any]]


async def live(pods: Pods, name: str, life: str) -> None:
    """Let a pod that exists live one of the lives."""
    for step in LIVES[life]:
        await step(pods, name)


async def begin(pods: Pods, name: str) -> None:
    """Let a pod that exists run."""
    for step in STARTED_UP:
        await step(pods, name)


def bound() -> Step:
    """The scheduler assigns the pod to a node."""
    return lambda pods, name: pods.bind(name, NODE)


def status(**fields: Any) -> Step:
    """The kubelet or a controller writes the status."""
    return lambda pods, name: pods.set_status(name, **fields)


def deleted(grace: int = 30) -> Step:
    """Someone deletes the pod: a person, a drain, a controller. Grace 0 is the last word, of a kubelet mostly."""
    return lambda pods, name: pods.delete(name, gracePeriodSeconds=grace)


def condition(kind: str, value: bool, reason: str | None = None, message: str | None = None) -> Json:
    """Return a condition of a status."""
    texts = {"reason": reason, "message": message}
    return {"type": kind, "status": str(value)} | {key: text for key, text in texts.items() if text is not None}


def unscheduled() -> Step:
    """The scheduler finds no node."""
    message = "0/3 nodes are available: 3 Insufficient cpu."
    return status(phase="Pending", conditions=[condition("PodScheduled", False, "Unschedulable", message)])


def waiting(reason: str, message: str | None = None) -> Step:
    """The kubelet has the pod, and its container does not start yet."""
    state = {"waiting": {"reason": reason} | ({"message": message} if message is not None else {})}
    return status(phase="Pending", startTime=STARTED, **_container(state, "ContainersNotReady"))


def running() -> Step:
    """The container runs."""
    return status(phase="Running", startTime=STARTED, **_container({"running": {"startedAt": STARTED}}))


def ended(exit_code: int, reason: str, message: str | None = None) -> Step:
    """The container has ended, and with it the pod."""
    phase = "Failed" if exit_code else "Succeeded"
    return status(phase=phase, startTime=STARTED, **_container(_terminated(exit_code, reason, message), "PodCompleted"))


def failed_by(reason: str, message: str, disruption: str | None = None) -> Step:
    """The kubelet ends the pod itself, and says why in the status of the pod."""
    fields = _container(_terminated(137, "Error"), "PodFailed")
    if disruption is not None:
        fields["conditions"].append(condition("DisruptionTarget", True, disruption, message))
    return status(phase="Failed", reason=reason, message=message, startTime=STARTED, **fields)


def disrupted(reason: str, message: str) -> Step:
    """A part of the control plane says that it is about to remove the pod, and why."""
    return status(conditions=[condition("DisruptionTarget", True, reason, message)])


def _terminated(exit_code: int, reason: str, message: str | None = None) -> Json:
    state: Json = {"exitCode": exit_code, "reason": reason, "startedAt": STARTED, "finishedAt": FINISHED}
    return {"terminated": state | ({"message": message} if message is not None else {})}


def _container(state: Json, unready: str | None = None) -> Json:
    """Return the fields of a status that follow from the state of its one container."""
    conditions = [
        condition("Initialized", True),
        condition("Ready", unready is None, unready),
        condition("ContainersReady", unready is None, unready),
        condition("PodScheduled", True),
    ]
    image = {"image": "registry.test/tidemill", "imageID": ""}
    own: Json = {"name": "attempt", "state": state, "ready": unready is None, "restartCount": 0, **image}
    return {"conditions": conditions, "containerStatuses": [own]}


NO_PULL = 'rpc error: code = NotFound desc = failed to pull and unpack image "registry.test/tidemill": not found'
NO_PROGRAM = 'failed to create containerd task: exec: "tidemill": executable file not found in $PATH: unknown'
LOW_MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90128Ki."
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
STARTING = (bound(), waiting("ContainerCreating"))
STARTED_UP = (*STARTING, running())

LIVES: Mapping[str, tuple[Step, ...]] = {
    "succeeded": (*STARTED_UP, ended(0, "Completed")),
    "failed": (*STARTED_UP, ended(3, "Error")),
    "out of memory": (*STARTED_UP, ended(137, "OOMKilled")),
    "killed before it was seen to run": (*STARTING, ended(1, "Error")),
    "unschedulable": (unscheduled(),),
    "unschedulable at first": (unscheduled(), *STARTED_UP, ended(0, "Completed")),
    "no image": (
        *STARTING,
        waiting("ErrImagePull", NO_PULL),
        waiting("ImagePullBackOff", 'Back-off pulling image "registry.test/tidemill"'),
    ),
    "image after a while": (
        *STARTING,
        waiting("ErrImagePull", "rpc error: code = Unavailable desc = i/o timeout"),
        waiting("ImagePullBackOff", 'Back-off pulling image "registry.test/tidemill"'),
        running(),
        ended(0, "Completed"),
    ),
    "bad image name": (*STARTING, waiting("InvalidImageName", 'Failed to apply default image tag "UPPER": invalid')),
    "no secret": (*STARTING, waiting("CreateContainerConfigError", 'secret "token" not found')),
    "no program": (*STARTING, ended(128, "StartError", NO_PROGRAM)),
    "evicted": (*STARTED_UP, failed_by("Evicted", LOW_MEMORY, "TerminationByKubelet")),
    "node shut down": (*STARTED_UP, failed_by("Terminated", SHUTDOWN, "TerminationByKubelet")),
    "no room on the node": (
        bound(),
        status(
            phase="Failed",
            reason="OutOfcpu",
            message="Node didn't have enough resource: cpu, requested: 500, used: 3900, capacity: 4000",
        ),
    ),
    "too long": (
        *STARTED_UP,
        failed_by("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
    ),
    "deleted": (*STARTED_UP, deleted(), ended(143, "Error"), deleted(0)),
    "deleted while pending": (unscheduled(), deleted()),
    "preempted": (
        *STARTED_UP,
        disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        deleted(),
        ended(143, "Error"),
        deleted(0),
    ),
    "drained": (
        *STARTED_UP,
        disrupted("EvictionByEvictionAPI", "Eviction API: evicting"),
        deleted(),
        ended(143, "Error"),
        deleted(0),
    ),
    "node lost": (
        *STARTED_UP,
        status(conditions=[condition("Ready", False)]),
        disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        deleted(),
        status(reason="NodeLost", message=f"Node {NODE} which was running pod is unresponsive"),
        deleted(0),  # the garbage collector of pods, when the node has gone
    ),
}
"""By what happens."""
