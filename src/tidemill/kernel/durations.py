"""Durations as people write them: "200ms", "5s", "10m", "3h", "90d", or combined ("1h30m")."""

import re
from datetime import timedelta

_HINT = "a duration is a text such as '200ms', '5s', '10m', '3h' or '90d', a number of seconds, or a timedelta"

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION_PATTERN = re.compile(rf"(?:{_PART_PATTERN.pattern})+")

MAX_DURATION_SECONDS = 36_500 * _UNIT_SECONDS["d"]
"""The longest duration, a hundred years: a longer one is a mistake, and leaves the range of datetime."""

Duration = str | int | float | timedelta


def parse_duration(value: Duration) -> float:
    """Return a duration in seconds; raise ValueError for anything else."""
    seconds = _to_seconds(value)
    if not seconds >= 0:  # rejects nan too
        raise ValueError(f"{value!r} is not a duration: it must not be negative")
    if seconds > MAX_DURATION_SECONDS:
        raise ValueError(f"{value!r} is not a duration: it is finite, and at most a hundred years, '36500d'")
    return seconds


def _to_seconds(value: Duration) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        bounded = max(-1.0, min(value, 2 * MAX_DURATION_SECONDS))  # an int may be larger than any float
        return float(bounded)
    text = value.strip() if isinstance(value, str) else ""
    if not _DURATION_PATTERN.fullmatch(text):
        raise ValueError(f"{value!r} is not a duration: {_HINT}")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART_PATTERN.findall(text))


def parse_signed_duration(value: Duration) -> float:
    """Return a duration in seconds, negative for "-1h" and the like; raise ValueError for anything else."""
    if isinstance(value, str):
        text = value.strip()
        return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)
    is_negative = value < timedelta() if isinstance(value, timedelta) else value < 0
    return -parse_duration(-value) if is_negative else parse_duration(value)


def parse_positive_duration(value: Duration) -> float:
    """Return a duration in seconds; raise ValueError for zero too."""
    seconds = parse_duration(value)
    if not seconds > 0:
        raise ValueError(f"{value!r} is not a duration longer than zero")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration as people write it, to the microsecond, so that `parse_duration` reads it: "30s", "1h30m"."""
    text, rest = "", round(seconds, 6)
    for unit in ("d", "h", "m"):
        whole, rest = divmod(rest, _UNIT_SECONDS[unit])
        text += f"{whole:.0f}{unit}" if whole else ""
    if text and not rest:
        return text
    return f"{text}{rest:.6f}".rstrip("0").rstrip(".") + "s"
