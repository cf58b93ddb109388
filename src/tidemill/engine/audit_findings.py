"""Audit findings: sentences for the operator on call."""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

Severity = Literal["wrong", "note"]
"""A wrong finding needs action; a note is for information."""

_TIME_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_LISTED_LIMIT = 5  # numbers listed before the rest is only counted


class Finding(msgspec.Struct, frozen=True):
    """One finding: its subject, and a sentence that says what was found, what it means, and what to do."""

    severity: Severity
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.sentence}"


def problem_finding(subject: str, *sentences: str) -> Finding:
    """Return a finding that needs action."""
    return Finding("wrong", subject, " ".join(one for one in sentences if one))


def note_finding(subject: str, *sentences: str) -> Finding:
    """Return a finding for information."""
    return Finding("note", subject, " ".join(one for one in sentences if one))


def format_time(time: datetime) -> str:
    """Format a time for findings."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def format_timespan(duration: timedelta) -> str:
    """Format a duration in its largest unit: "3 days"."""
    seconds = abs(duration.total_seconds())
    for size, unit in _TIME_UNITS:
        if seconds >= size:
            return format_count(int(seconds // size), unit)
    return "less than a second"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: "1,204 entries"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_numbers(numbers: list[int]) -> str:
    """List the first few numbers, and count the rest: "3, 4 and 17 more"."""
    listed, rest = [str(one) for one in numbers[:_LISTED_LIMIT]], len(numbers) - _LISTED_LIMIT
    if rest > 0:
        listed.append(f"{rest:,} more")
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
