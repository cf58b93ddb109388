"""Options of tasks that a cluster runs: the resources, the image and the pod that an attempt asks for."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from tidemill.kernel.limits import is_word

KUBERNETES_EXECUTOR = "kubernetes"
RAY_EXECUTOR = "ray"

CLUSTER_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "resources": (KUBERNETES_EXECUTOR, RAY_EXECUTOR),
    "image": (KUBERNETES_EXECUTOR,),
    "pod": (KUBERNETES_EXECUTOR,),
}
"""By option, the executors that heed it."""

_RESOURCE_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_POD_SECTIONS = ("metadata", "spec")
_METADATA_SECTIONS = ("labels", "annotations")
_RESERVED_SPEC = ("restartPolicy", "serviceAccount", "serviceAccountName")
"""Tidemill retries attempts itself, and the operator decides the identity under which a task runs."""
_MAX_POD_BYTES = 32 * 1024


_PATTERN = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[a-zA-Z]*|[eE][+-]?\d+)")
_FACTORS = {
    "": Decimal(1),
    **{
        suffix: Decimal(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(value: object) -> int | float:
    """Return a quantity as a number, whole if it is: "500m" is 0.5, "1Gi" is 1073741824. It is more than 0."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    found = _PATTERN.fullmatch(text)
    if found is None or (factor := _factor(found["suffix"])) is None:
        raise ValueError(f"{value!r} is not a quantity such as 2, '500m' or '1Gi'")
    number = Decimal(found["number"]) * factor
    if not 0 < number < 2**63:
        raise ValueError(f"a quantity is more than 0 and less than 8Ei, not {value!r}")
    return int(number) if number == number.to_integral_value() else float(number)


def _factor(suffix: str) -> Decimal | None:
    if suffix[1:].lstrip("+-").isdigit():  # an exponent, as in 1e3
        return Decimal(10) ** int(suffix[1:]) if len(suffix) <= 4 else None
    return _FACTORS.get(suffix)


def parse_resources(value: object) -> dict[str, int | float]:
    """Return resources by name, sorted: cores of `cpu`, bytes of `memory`, the count of everything else."""
    if not isinstance(value, Mapping):
        raise TypeError(f"it is a mapping such as {{'cpu': '500m', 'memory': '1Gi', 'gpu': 1}}, not {value!r}")
    parsed: dict[str, int | float] = {}
    for name, quantity in sorted(value.items(), key=str):
        if not isinstance(name, str) or not _RESOURCE_PATTERN.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a resource, such as 'cpu' or 'example.com/fpga'")
        try:
            parsed[name] = parse_quantity(quantity)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    if not isinstance(parsed.get("memory", 0), int):
        raise ValueError(f"memory: it is a whole number of bytes, not {value['memory']!r}")
    return parsed


def parse_image(value: object) -> str:
    """Return the reference of a container image."""
    if not isinstance(value, str) or not is_word(value) or any(map(str.isspace, value)):
        raise TypeError(f"it is the reference of an image, such as 'registry.example.org/train:2', not {value!r}")
    return value


def parse_pod(value: object) -> dict[str, Any]:
    """Return a part of a pod; ValueError for what is not JSON, and for what Tidemill or the operator decides."""
    if not isinstance(value, Mapping):
        raise TypeError(f"it is a part of a pod, such as {{'spec': {{'nodeSelector': {{...}}}}}}, not {value!r}")
    try:
        text = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if len(text) > _MAX_POD_BYTES:
        raise ValueError(f"it has {len(text)} bytes, more than {_MAX_POD_BYTES}")
    pod: dict[str, Any] = msgspec.json.decode(text)
    if problems := list(find_pod_problems(pod)):
        raise ValueError("; ".join(problems))
    return pod


def find_pod_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a task must not put into its pod."""
    for name in pod.keys() - set(_POD_SECTIONS):
        yield f"a task sets 'metadata' and 'spec' of its pod, not '{name}'"
    for section in _POD_SECTIONS:
        if not isinstance(pod.get(section, {}), dict):
            yield f"'{section}' is a mapping, not {pod[section]!r}"
            return
    for name in pod.get("metadata", {}).keys() - set(_METADATA_SECTIONS):
        yield f"a task sets 'labels' and 'annotations' of its pod's metadata, not '{name}'"
    for name in _RESERVED_SPEC:
        if name in pod.get("spec", {}):
            yield f"a task cannot set '{name}': Tidemill and the operator decide it"


def find_cluster_problems(options: Mapping[str, Any], executor: str | None) -> Iterator[str]:
    """Yield the problem of each option that the executor of the task would ignore."""
    for name, executors in CLUSTER_OPTIONS.items():
        if options.get(name) and executor not in executors:
            names = " or ".join(f'executor="{one}"' for one in executors)
            yield f"{name}: only a cluster heeds it; set {names} too"
    gpus = (options.get("resources") or {}).get("gpu", 0)
    if executor == KUBERNETES_EXECUTOR and not isinstance(gpus, int):
        yield f"resources: Kubernetes assigns whole GPUs, not {gpus}"
