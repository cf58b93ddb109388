"""The objects of an API server in memory: versions, history, selection, deletion with grace, quotas."""

import base64
import copy
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from lightkube.resources.core_v1 import Pod

from tidemill.kernel.clock import SystemClock

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace ("" for objects of the cluster) and name."""

LABEL_NAME = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
KINDS = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "pods": "Pod",
    "resourcequotas": "ResourceQuota",
    "rolebindings": "RoleBinding",
    "roles": "Role",
    "secrets": "Secret",
    "serviceaccounts": "ServiceAccount",
}
ENDED = ("Succeeded", "Failed")
DEFAULT_GRACE = 30


class ApiError(Exception):
    """A request that the server refuses, as the Status object that clients read."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
            **({"details": details} if details else {}),
        }


class Change(NamedTuple):
    """One change of one object, with the object before and after."""

    version: int
    key: Key
    before: Json | None
    after: Json | None


class Objects:
    """Everything that the server stores."""

    def __init__(self) -> None:
        self.history: list[Change] = []
        self.oldest = 0
        """The version before the first change that is still known."""
        self.on_change: Callable[[], None] = lambda: None
        self._objects: dict[Key, Json] = {}
        self._versions = count(1)
        self.version = 0

    def compact(self) -> None:
        """Forget the history: watches from older versions are too late."""
        self.history.clear()
        self.oldest = self.version

    def get(self, key: Key) -> Json:
        """Return an object."""
        if key not in self._objects:
            raise ApiError(404, "NotFound", f'{key[0]} "{key[2]}" not found', {"name": key[2], "kind": key[0]})
        return copy.deepcopy(self._objects[key])

    def select(self, resource: str, namespace: str) -> list[Json]:
        """Return the objects of a namespace by name; "" stands for all namespaces."""
        found = [key for key in self._objects if key[0] == resource and namespace in ("", key[1])]
        return [copy.deepcopy(self._objects[key]) for key in sorted(found)]

    def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Store a new object."""
        made = _with_defaults(resource, namespace, body)
        name = made["metadata"]["name"]
        self._check_namespace(resource, namespace, name)
        if resource == "pods":
            _check_pod(made)
        if (resource, namespace, name) in self._objects:
            raise ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists')
        self._check_quota(resource, namespace, name)
        if not dry_run:
            self._write((resource, namespace, name), made)
        return made

    def replace(self, key: Key, body: Json) -> Json:
        """Replace an object as a whole, except its status; an old version conflicts."""
        before = self.get(key)
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, before["metadata"]["resourceVersion"]):
            message = "the object has been modified; please apply your changes to the latest version and try again"
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {key[0]} "{key[2]}": {message}')
        after = _with_defaults(key[0], key[1], {**body, "metadata": before["metadata"] | body["metadata"]})
        after["metadata"] |= {name: before["metadata"][name] for name in ("uid", "creationTimestamp")}
        return self._update(key, before, after | ({"status": before["status"]} if "status" in before else {}))

    def patch(self, key: Key, body: Json, part: str | None = None, *, is_strategic: bool = False) -> Json:
        """Merge a patch into an object: into its status, or into everything else."""
        before = self.get(key)
        body = {"status": body.get("status", {})} if part == "status" else {**body, "status": {}}
        if is_strategic and "conditions" in body["status"]:
            body["status"]["conditions"] = _merge_conditions(before, body["status"]["conditions"])
        after = _merge(before, body)
        if part is None and key[0] == "pods" and after["spec"] != before["spec"]:
            raise _invalid("Pod", key[2], {"spec": "Forbidden: pod updates may not change most fields"})
        return self._update(key, before, after)

    def bind(self, key: Key, node: str) -> None:
        """Assign a pod to a node."""
        before = self.get(key)
        if (bound := before["spec"].get("nodeName")) is not None:
            message = f'pod {key[2]} is already assigned to node "{bound}"'
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{key[2]}": {message}')
        self._update(key, before, _merge(before, {"spec": {"nodeName": node}}))

    def delete(self, key: Key, options: Json) -> Json:
        """Delete an object. A pod on a node gets a time of deletion, until its kubelet deletes it without grace."""
        before = self.get(key)
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted not in (None, before["metadata"]["uid"]):
            message = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: other"
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {key[0]} "{key[2]}": {message}')
        if key[0] != "pods":
            self._remove(key)
            return before
        grace = _deletion_grace(before, options.get("gracePeriodSeconds"))
        stamp = {"deletionTimestamp": before["metadata"].get("deletionTimestamp") or _now()}
        after = _merge(before, {"metadata": {**stamp, "deletionGracePeriodSeconds": grace}})
        if after != before or grace == 0:
            after = self._update(key, before, after)
        if grace == 0:
            self._remove(key)
        return after

    def delete_namespace(self, name: str) -> Json:
        """Delete everything in a namespace, which takes no more objects; a controller would remove it later."""
        key = ("namespaces", "", name)
        before = self.get(key)
        for one in [one for one in self._objects if one[1] == name]:
            if one in self._objects:  # it may have gone with its owner
                self._remove(one)
        return self._update(key, before, _merge(before, {"metadata": {"deletionTimestamp": _now()}}))

    def _update(self, key: Key, before: Json, after: Json) -> Json:
        if after == before and "deletionTimestamp" not in after["metadata"]:
            return before
        self._write(key, after)
        return copy.deepcopy(after)

    def _write(self, key: Key, after: Json) -> None:
        before = self._objects.get(key)
        self.version = next(self._versions)
        after["metadata"]["resourceVersion"] = str(self.version)
        self._objects[key] = copy.deepcopy(after)
        self._record(Change(self.version, key, before, self._objects[key]))

    def _remove(self, key: Key) -> None:
        before = self._objects.pop(key)
        self.version = next(self._versions)
        last = copy.deepcopy(before)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._record(Change(self.version, key, last, None))
        for owned, one in list(self._objects.items()):  # the garbage collector of a cluster
            if any(owner["uid"] == before["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences", ())):
                self._remove(owned)

    def _record(self, change: Change) -> None:
        self.history.append(change)
        self.on_change()

    def _check_namespace(self, resource: str, namespace: str, name: str) -> None:
        if not namespace:
            return
        found = self.get(("namespaces", "", namespace))
        if "deletionTimestamp" in found["metadata"]:
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise ApiError(403, "Forbidden", f'{resource} "{name}" is forbidden: {message}')

    def _check_quota(self, resource: str, namespace: str, name: str) -> None:
        for quota in self.select("resourcequotas", namespace):
            most = quota.get("spec", {}).get("hard", {}).get(resource)
            used = sum(one.get("status", {}).get("phase") not in ENDED for one in self.select(resource, namespace))
            if most is not None and used >= int(most):
                usage = f"requested: {resource}=1, used: {resource}={used}, limited: {resource}={most}"
                message = f"exceeded quota: {quota['metadata']['name']}, {usage}"
                raise ApiError(403, "Forbidden", f'{resource} "{name}" is forbidden: {message}')


def _with_defaults(resource: str, namespace: str, body: Json) -> Json:
    made = copy.deepcopy(body)
    metadata = made.setdefault("metadata", {})
    if "generateName" in metadata and "name" not in metadata:
        metadata["name"] = metadata["generateName"] + uuid4().hex[:6]
    metadata.setdefault("uid", str(uuid4()))
    metadata.setdefault("creationTimestamp", _now())
    made |= {"kind": KINDS[resource], "apiVersion": made.get("apiVersion", "v1")}
    if namespace:
        metadata["namespace"] = namespace
    if resource == "secrets":
        texts = made.pop("stringData", {})
        made["data"] = {
            **made.get("data", {}),
            **{one: base64.b64encode(texts[one].encode()).decode() for one in texts},
        }
    if resource == "pods":
        made.setdefault("spec", {}).setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE)
        made.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})
    return made


def _check_pod(pod: Json) -> None:
    try:
        Pod.from_dict(pod)
    except msgspec.ValidationError as error:
        message = f"Pod in version v1 cannot be handled as a Pod: {error}"
        raise ApiError(400, "BadRequest", message) from error
    problems = dict(_find_problems(pod))
    if problems:
        raise _invalid("Pod", pod["metadata"]["name"], problems)


def _find_problems(pod: Json) -> Iterator[tuple[str, str]]:
    spec = pod["spec"]
    if not DNS_NAME.fullmatch(pod["metadata"].get("name") or ""):
        yield "metadata.name", "Invalid value: a lowercase RFC 1123 subdomain must consist of lower case characters"
    if spec.get("restartPolicy", "Always") not in ("Always", "OnFailure", "Never"):
        yield "spec.restartPolicy", f'Unsupported value: "{spec["restartPolicy"]}"'
    for name in spec.get("nodeSelector") or {}:
        if not LABEL_NAME.fullmatch(name):
            yield "spec.nodeSelector", f'Invalid value: "{name}": name part must consist of alphanumeric characters'
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    volumes = {one["name"] for one in spec.get("volumes", ())}
    for number, container in enumerate(spec.get("containers", ())):
        if not container.get("image"):
            yield f"spec.containers[{number}].image", "Required value"
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in volumes:
                yield f"spec.containers[{number}].volumeMounts", f'Not found: "{mount["name"]}"'


def _invalid(kind: str, name: str, problems: dict[str, str]) -> ApiError:
    causes = [{"field": field, "message": text, "reason": "FieldValueInvalid"} for field, text in problems.items()]
    text = ", ".join(f"{field}: {problem}" for field, problem in problems.items())
    details = {"name": name, "kind": kind, "causes": causes}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def _deletion_grace(pod: Json, asked: int | None) -> int:
    """Return the grace of a deletion: none without a kubelet that has to stop something, and it never grows."""
    if pod["spec"].get("nodeName") is None or pod["status"].get("phase") in ENDED:
        return 0
    grace: int = pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked
    return min(grace, pod["metadata"].get("deletionGracePeriodSeconds", grace))


def _merge(base: Any, patch: Any) -> Any:
    """Return an object with a JSON merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif value != {} or name not in merged:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _merge_conditions(before: Json, patch: list[Json]) -> list[Json]:
    """Return the conditions of an object with those of a patch in the stead of others of their types."""
    merged = {one["type"]: one for one in before.get("status", {}).get("conditions", ())}
    for one in patch:
        merged[one["type"]] = merged.get(one["type"], {}) | one
    return list(merged.values())


def _now() -> str:
    return SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
