"""Formats the log lines of a task: as text, and as JSON lines."""

import msgspec

from tidemill.cli.formatting import format_with_fields, format_zoned_time
from tidemill.engine.workflows.client.log_lines import LogLine
from tidemill.workflows.plan import UNMAPPED

LOG_LINE_LIMIT = 10_000  # characters of a log line


def text_line(line: LogLine, number: int) -> str:
    """Return a log line with time, attempt, level or stream, and element."""
    record = line.record
    element = "" if line.key.element == UNMAPPED else f"[{line.key.element}] "
    how = record.level if record.stream == "log" else record.stream
    return (
        f"{format_zoned_time(record.at)} #{number} {how:<7} "
        f"{element}{format_with_fields(record.message, record.fields, LOG_LINE_LIMIT)}"
    )


def json_line(line: LogLine, number: int) -> str:
    """Return a log line as a JSON object."""
    element = None if line.key.element == UNMAPPED else line.key.element
    return msgspec.json.encode({"element": element, "try": number, **msgspec.to_builtins(line.record)}).decode()
