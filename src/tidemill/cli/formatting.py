"""States, lengths of time and values as people read them: short, and in colour on a terminal."""

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.workflows.states import RunState, TaskState

LINE_LIMIT = 500
"""Characters of a text that are shown at most where it is one of many."""

_MARKS = {
    TaskState.NONE: ("·", ".", "dim"),
    TaskState.SCHEDULED: ("○", "o", "dim"),
    TaskState.QUEUED: ("○", "o", "dim"),
    TaskState.RUNNING: ("●", "*", "cyan"),
    TaskState.SUCCESS: ("✓", "+", "green"),
    TaskState.FAILED: ("✗", "x", "bold red"),
    TaskState.SKIPPED: ("-", "-", "dim"),
    TaskState.UPSTREAM_FAILED: ("✗", "x", "red"),
    TaskState.UP_FOR_RETRY: ("↻", "r", "yellow"),
    TaskState.DEFERRED: ("◔", "d", "blue"),
    TaskState.CANCELLED: ("■", "#", "yellow"),
}


def state_mark(state: TaskState, *, is_ascii: bool = False) -> Text:
    """Return the sign of a state."""
    sign, plain, style = _MARKS[state]
    return Text(plain if is_ascii else sign, style)


def state_text(state: TaskState | RunState) -> Text:
    """Return the word for a state, in its colour."""
    style = _MARKS[TaskState(state)][2]
    return Text(str(state), style)


def format_short_duration(seconds: float) -> str:
    """Return a length of time in at most seven characters: "12ms", "3.4s", "2m05s", "3h12m", "2d4h"."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"


def format_elapsed(start: datetime | None, end: datetime | None) -> str:
    """Return how long something took, or nothing if it has not begun or not ended."""
    return "" if start is None or end is None else format_short_duration((end - start).total_seconds())


def format_time(at: datetime | None, *, seconds: bool = True) -> str:
    """Return a moment, to the second or to the minute, in the time of this machine; nothing for none."""
    text = "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"
    return text if seconds else text[:-3]


def format_short_time(at: datetime) -> str:
    """Return a moment of this year or the last, in the time of this machine."""
    return f"{at.astimezone():%m-%d %H:%M:%S}"


def format_zoned_time(at: datetime) -> str:
    """Return a moment, to the second, in the time of this machine, with the name of that."""
    return f"{format_time(at)} {timezone_name([at])}"


def timezone_name(moments: Iterable[datetime | None]) -> str:
    """Return the name of this machine's time at some moments: "UTC", "CET", or "CET/CEST" if they lie in both."""
    return "/".join(dict.fromkeys(f"{at.astimezone():%Z}" for at in moments if at is not None))


def time_column_title(title: str, moments: Iterable[datetime | None]) -> str:
    """Return the title of a column of moments, with the name of the time they are in."""
    name = timezone_name(moments)
    return f"{title} ({name})" if name else title


def relative_path(path: str) -> str:
    """Return a file, with or without a line, seen from here."""
    here = f"{os.getcwd()}{os.sep}"
    return path.removeprefix(here) if path.startswith(here) else "." if path == here[:-1] else path


def format_with_fields(message: str, fields: Mapping[str, Any], limit: int = LINE_LIMIT) -> str:
    """Return what was said in one line, and behind it the fields that it was said with: "read  rows=3"."""
    told = " ".join(f"{name}={_format_field(value)}" for name, value in fields.items())
    return one_line(message, limit) + (f"  {one_line(told, limit)}" if told else "")


def _format_field(value: Any) -> str:
    """Return the value of a field: a text as it is if it is one word, else in quotes."""
    return value if isinstance(value, str) and value.isprintable() and value.split() == [value] else repr(value)


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return a text without line breaks and control characters, cut if it is very long."""
    flat = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * limit]).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def shorten_name(name: str, limit: int) -> str:
    """Return a name of at most so many characters: its beginning and, as that tells names apart, its end."""
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{name[: limit - 1 - tail]}…{name[len(name) - tail :]}"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 task", "1,204 tasks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_value(value: Any, limit: int = LINE_LIMIT) -> str:
    """Return a value in one line; nothing for None."""
    if value is None:
        return ""
    try:
        return one_line(value if isinstance(value, str) else repr(value), limit)
    except AUTHOR_ERRORS as error:  # author code: a `__repr__` may do anything
        return describe(error)
