"""Formats the log lines of a task: as text, and as JSON lines."""

import msgspec

from tidemill.api.tasks import TaskLogLine
from tidemill.cli.formatting import format_with_fields, format_zoned_time

LOG_LINE_LIMIT = 10_000  # characters of a log line


def text_line(line: TaskLogLine, number: int) -> str:
    """Return a log line with time, try, level or stream, and element."""
    element = "" if line.index is None else f"[{line.index}] "
    how = line.level if line.stream == "log" else line.stream
    return (
        f"{format_zoned_time(line.at)} #{number} {how:<7} "
        f"{element}{format_with_fields(line.message, line.fields, LOG_LINE_LIMIT)}"
    )


def json_line(line: TaskLogLine, number: int) -> str:
    """Return a log line as a JSON object."""
    return msgspec.json.encode({**msgspec.to_builtins(line), "try": number}).decode()
