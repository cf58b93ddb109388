"""Names, labels and annotations of the pods of attempts: who a pod belongs to can be read off the pod."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from tidemill.engine.workflows.executors.remote.interface import Launch
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey

PREFIX = "tidemill/"
"""Begins the labels and annotations that Tidemill owns: a task cannot set them."""
INSTANCE_LABEL = f"{PREFIX}instance"
KEY_ANNOTATION = f"{PREFIX}key"

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MAX_SLUG_LENGTH = 44  # with a digest, a name stays below the 63 characters of a DNS label


def pod_name(instance: str, key: AttemptKey, workflow: str) -> str:
    """Return the name of an attempt's pod: the same whenever it is asked for, and of no other attempt."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{workflow}-{key.task}".lower()).strip("-")
    slug = slug if slug[:1].isalpha() else f"task-{slug}"
    return f"{slug[:_MAX_SLUG_LENGTH].rstrip('-')}-{_digest([instance, *key])}"


def pod_labels(instance: str, launch: Launch) -> dict[str, str]:
    """Return the labels by which people and Tidemill find the pod of an attempt."""
    key = launch.key
    element = {} if key.element == UNMAPPED else {f"{PREFIX}element": str(key.element)}
    return {
        "app.kubernetes.io/name": "tidemill",
        "app.kubernetes.io/component": "attempt",
        "app.kubernetes.io/managed-by": "tidemill",
        INSTANCE_LABEL: instance_label(instance),
        f"{PREFIX}tenant": label_value(launch.tenant),
        f"{PREFIX}workflow": label_value(launch.workflow),
        f"{PREFIX}run": label_value(key.run),
        f"{PREFIX}task": label_value(key.task),
        **element,
        f"{PREFIX}attempt": str(key.attempt),
    }


def pod_annotations(launch: Launch) -> dict[str, str]:
    """Return what labels cannot hold exactly: the attempt's key, and names with other characters."""
    return {
        KEY_ANNOTATION: msgspec.json.encode(launch.key).decode(),
        f"{PREFIX}tenant": launch.tenant,
        f"{PREFIX}workflow": launch.workflow,
        f"{PREFIX}version": launch.version,
    }


def read_key(pod: Mapping[str, Any]) -> AttemptKey | None:
    """Return the attempt that a pod belongs to; None if it is not a pod of an attempt."""
    text = (pod["metadata"].get("annotations") or {}).get(KEY_ANNOTATION, "")
    try:
        return msgspec.json.decode(text, type=AttemptKey)
    except msgspec.DecodeError:
        return None


def instance_label(instance: str) -> str:
    """Return the label of all pods of one store."""
    return _digest([instance])


def label_value(text: str) -> str:
    """Return a text as the value of a label; one that cannot be is shortened, and told apart by a digest."""
    if _LABEL_VALUE.fullmatch(text):
        return text
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_MAX_SLUG_LENGTH].strip("-_.")
    return f"{slug}-{_digest([text])}".lstrip("-")


def _digest(parts: list[object]) -> str:
    return sha256(msgspec.json.encode(parts)).hexdigest()[:16]
