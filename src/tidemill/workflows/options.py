"""The options of a task, read and checked: what an author may write becomes what is kept."""

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import parse_positive
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.storable import LARGEST, WORD_RULE, is_word
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.definition import Task, name_of


def read_options(options: dict[str, Any], subject: str, location: Location) -> dict[str, Any]:
    """Return a task's options as they are kept, or raise one DefinitionError with everything wrong with them."""
    read: dict[str, Any] = {}
    said: list[str] = []
    for name, value in options.items():
        if name not in _READERS:
            said.append(f"a task has no option '{name}'{did_you_mean(name, _READERS)}; it has {', '.join(_READERS)}")
            continue
        try:
            read[name] = _READERS[name](value)
        except (TypeError, ValueError) as error:
            said.append(f"{name}: {error}")
        except DefinitionError as error:
            said += [f"{name}: {one.message}" for one in error.problems]
    if said:
        raise DefinitionError([Problem(message=one, location=location) for one in said], subject)
    return read


def several(value: Any) -> tuple[Any, ...]:
    """Return what was given as a list; one thing alone stands for a list of it, and None for none."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,)


def _task(value: Any) -> str:
    if not (isinstance(value, str | Task) or callable(value)):
        raise TypeError(f"a task is named, or is a function that was declared as one, not {value!r}")
    return name_of(value)


def _tasks(value: Any) -> tuple[str, ...]:
    return tuple(_task(one) for one in several(value))


def _retry(value: Any) -> Retry | None:
    if type(value) is int and value >= 0:
        return Retry(value)
    if value is not None and not isinstance(value, Retry):
        raise TypeError(f"it is a tm.Retry(...), or a number of further tries, not {value!r}")
    return value


def _timeout(value: Any) -> float | None:
    return None if value is None else parse_positive(value)


def _priority(value: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise TypeError(f"it is a whole number, the higher the sooner, up to {LARGEST} either way, not {value!r}")
    return value


def _word(value: Any) -> str:
    if not is_word(value):
        raise TypeError(f"it is a name, {WORD_RULE}, not {value!r}")
    return str(value)


def _word_if_any(value: Any) -> str | None:
    return None if value is None else _word(value)


def _classes(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple | set):
        raise TypeError(f"it is a list of classes, such as [Hold], not {value!r}")
    return tuple(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "each": lambda value: None if value is None else _task(value),
    "after": _tasks,
    "rule": _word_if_any,
    "retry": _retry,
    "timeout": _timeout,
    "pool": _word_if_any,
    "priority": _priority,
    "queue": _word,
    "executor": _word_if_any,
    "ignores": _classes,
}
