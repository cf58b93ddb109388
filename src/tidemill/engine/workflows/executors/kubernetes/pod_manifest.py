"""Builds the pod of an attempt: defaults, then the operator's template, then the task, then the operator's policy."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tidemill.engine.workflows.executors.kubernetes.configuration import KubernetesConfig, TenantPods
from tidemill.engine.workflows.executors.kubernetes.pod_merge import field_paths, merge_pods
from tidemill.engine.workflows.executors.kubernetes.pod_names import PREFIX, pod_annotations, pod_labels, pod_name
from tidemill.engine.workflows.executors.remote.interface import ATTEMPT_COMMAND, TOKEN_VARIABLE, Launch
from tidemill.workflows.cluster_options import parse_quantity

CONTAINER = "attempt"
"""The name of the container that runs the attempt: templates and tasks refer to it."""
TOKEN_KEY = "token"
_UNLIMITED = frozenset(["cpu"])
"""Resources without a limit: a task may use cores that are idle, but not the memory of others."""


_UNASKED = frozenset(["cpu", "memory", "ephemeral-storage"])
"""Resources that a container can use without asking for them."""


class RefusedPodError(Exception):
    """The operator's policy does not allow what a task asks for."""


def build_pod(launch: Launch, instance: str, config: KubernetesConfig) -> dict[str, Any]:
    """Return the manifest of an attempt's pod; RefusedPodError if the policy does not allow what the task asks for."""
    if problems := list(find_refusals(launch, config)):
        raise RefusedPodError("; ".join(problems))
    pods = config.for_tenant(launch.tenant)
    pod = merge_pods(
        _base_pod(pods),
        config.template,
        _resources_part(config.resources | dict(launch.resources), config.gpu_resource),
        _image_part(launch.options.get("image")),
        launch.options.get("pod") or {},
        _attempt_part(launch, instance, pods),
        config.policy.pod,
    )
    if problems := list(_find_excesses(pod, config)):
        raise RefusedPodError("; ".join(problems))
    return _limit_resources(pod, config.policy.max_resources)


def build_token_secret(launch: Launch, pod: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Return the Secret with an attempt's token. The pod owns it, so that the cluster deletes it with the pod."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": pod_labels_of(pod),
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "stringData": {TOKEN_KEY: launch.token},
    }


def pod_labels_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a pod that Tidemill owns."""
    labels = pod["metadata"].get("labels") or {}
    return {name: value for name, value in labels.items() if name.startswith(PREFIX)}


def find_refusals(launch: Launch, config: KubernetesConfig) -> Iterator[str]:
    """Yield everything that a task asks for and the operator's policy does not allow."""
    allowed = [tuple(one.split(".")) for one in config.policy.allow]
    part = launch.options.get("pod") or {}
    for path in sorted(set(field_paths(part))):
        if not path or any(path[: len(one)] == one for one in allowed):
            continue
        yield f"the operator's policy does not let a task set {'.'.join(path)} of its pod"
    for section in ("labels", "annotations"):
        for name in (part.get("metadata") or {}).get(section) or {}:
            if name.startswith(PREFIX):
                yield f"a task cannot set metadata.{section}.{name}: names that begin with '{PREFIX}' are Tidemill's"
    yield from _find_foreign_containers(part, config)
    yield from _find_foreign_mounts(part, config)
    for image in sorted({one for one in (launch.options.get("image"), *_images(part)) if one}):
        if not any(fnmatchcase(image, pattern) for pattern in config.policy.images):
            yield f"the operator's policy does not allow the image {image}, only {', '.join(config.policy.images)}"


def _find_foreign_containers(part: Mapping[str, Any], config: KubernetesConfig) -> Iterator[str]:
    """Yield each container that a task changes and that is not its own: containers are merged by name.

    A container of any other name may become one of the operator, even one that an admission webhook adds to the pod.
    Init containers have their own names where the policy allows them, but not those of the operator's containers.
    """
    spec = part.get("spec") or {}
    for one in _entries(spec, "containers"):
        if _name_of(one) != CONTAINER:
            yield f"a task can only set fields of its own container '{CONTAINER}', not of {_name_of(one)!r}"
    taken = {
        CONTAINER,
        *(_name_of(one) for layer in (config.template, config.policy.pod) for one in _containers(layer)),
    }
    for one in _entries(spec, "initContainers"):
        if (name := _name_of(one)) is None or name in taken:
            yield f"a task can only add init containers with their own names, not {name!r}"


def _find_foreign_mounts(part: Mapping[str, Any], config: KubernetesConfig) -> Iterator[str]:
    """Yield each volume of the operator that a task mounts: it may be meant for another container.

    A task that declares a volume of the same name does not make it its own: volumes are merged by name.
    """
    foreign = {name for one in (config.template, config.policy.pod) for name in _volume_names(one)}
    own = _volume_names(part) - foreign
    for container in _containers(part):
        for mount in _objects(container, "volumeMounts"):
            if mount.get("name") not in own:
                yield f"a task can only mount volumes that it declares itself, not {mount.get('name')}"


