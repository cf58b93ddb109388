"""The operator's configuration of the Kubernetes executor: where pods run, what they have, and what is allowed."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tidemill.kernel.durations import parse_duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.limits import is_name
from tidemill.kernel.settings import parse_toml
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cluster_options import parse_image, parse_resources

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")

MAX_NAMESPACES = 80
"""Each namespace needs its own connection, and the client has a hundred."""

DEFAULT_ALLOWED = (
    "spec.nodeSelector",
    "spec.tolerations",
    "spec.affinity",
    "spec.topologySpreadConstraints",
    "spec.terminationGracePeriodSeconds",
    "spec.volumes.name",
    "spec.volumes.emptyDir",
    "spec.containers.name",
    "spec.containers.env.name",
    "spec.containers.env.value",
    "spec.containers.volumeMounts",
    "spec.containers.workingDir",
)
"""The fields of its pod that a task may set, unless the policy says otherwise: none gives it rights or secrets.

Labels are not among them, because Services select pods by label, nor annotations, to which other controllers react.
"""

_IDENTITY_FIELDS = (("metadata", "name"), ("metadata", "generateName"), ("metadata", "namespace"))
_OWNED_FIELDS = (*_IDENTITY_FIELDS, ("spec", "restartPolicy"), ("spec", "serviceAccountName"))
"""Fields that a template cannot set: Tidemill decides them, or a key of the configuration does."""


class PodPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator enforces on every pod: a task cannot change it."""

    pod: dict[str, Any] = {}
    """A part of a pod, merged last."""
    allow: tuple[str, ...] = DEFAULT_ALLOWED
    """The fields of its pod that a task may set."""
    images: tuple[str, ...] = ("*",)
    """Patterns of the images that a task may name."""
    max_resources: dict[str, int | float] = {}
    """The most that a pod may ask for."""


class TenantPods(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pods of one tenant run, and as whom."""

    namespace: str
    service_account: str
    image: str


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the Kubernetes executor. Durations are seconds."""

    image: str
    namespace: str = "default"
    service_account: str = "default"
    kubeconfig: str | None = None
    """The file with the address of the cluster; None in a pod, or for the user's own."""
    context: str | None = None
    concurrency: int = 100
    """The number of pods at a time."""
    concurrent_requests: int = 8
    request_timeout: float = 10.0
    pending_timeout: float = 600.0
    """How long a pod may wait for a node."""
    start_timeout: float = 60.0
    """How long the image of a pod may fail to be pulled, or its container to be created."""
    keep_failed_pods: float = 3600.0
    gpu_resource: str = "nvidia.com/gpu"
    """The resource of the cluster that `gpu` of a task stands for."""
    resources: dict[str, int | float] = {}
    """What a task gets that asks for nothing."""
    template: dict[str, Any] = {}
    """A part of a pod, which tasks complete."""
    policy: PodPolicy = PodPolicy()
    tenants: dict[str, Mapping[str, str]] = {}
    """By tenant, what differs from the rest: namespace, service account, image."""

    def for_tenant(self, tenant: str) -> TenantPods:
        """Return where the pods of a tenant run."""
        common = {"namespace": self.namespace, "service_account": self.service_account, "image": self.image}
        return TenantPods(**common | dict(self.tenants.get(tenant, {})))

    def namespaces(self) -> list[str]:
        """Return the namespaces in which pods run."""
        return sorted({self.namespace, *(self.for_tenant(tenant).namespace for tenant in self.tenants)})


def read_config(path: str | Path) -> KubernetesConfig:
    """Return the configuration of a TOML file; one DefinitionError with every problem of the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError.single("kubernetes_config", f"{path} cannot be read: {error}") from error
    reader = _TomlReader()
    values = reader.read("", parse_toml(text, str(path), "kubernetes_config"), _CONFIG_PARSERS)
    policy = PodPolicy(**reader.read("policy.", values.pop("policy", {}), _POLICY_PARSERS))
    tenants: dict[str, Mapping[str, str]] = {
        name: reader.read(f"tenants.{name}.", one, _TENANT_PARSERS) for name, one in values.pop("tenants", {}).items()
    }
    if "image" not in values and not any(one.startswith("image:") for one in reader.problems):
        reader.problems.append("image: it is missing: name an image that has Tidemill, see `tidemill export docker`")
    namespaces = {one.get("namespace") for one in (values, *tenants.values())}
    if len(namespaces) > MAX_NAMESPACES:
        reader.problems.append(f"tenants: they have {len(namespaces)} namespaces, more than {MAX_NAMESPACES}")
    if reader.problems:
        location = Location(str(path), 1)
        raise DefinitionError([Problem(message=one, location=location) for one in reader.problems], "kubernetes_config")
    return KubernetesConfig(**values, policy=policy, tenants=tenants)


class _TomlReader:
    """Reads tables, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, prefix: str, table: Any, parsers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
        """Return the values of a table that are right; `prefix` names the table in problems."""
        if not isinstance(table, dict):
            self.problems.append(f"{prefix.rstrip('.')}: it is a table, not {table!r}")
            return {}
        parsed = {}
        for key, value in table.items():
            if key not in parsers:
                hint = did_you_mean(key, parsers) or f"; there are {', '.join(parsers)}"
                self.problems.append(f"{prefix}{key}: there is no such key{hint}")
                continue
            try:
                parsed[key] = parsers[key](value)
            except (TypeError, ValueError) as error:
                self.problems.append(f"{prefix}{key}: {error}")
        return parsed


def _parse_dns_label(value: Any) -> str:
    if not isinstance(value, str) or not _DNS_LABEL.fullmatch(value):
        raise ValueError(f"it is a name of Kubernetes: small letters, digits and '-', at most 63, not {value!r}")
    return value


def _parse_dns_name(value: Any) -> str:
    if not isinstance(value, str) or not _DNS_NAME.fullmatch(value):
        raise ValueError(f"it is a name of Kubernetes: small letters, digits, '-' and '.', not {value!r}")
    return value


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"it is a text, not {value!r}")
    return value


