"""The options of a task: fields that every form of a task has, and how each is read.

A new option is a field and its reader here, a parameter of `Workflow.task` for type checkers, and its use.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidemill.kernel.durations import parse_positive_duration
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word, parse_labels
from tidemill.workflows.cluster_options import parse_image, parse_pod, parse_resources


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is executed. Specs are stored with these fields in this order, after their own ones."""

    timeout: float | None = None
    """Seconds that an attempt may take."""
    pool: str | None = None
    priority: int = 0
    queue: str = "default"
    executor: str | None = None
    """None: that of the node."""
    labels: tuple[str, ...] = ()
    """What a worker must have to run it; sorted."""
    resources: dict[str, int | float] = {}
    """What a cluster reserves for it: cores of `cpu`, bytes of `memory`, the count of everything else."""
    image: str | None = None
    """The container image of its pod; None: that of the operator."""
    pod: dict[str, Any] = {}
    """A part of its pod, which the operator's template and policy complete."""

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, to make another form of the task."""
        return {name: getattr(self, name) for name in OPTION_NAMES}


OPTION_NAMES = TaskOptions.__struct_fields__


def read_word(value: Any) -> str:
    """Return an option that is a name; raise TypeError for anything else."""
    if not is_word(value):
        raise TypeError(f"it is a name, {WORD_RULE}, not {value!r}")
    return str(value)


def read_optional_word(value: Any) -> str | None:
    """Return an option that is a name or None."""
    return None if value is None else read_word(value)


def _read_timeout(value: Any) -> float | None:
    return None if value is None else parse_positive_duration(value)


def _read_priority(value: Any) -> int:
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise TypeError(f"it is an integer from -{MAX_INTEGER} to {MAX_INTEGER}, higher runs sooner, not {value!r}")
    return value


def _read_labels(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"it is a list of words, such as ['gpu'], not {value!r}")
    return parse_labels(value)


OPTION_READERS: Mapping[str, Callable[[Any], Any]] = {
    "timeout": _read_timeout,
    "pool": read_optional_word,
    "priority": _read_priority,
    "queue": read_word,
    "executor": read_optional_word,
    "labels": _read_labels,
    "resources": lambda value: {} if value is None else parse_resources(value),
    "image": lambda value: None if value is None else parse_image(value),
    "pod": lambda value: {} if value is None else parse_pod(value),
}
"""By option, the function that turns what an author or a manifest says into its stored form."""
