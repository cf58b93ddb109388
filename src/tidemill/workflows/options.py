"""Reads and validates what authors declare of a task: its dependencies and its options."""

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.kernel.about import read_description, read_owner
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cluster_options import find_cluster_problems
from tidemill.workflows.definition import Task, find_label_problem, task_name
from tidemill.workflows.task_options import OPTION_READERS, read_optional_word


def read_options(options: dict[str, Any], task: str, workflow: str, location: Location) -> dict[str, Any]:
    """Return a task's options in their stored form; raise one DefinitionError with every problem."""
    read: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in options.items():
        if name not in _READERS:
            problems.append(
                f"a task has no option '{name}'{did_you_mean(name, _READERS)}; it has {', '.join(_READERS)}"
            )
            continue
        try:
            read[name] = _READERS[name](value)
        except (TypeError, ValueError) as error:
            problems.append(f"{name}: {error}")
        except DefinitionError as error:
            problems += [f"{name}: {one.message}" for one in error.problems]
    if problem := find_label_problem(read.get("labels"), read.get("executor")):
        problems.append(problem)
    problems += find_cluster_problems(read, read.get("executor"))
    if problems:
        found = [Problem(message=f"task '{task}': {one}", location=location, node=task) for one in problems]
        raise DefinitionError(found, f"workflow '{workflow}'")
    return read


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a list option as a tuple; a single value stands for a list of it, and None for an empty list."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)


def _read_task(value: Any) -> str:
    if not (isinstance(value, str | Task) or callable(value)):
        raise TypeError(f"it takes a task's name, or a function declared as a task, not {value!r}")
    return task_name(value)


def _read_tasks(value: Any) -> tuple[str, ...]:
    return tuple(_read_task(one) for one in as_tuple(value))


def _read_retry(value: Any) -> Retry | None:
    if type(value) is int and value >= 0:
        return Retry(value)
    if value is not None and not isinstance(value, Retry):
        raise TypeError(f"it is a tm.Retry(...), or a number of retries, not {value!r}")
    return value


def _read_classes(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple | set):
        raise TypeError(f"it is a list of classes, such as [Hold], not {value!r}")
    return tuple(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "each": lambda value: None if value is None else _read_task(value),
    "after": _read_tasks,
    "rule": read_optional_word,
    "retry": _read_retry,
    **OPTION_READERS,
    "ignores": _read_classes,
    "owner": read_owner,
    "description": read_description,
}