def _parse_count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"it is a whole number from 1, not {value!r}")
    return value


def _parse_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise TypeError(f"it is a list of texts, not {value!r}")
    return tuple(value)


def _parse_part_of_pod(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"it is a table, not {value!r}")
    if problems := list(_find_template_problems(value)):
        raise ValueError("; ".join(problems))
    return value


def _find_template_problems(part: dict[str, Any]) -> Iterator[str]:
    for name, section in part.items():
        if name not in ("metadata", "spec") or not isinstance(section, dict):
            yield f"it has the tables 'metadata' and 'spec', not '{name}' = {section!r}"
            return
    for section, field in _OWNED_FIELDS:
        if field in part.get(section, {}):
            yield f"it cannot set {section}.{field}: Tidemill decides it, or a separate key does"


def _parse_tenants(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(map(is_name, value)):
        raise TypeError(f"it has a table for each tenant, such as [tenants.acme], not {value!r}")
    return value


_TENANT_PARSERS: dict[str, Callable[[Any], Any]] = {
    "namespace": _parse_dns_label,
    "service_account": _parse_dns_name,
    "image": parse_image,
}
_POLICY_PARSERS: dict[str, Callable[[Any], Any]] = {
    "pod": _parse_part_of_pod,
    "allow": _parse_texts,
    "images": _parse_texts,
    "max_resources": parse_resources,
}
_CONFIG_PARSERS: dict[str, Callable[[Any], Any]] = {
    **_TENANT_PARSERS,
    "kubeconfig": _parse_text,
    "context": _parse_text,
    "concurrency": _parse_count,
    "concurrent_requests": _parse_count,
    "request_timeout": parse_positive_duration,
    "pending_timeout": parse_positive_duration,
    "start_timeout": parse_positive_duration,
    "keep_failed_pods": parse_duration,
    "gpu_resource": _parse_text,
    "resources": parse_resources,
    "template": _parse_part_of_pod,
    "policy": lambda value: value,
    "tenants": _parse_tenants,
}
