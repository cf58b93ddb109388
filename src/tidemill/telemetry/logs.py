"""Structured logs: a fixed message per event with fields, as text or JSON lines; repeated failures are logged once."""

import json
import logging
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from tidemill.telemetry.log_context import current_log_fields
from tidemill.telemetry.log_fields import RECORD_ATTRIBUTES

_ID_FIELDS = {"run": "run_id", "firing": "firing_id"}
"""Fields of the engine's records that hold an id, and their names in lines: those that records of author code have."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, event, the context, and every field of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        fields: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= current_log_fields()
        fields |= {_ID_FIELDS.get(name, name): value for name, value in extra_fields(record).items()}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=repr)


class PlainFormatter(logging.Formatter):
    """Formats a record as one line: the event, and every field of `extra`; a traceback below.

    Control characters are escaped, so that no text from outside can look like another line, or colour a terminal.
    """

    has_context = False

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, the name is Python's
        """Return the event with its fields."""
        context = current_log_fields() if self.has_context else {}
        facts = context | extra_fields(record)
        fields = ", ".join(f"{name}={_format_value(value)}" for name, value in facts.items())
        line = f"{record.levelname} {escape_control_characters(record.message)}"
        return f"{line}: {fields}" if fields else line

    def formatException(self, ei: Any) -> str:  # noqa: N802, as above
        """Return a traceback, indented."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {escape_control_characters(line)}" for line in lines)


class TextFormatter(PlainFormatter):
    """Formats a record as a line with time, logger and context, for a server that people read."""

    has_context = True

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802, as above
        """Return the time, the event with its fields, and the logger."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{at} {super().formatMessage(record)} [{record.name}]"


def escape_control_characters(text: str) -> str:
    """Return a text without control characters: line breaks and the escape codes of terminals are written out."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class LastResortHandler(logging.StreamHandler[Any]):
    """Writes warnings and errors with their fields to standard error while logging is not configured.

    Python's own last resort writes only the bare event. As soon as there is another handler, this one is silent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(PlainFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless another handler does."""
        if sys.stderr is not None and logging.lastResort is not None and not self._has_other_handlers(record.name):
            self.setStream(sys.stderr)  # the current one: programs replace it
            super().emit(record)

    def _has_other_handlers(self, name: str) -> bool:
        """Return whether a record of this logger reaches another handler too."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def install_last_resort_handler() -> None:
    """Show the fields of warnings where logging is not configured."""
    logger = logging.getLogger("tidemill")
    if not any(isinstance(handler, LastResortHandler) for handler in logger.handlers):
        logger.addHandler(LastResortHandler())


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that were passed with a record in `extra`."""
    return {name: value for name, value in vars(record).items() if name not in RECORD_ATTRIBUTES}


def _format_value(value: Any) -> str:
    """Return a field's value as part of a line: unchanged if it is one word, else in quotes."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)


LogFormat = Literal["text", "json"]


class StandardErrorHandler(logging.StreamHandler[Any]):
    """Writes to standard error as it is at the time of each record: secrets that tasks have read are masked there."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        """The standard error."""
        return sys.stderr


def write_logs(log_format: LogFormat = "json", level: int = logging.INFO) -> logging.Handler:
    """Send all logs of this process to standard error, a line each; return the handler, so that it can be removed."""
    handler = StandardErrorHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger = logging.getLogger()
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler


@contextmanager
def writing_logs(log_format: LogFormat, level: int) -> Iterator[None]:
    """Send all logs of this process to standard error inside."""
    level_before = logging.getLogger().level
    handler = write_logs(log_format, level)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(level_before)


FAILURES_PER_REMINDER = 100
"""The number of consecutive failures of one kind after which it is logged again."""


class FailureStreaks:
    """Counts consecutive failures by key."""

    def __init__(self) -> None:
        self._streaks: dict[Hashable, tuple[str, int]] = {}

    def record_failure(self, key: Hashable, kind: str) -> int | None:
        """Count a failure; return the length of its streak if it should be logged, else None."""
        previous, count = self._streaks.get(key, (kind, 0))
        count = count + 1 if previous == kind else 1
        self._streaks[key] = kind, count
        return count if count == 1 or count % FAILURES_PER_REMINDER == 0 else None

    def reset(self, key: Hashable) -> int:
        """End the streak of a key; return its length, 0 if there was none."""
        _, count = self._streaks.pop(key, ("", 0))
        return count