def _find_excesses(pod: Mapping[str, Any], config: KubernetesConfig) -> Iterator[str]:
    for name, most in config.policy.max_resources.items():
        resource = config.gpu_resource if name == "gpu" else name
        for kind in ("requests", "limits"):
            try:
                total = sum(_asked_for(container, kind, resource) for container in _containers(pod))
            except ValueError as error:
                yield f"{kind} of {name}: {error}"
                continue
            if total > most:
                yield f"the operator's policy allows at most {most} of {name} for a pod, not {total} ({kind})"


def _limit_resources(pod: dict[str, Any], most: Mapping[str, float]) -> dict[str, Any]:
    """Return a pod that cannot use more than the maximum: a container without a limit gets what the others leave.

    Kubernetes takes a limit for the request if there is none, so a request that is missing is written as zero.
    """
    for resource in sorted(_UNASKED & most.keys()):
        left = most[resource] - sum(_asked_for(one, "limits", resource) for one in _containers(pod))
        for container in _containers(pod):
            if _asked_for(container, "limits", resource):
                continue
            limit = max(left, _asked_for(container, "requests", resource))
            if limit <= 0:
                raise RefusedPodError(f"its containers with limits leave nothing of the {most[resource]} of {resource}")
            part = {"requests": {resource: "0"}, "limits": {resource: _quantity(limit)}}
            container["resources"] = merge_pods(part, container.get("resources") or {})
    return pod


def _asked_for(container: Mapping[str, Any], kind: str, resource: str) -> float:
    """Return how much of a resource a container asks for; ValueError if that is not a quantity."""
    value: Any = container
    for name in ("resources", kind, resource):
        value = value.get(name) if isinstance(value, Mapping) else None
    return 0 if value in (None, 0, "0") else parse_quantity(value)


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec = pod.get("spec") or {}
    return [*_objects(spec, "containers"), *_objects(spec, "initContainers")]


def _volume_names(part: Mapping[str, Any]) -> set[Any]:
    """Return the names of the volumes in a part of a pod."""
    return {name for one in _objects(part.get("spec") or {}, "volumes") if isinstance(name := one.get("name"), str)}


def _entries(spec: object, name: str) -> list[object]:
    """Return what a task has written as the objects of a list; anything but a list is an object without a name."""
    if not isinstance(spec, Mapping) or name not in spec:
        return []
    return spec[name] if isinstance(spec[name], list) else [None]


def _name_of(one: object) -> str | None:
    """Return the name of an object of a pod; None if it has none, or is not an object of a list."""
    name = one.get("name") if isinstance(one, Mapping) else None
    return name if isinstance(name, str) else None


def _objects(part: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list in a part of a pod, which a task may have written in any form."""
    found = part.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _images(pod: Mapping[str, Any]) -> list[str]:
    return [one["image"] for one in _containers(pod) if isinstance(one.get("image"), str)]


def _base_pod(pods: TenantPods) -> dict[str, Any]:
    """Return the pod of a task that asks for nothing: it satisfies the level "restricted" of Pod Security."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": CONTAINER,
                    "image": pods.image,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def _resources_part(resources: Mapping[str, float], gpu_resource: str) -> dict[str, Any]:
    written = {gpu_resource if name == "gpu" else name: _quantity(value) for name, value in resources.items()}
    if not written:
        return {}
    limits = {name: value for name, value in written.items() if name not in _UNLIMITED}
    part = {"requests": written, **({"limits": limits} if limits else {})}
    return {"spec": {"containers": [{"name": CONTAINER, "resources": part}]}}


def _quantity(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{round(number * 1000)}m"


def _image_part(image: str | None) -> dict[str, Any]:
    return {} if image is None else {"spec": {"containers": [{"name": CONTAINER, "image": image}]}}


def _attempt_part(launch: Launch, instance: str, pods: TenantPods) -> dict[str, Any]:
    """Return what makes a pod the pod of this attempt; a task cannot change any of it."""
    name = pod_name(instance, launch.key, launch.workflow)
    reference = {"name": name, "key": TOKEN_KEY}
    token = {"name": TOKEN_VARIABLE, "value": None, "valueFrom": {"secretKeyRef": reference}}
    environment = [{"name": one, "value": text} for one, text in sorted(launch.environment.items())]
    container = {"name": CONTAINER, "command": list(ATTEMPT_COMMAND), "args": None, "env": [*environment, token]}
    return {
        "metadata": {
            "name": name,
            "namespace": pods.namespace,
            "labels": pod_labels(instance, launch),
            "annotations": pod_annotations(launch),
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": pods.service_account,
            "containers": [container],
        },
    }
