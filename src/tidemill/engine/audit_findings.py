"""What an audit finds, in sentences for somebody who was woken up by it."""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

Severity = Literal["wrong", "note"]
"""Wrong is what somebody should do something about; a note is good to know."""

_TIME_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_LISTED_LIMIT = 5  # numbers that are named before the rest is only counted


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found: about what, and what was found, what it means, what to do."""

    severity: Severity
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.sentence}"


def problem_finding(subject: str, *sentences: str) -> Finding:
    """Return a finding that somebody should do something about."""
    return Finding("wrong", subject, " ".join(one for one in sentences if one))


def note_finding(subject: str, *sentences: str) -> Finding:
    """Return a finding that is good to know."""
    return Finding("note", subject, " ".join(one for one in sentences if one))


def format_time(time: datetime) -> str:
    """Return a time as it is written in findings."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def format_timespan(duration: timedelta) -> str:
    """Return a length of time in its largest unit: "3 days"."""
    seconds = abs(duration.total_seconds())
    for size, unit in _TIME_UNITS:
        if seconds >= size:
            return format_count(int(seconds // size), unit)
    return "less than a second"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1,204 entries"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_numbers(numbers: list[int]) -> str:
    """Name the first few numbers, and count the rest: "3, 4 and 17 more"."""
    named, rest = [str(one) for one in numbers[:_LISTED_LIMIT]], len(numbers) - _LISTED_LIMIT
    if rest > 0:
        named.append(f"{rest:,} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
