"""Selectors of labels and fields, as clients write them into a query."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Json = dict[str, Any]
Matches = Callable[[Json], bool]

_SET = re.compile(r"\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*")
_EQUAL = re.compile(r"\s*([^!=\s]+)\s*(==|=|!=)\s*(\S*)\s*")
_COMMA = re.compile(r",(?![^(]*\))")  # not between parentheses


def select(labels: str, fields: str) -> Matches:
    """Return whether an object has the labels and the fields of two selectors."""
    by_label = [_requirement(one) for one in _COMMA.split(labels) if one.strip()]
    by_field = [_requirement(one) for one in _COMMA.split(fields) if one.strip()]

    def matches(found: Json) -> bool:
        own = found["metadata"].get("labels") or {}
        return all(one(own) for one in by_label) and all(one(_Fields(found)) for one in by_field)

    return matches


class _Fields(dict[str, Any]):
    """The fields of an object by their paths."""

    def __init__(self, found: Json) -> None:
        super().__init__(found)

    def get(self, path: str, default: Any = None) -> Any:
        value: Any = dict(self)
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return default if value is None else value


def _requirement(text: str) -> Callable[[Mapping[str, Any]], bool]:
    if (found := _SET.fullmatch(text)) is not None:
        name, operator, values = found[1], found[2], {one.strip() for one in found[3].split(",")}
        return lambda own: (own.get(name) in values) == (operator == "in")
    if (found := _EQUAL.fullmatch(text)) is not None:
        name, operator, value = found[1], found[2], found[3]
        return lambda own: (own.get(name) == value) == (operator != "!=")
    return lambda own: own.get(text.strip()) is not None
