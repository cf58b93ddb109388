"""Records of the logs that readers see: of the attempts of tasks, and of the firings of reactors."""

from datetime import datetime
from typing import Any

import msgspec

LOG_LINE_LIMIT = 64 * 1024
"""The size limit of one record: bytes of a printed line, characters of a logged message."""
STREAM_LEVELS = {"stdout": "info", "stderr": "warning"}
"""The level of what is printed."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the log of an attempt, or of a firing."""

    at: datetime
    message: str
    level: str = "info"
    stream: str = "log"
    """Where it comes from: "log", "stdout" or "stderr"."""
    fields: dict[str, Any] = {}
    logger: str = ""
    """The name of the logger; empty for `ctx.log`, and for what is printed."""


def printed_line(at: datetime, stream: str, message: str) -> LogRecord:
    """Return the record of a line that was printed."""
    return LogRecord(at=at, message=message, level=STREAM_LEVELS.get(stream, "info"), stream=stream)
