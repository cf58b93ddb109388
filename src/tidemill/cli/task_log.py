"""Formats the log lines of a task: as text, and as JSON lines."""

import msgspec

from tidemill.cli.formatting import format_with_fields, format_zoned_time
from tidemill.cli.workflow_service import NumberedLine

LOG_LINE_LIMIT = 10_000  # characters of a log line


def text_line(line: NumberedLine) -> str:
    """Return a log line with time, attempt, level or stream, and element."""
    element = "" if line.element is None else f"[{line.element}] "
    how = line.level if line.stream == "log" else line.stream
    return (
        f"{format_zoned_time(line.at)} #{line.number} {how:<7} "
        f"{element}{format_with_fields(line.message, line.fields, LOG_LINE_LIMIT)}"
    )


def json_line(line: NumberedLine) -> str:
    """Return a log line as a JSON object."""
    fields = line._asdict()
    return msgspec.json.encode({"element": fields.pop("element"), "try": fields.pop("number"), **fields}).decode()
