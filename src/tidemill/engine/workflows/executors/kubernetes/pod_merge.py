"""Merges parts of pods as Kubernetes does: mappings by key, lists of named objects by name, other values as a whole."""

from collections.abc import Iterator, Mapping
from typing import Any

_MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "hostAliases": "ip",
}
"""By the name of a list, the field that identifies its objects. Other lists are replaced."""


def merge_pods(base: Mapping[str, Any], *parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod with parts merged into it; later parts win, and null removes a field."""
    merged: dict[str, Any] = dict(base)
    for part in parts:
        merged = _merge_mappings(merged, part)
    return merged


def _merge_mappings(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in part.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            before = merged.get(name)
            merged[name] = _merge_mappings(before if isinstance(before, Mapping) else {}, value)
        elif name in _MERGE_KEYS and isinstance(value, list):
            before = merged.get(name)
            merged[name] = _merge_lists(before if isinstance(before, list) else [], value, _MERGE_KEYS[name])
        else:
            merged[name] = value
    return merged


def _merge_lists(base: list[Any], part: list[Any], key: str) -> list[Any]:
    """Return the objects of both lists; those with the same key are merged where the first one was."""
    merged = list(base)
    for value in part:
        name = value.get(key) if isinstance(value, Mapping) else None
        index = next(
            (
                number
                for number, one in enumerate(merged)
                if name is not None and isinstance(one, Mapping) and one.get(key) == name
            ),
            None,
        )
        if index is None:
            merged.append(_merge_mappings({}, value) if isinstance(value, Mapping) else value)
        else:
            merged[index] = _merge_mappings(merged[index], value)
    return merged


FieldPath = tuple[str, ...]


def field_paths(value: object, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the path of every field that a part of a pod sets; the objects of a list share the path of the list."""
    children: list[tuple[FieldPath, object]] = []
    if isinstance(value, Mapping):
        children = [((*path, str(name)), one) for name, one in value.items()]
    elif isinstance(value, list):
        children = [(path, one) for one in value if isinstance(one, Mapping | list)]
    if not children:
        yield path
    for child, one in children:
        yield from field_paths(one, child)
