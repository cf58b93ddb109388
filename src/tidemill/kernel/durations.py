"""Durations as people write them: "200ms", "5s", "10m", "3h", "90d", also combined ("1h30m")."""

import re
from datetime import timedelta

_HINT = "a duration is a text such as '200ms', '5s', '10m', '3h' or '90d', a number of seconds, or a timedelta"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")

Duration = str | int | float | timedelta


def parse(value: Duration) -> float:
    """Return a duration in seconds; raise ValueError for anything that is none."""
    if isinstance(value, timedelta):
        return _not_negative(value.total_seconds(), value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _not_negative(float(value), value)
    text = value.strip() if isinstance(value, str) else ""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration: {_HINT}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def _not_negative(seconds: float, value: Duration) -> float:
    if not seconds >= 0:  # so that nan is refused too
        raise ValueError(f"{value!r} is not a duration: time does not run backwards")
    return seconds


def parse_positive(value: Duration) -> float:
    """Return a duration in seconds that is more than nothing."""
    seconds = parse(value)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{value!r} is not a duration longer than zero")
    return seconds
