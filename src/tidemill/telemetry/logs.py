"""Structured logs: a fixed message per event, facts beside it, one JSON object per line when asked for."""

import json
import logging
import sys
from typing import Any

_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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
        facts |= extra_fields(record)
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=repr)


class PlainFormatter(logging.Formatter):
    """One line per record: the event, and every fact passed in `extra`; a traceback below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, the name is Python's
        """Return the event with its facts."""
        facts = ", ".join(f"{name}={_format_value(value)}" for name, value in extra_fields(record).items())
        return f"{record.levelname} {record.message}: {facts}" if facts else f"{record.levelname} {record.message}"


class LastResortHandler(logging.StreamHandler[Any]):
    """Writes warnings and errors with their facts to standard error as long as nobody has set up logging.

    Python itself would write them then, but only the bare event. As soon as anybody else listens, it is silent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(PlainFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless somebody else does."""
        if sys.stderr is not None and logging.lastResort is not None and not self._has_other_handlers(record.name):
            self.setStream(sys.stderr)  # as it is now: programs replace it
            super().emit(record)

    def _has_other_handlers(self, name: str) -> bool:
        """Return whether a record of this logger comes to another handler too."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def install_last_resort_handler() -> None:
    """Let warnings say more than their event where nobody has set up logging."""
    logger = logging.getLogger("tidemill")
    if not any(isinstance(handler, LastResortHandler) for handler in logger.handlers):
        logger.addHandler(LastResortHandler())


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was passed with a record in `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _RECORD_ATTRIBUTES}


def _format_value(value: Any) -> str:
    """Return a fact as a part of a line: as it is if it is one word, else in quotes."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)


def write_json_logs(level: int = logging.INFO) -> logging.Handler:
    """Send Tidemill's logs to standard error as JSON lines; return the handler, to be removed again."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("tidemill")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
