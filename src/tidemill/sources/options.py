"""Checks the options of sources when they are declared, so that a mistake shows before a node starts."""

from collections.abc import Iterable
from typing import Any

from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.suggestions import did_you_mean


def check_duration(source: str, option: str, value: Duration) -> float:
    """Return a duration in seconds, or raise DefinitionError."""
    try:
        return parse_positive_duration(value)
    except ValueError as error:
        raise DefinitionError.single(source, f"{option}=: {error}") from error


def check_choice(source: str, option: str, value: Any, choices: Iterable[str]) -> None:
    """Raise DefinitionError if a value is none of the choices."""
    known = tuple(choices)
    if value not in known:
        hint = did_you_mean(str(value), known) or f"; choose one of {', '.join(map(repr, known))}"
        raise DefinitionError.single(source, f"{option}={value!r} is unknown{hint}")


def check_text(source: str, option: str, value: Any) -> None:
    """Raise DefinitionError if a value is not a text, or empty."""
    if not isinstance(value, str) or not value:
        raise DefinitionError.single(source, f"{option}= is a text that is not empty, not {value!r}")
