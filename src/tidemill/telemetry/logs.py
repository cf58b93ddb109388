"""Structured logs: a fixed message per event, facts beside it, one JSON object per line when asked for."""

import json
import logging
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, event, and every fact passed in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        facts: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        facts |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=repr)


def write_json_logs(level: int = logging.INFO) -> logging.Handler:
    """Send Tidemill's logs to standard error as JSON lines; return the handler, to be removed again."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("tidemill")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
