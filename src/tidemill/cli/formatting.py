"""Formats states, durations, times and values for people: short, and in colour on a terminal.

Rich is imported only for coloured text, as in `output`.
"""

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.api.states import STATE_MARKS, Tone
from tidemill.workflows.states import RunState, TaskState

if TYPE_CHECKING:
    from rich.text import Text

    from tidemill.api.tasks import TaskLogLine

LINE_LIMIT = 500
"""The maximum length of a text in a list or table."""

LOG_LINE_LIMIT = 10_000
"""The maximum length of the message of a log line, and of its fields."""

_STYLES: Mapping[Tone, str] = {
    "green": "green",
    "blue": "cyan",
    "red": "bold red",
    "amber": "yellow",
    "violet": "magenta",
    "grey": "dim",
}


def state_mark(state: TaskState, *, is_ascii: bool = False) -> "Text":
    """Return the symbol of a state."""
    from rich.text import Text

    mark = STATE_MARKS[state]
    return Text(mark.plain_symbol if is_ascii else mark.symbol, _STYLES[mark.tone])


def state_text(state: TaskState | RunState) -> "Text":
    """Return the name of a state, in its colour."""
    from rich.text import Text

    return Text(str(state), state_style(state))


def state_style(state: TaskState | RunState) -> str:
    """Return the colour of a state."""
    return _STYLES[STATE_MARKS[state].tone]


def format_short_duration(seconds: float) -> str:
    """Return a duration in at most seven characters: "12ms", "3.4s", "2m05s", "3h12m", "2d4h"."""
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
    """Return the time between two moments; "" if one is missing."""
    return "" if start is None or end is None else format_short_duration((end - start).total_seconds())


def format_time(at: datetime | None, *, seconds: bool = True) -> str:
    """Return a moment in local time, to the second or to the minute; "" for None."""
    text = "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"
    return text if seconds else text[:-3]


def format_short_time(at: datetime) -> str:
    """Return a moment in local time, without the year."""
    return f"{at.astimezone():%m-%d %H:%M:%S}"


def format_zoned_time(at: datetime) -> str:
    """Return a moment in local time, to the second, with the name of the time zone."""
    return f"{format_time(at)} {timezone_name([at])}"


def timezone_name(moments: Iterable[datetime | None]) -> str:
    """Return the name of the local time zone at some moments: "UTC", "CET", or "CET/CEST" for both."""
    return "/".join(dict.fromkeys(f"{at.astimezone():%Z}" for at in moments if at is not None))


def time_column_title(title: str, moments: Iterable[datetime | None]) -> str:
    """Return the title of a column of moments, with the name of the local time zone."""
    name = timezone_name(moments)
    return f"{title} ({name})" if name else title


def relative_path(path: str) -> str:
    """Return a path, with or without a line number, relative to the current folder if it lies in it."""
    prefix = f"{os.getcwd()}{os.sep}"
    return path.removeprefix(prefix) if path.startswith(prefix) else "." if path == prefix[:-1] else path


def format_with_fields(message: str, fields: Mapping[str, Any], limit: int = LINE_LIMIT) -> str:
    """Return a log message in one line, followed by its fields: "read  rows=3"."""
    pairs = " ".join(f"{name}={_format_field(value)}" for name, value in fields.items())
    return one_line(message, limit) + (f"  {one_line(pairs, limit)}" if pairs else "")


def log_text(line: "TaskLogLine") -> str:
    """Return the logger, the message and the fields of a log line."""
    origin = f"{line.logger}: " if line.logger else ""
    return format_with_fields(f"{origin}{line.message}", line.fields, LOG_LINE_LIMIT)


def format_log_line(line: "TaskLogLine", number: int) -> str:
    """Return a log line of a task with time, number of the try, level or stream, and element."""
    element = "" if line.index is None else f"[{line.index}] "
    how = line.level if line.stream == "log" else line.stream
    return f"{format_zoned_time(line.at)} #{number} {how:<7} {element}{log_text(line)}"


def _format_field(value: Any) -> str:
    """Return the value of a field: a one-word string as it is, anything else as its repr."""
    return value if isinstance(value, str) and value.isprintable() and value.split() == [value] else repr(value)


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return a text without line breaks and control characters, truncated if it is too long."""
    flat = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * limit]).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def shorten_name(name: str, limit: int) -> str:
    """Shorten a name to at most `limit` characters; keep its beginning and its end, which tell names apart."""
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{name[: limit - 1 - tail]}…{name[len(name) - tail :]}"


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 task", "1,204 tasks"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_value(value: Any, limit: int = LINE_LIMIT) -> str:
    """Return a value in one line; "" for None."""
    from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe

    if value is None:
        return ""
    try:
        return one_line(value if isinstance(value, str) else repr(value), limit)
    except AUTHOR_ERRORS as error:  # author code: a `__repr__` may do anything
        return describe(error)
