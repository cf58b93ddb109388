"""Durations as people write them: "200ms", "5s", "10m", "3h", "90d", also combined ("1h30m")."""

import re
from datetime import timedelta

_HINT = "a duration is a text such as '200ms', '5s', '10m', '3h' or '90d', a number of seconds, or a timedelta"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")

LONGEST = 36_500 * _SECONDS["d"]
"""Seconds of the longest duration, a hundred years: what is longer is a slip, and leads out of the calendar."""

Duration = str | int | float | timedelta


def parse(value: Duration) -> float:
    """Return a duration in seconds; raise ValueError for anything that is none."""
    seconds = _seconds(value)
    if not seconds >= 0:  # so that nan is refused too
        raise ValueError(f"{value!r} is not a duration: time does not run backwards")
    if seconds > LONGEST:
        raise ValueError(f"{value!r} is not a duration: it is finite, and at most a hundred years, '36500d'")
    return seconds


def _seconds(value: Duration) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(max(-1.0, min(value, 2 * LONGEST)))  # a whole number may be more than a float can hold
    text = value.strip() if isinstance(value, str) else ""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration: {_HINT}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def parse_positive(value: Duration) -> float:
    """Return a duration in seconds that is more than nothing."""
    seconds = parse(value)
    if not seconds > 0:
        raise ValueError(f"{value!r} is not a duration longer than zero")
    return seconds


def written(seconds: float) -> str:
    """Return a duration as people write it, to the microsecond, so that `parse` reads it: "30s", "1h30m"."""
    said, rest = "", round(seconds, 6)
    for unit in ("d", "h", "m"):
        whole, rest = divmod(rest, _SECONDS[unit])
        said += f"{whole:.0f}{unit}" if whole else ""
    if said and not rest:
        return said
    return f"{said}{rest:.6f}".rstrip("0").rstrip(".") + "s"
