"""The output of author code: what it prints, logs and warns about, given to the attempt or the firing that it is of.

The streams, loggers and warnings belong to the process. So they are changed once for all nodes of a process, and each
piece of output is given to the sink of the context that wrote it; without one, nothing changes. Everything also goes
where it went before: to the terminal, and to the handlers that the program has set up.

Logging is not observed by a handler of the root logger: with one, `logging.basicConfig` would do nothing, loggers that
do not propagate would be missed, and Python would no longer write warnings of a program without handlers.
"""

import logging
import sys
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from os import getpid
from types import MethodType
from typing import Any

from tidemill.kernel.author_errors import shorten
from tidemill.kernel.copied_stream import CopiedStream
from tidemill.telemetry.log_context import ATTEMPT_OUTPUT, OutputSink, find_firing
from tidemill.telemetry.log_fields import format_exc_info, format_message, storable_fields
from tidemill.telemetry.log_records import LOG_LINE_LIMIT, LogRecord
from tidemill.telemetry.logs import extra_fields

STREAM_NAMES = ("stdout", "stderr")
WARNINGS_LOGGER = "py.warnings"
_OWN_LOGGER = "tidemill"


_IS_HANDLING: ContextVar[bool] = ContextVar("tidemill_is_handling", default=False)
"""Whether handlers write a record that the sink has already."""


def captured_record(at: datetime, record: logging.LogRecord) -> LogRecord:
    """Return the record of what a logger of Python has logged."""
    fields = extra_fields(record)
    return LogRecord(
        at=at,
        message=shorten(format_message(record.msg, record.args) + format_exc_info(record.exc_info), LOG_LINE_LIMIT),
        level=record.levelname.lower(),
        fields=storable_fields({"extra": fields}) if fields else {},
        logger=record.name,
    )


class AuthorOutput:
    """The output of this process, observed while at least one user of it is open."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._own: tuple[OutputSink, int] | None = None
        self._is_enabled_for = logging.Logger.isEnabledFor
        self._call_handlers = logging.Logger.callHandlers
        self._show_warning: Callable[..., None] = warnings.showwarning

    # -- which output

    def open(self) -> None:
        """Observe output from now on."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._observe_logging()
            self.observe_streams()

    def close(self) -> None:
        """End the observation if this is its last user, and put back what nothing else has replaced meanwhile."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore()

    def observe_streams(self) -> None:
        """Observe the standard streams and warnings as they are now: programs and test runners replace them."""
        for name in STREAM_NAMES:
            if type(getattr(sys, name, None)) is not CopiedStream:
                self._copy_stream(name)
        if warnings.showwarning is not _show_warning:
            self._show_warning, warnings.showwarning = warnings.showwarning, _show_warning

    def _copy_stream(self, name: str) -> None:
        with self._lock:
            stream = layer = getattr(sys, name, None)
            while layer is not None and not isinstance(layer, CopiedStream):
                layer = getattr(layer, "wrapped", None)
            if stream is not None and layer is None:
                setattr(sys, name, CopiedStream(name, stream, _copy))

    def observe_process(self, sink: OutputSink) -> None:
        """Give all output of this process to one sink; its standard streams are read outside, at their descriptors."""
        self._own = sink, getpid()

    def observe_descriptors(self) -> None:
        """Observe logging and warnings in a process whose standard streams are read outside."""
        self._observe_logging()
        self._show_warning, warnings.showwarning = warnings.showwarning, _show_warning

    def _observe_logging(self) -> None:
        if logging.Logger.callHandlers is not _call_handlers:
            self._is_enabled_for, self._call_handlers = logging.Logger.isEnabledFor, logging.Logger.callHandlers
            for logger in _own_loggers():
                logger.isEnabledFor = MethodType(self._is_enabled_for, logger)  # type: ignore[method-assign]
            logging.Logger.isEnabledFor = _is_enabled_for  # type: ignore[method-assign, assignment]
            logging.Logger.callHandlers = _call_handlers  # type: ignore[method-assign, assignment]

    def _restore(self) -> None:
        for name in STREAM_NAMES:
            stream = getattr(sys, name, None)
            if isinstance(stream, CopiedStream):
                setattr(sys, name, stream.wrapped)
        if logging.Logger.callHandlers is _call_handlers and logging.Logger.isEnabledFor is _is_enabled_for:
            for logger in _own_loggers():
                vars(logger).pop("isEnabledFor", None)
            logging.Logger.isEnabledFor = self._is_enabled_for  # type: ignore[method-assign]
            logging.Logger.callHandlers = self._call_handlers  # type: ignore[method-assign]
        if warnings.showwarning is _show_warning:
            warnings.showwarning = self._show_warning

    # -- whose output

    def find_sink(self) -> OutputSink | None:
        """Return the sink of the code that runs now, the innermost one."""
        if _IS_HANDLING.get():
            return None
        if self._own is not None:
            sink, pid = self._own
            return sink if getpid() == pid else None  # a copy that author code forked must not use its channel
        firing = find_firing()
        return ATTEMPT_OUTPUT.get() if firing is None else firing.output

    # -- what is observed

    def copy(self, stream: str, data: bytes) -> None:
        """Give what was printed to its sink."""
        if (sink := self.find_sink()) is not None:
            sink.add_printed(stream, data)

    def is_enabled_for(self, logger: logging.Logger, level: int) -> bool:
        """Return whether a logger makes records: for a sink from INFO on, even if the root logger asks for less."""
        if self._is_enabled_for(logger, level):
            return True
        return level >= logging.INFO and _may_lower_level(logger, level) and self.find_sink() is not None

    def call_handlers(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Give a record to its sink, and to the handlers that would have it without the sink."""
        sink = self.find_sink() if _is_observed(logger) else None
        is_shown = sink is None or self._is_enabled_for(logger, record.levelno)
        if sink is not None:
            sink.add_logged(record, is_shown=is_shown)
        if is_shown and sink is not None and self._own is not None:
            _call_handlers_without_streams(logger, record)
        elif is_shown:
            token = _IS_HANDLING.set(True)
            try:
                self._call_handlers(logger, record)
            finally:
                _IS_HANDLING.reset(token)

    def show_warning(self, message: Any, category: type[Warning], path: str, line: int, *rest: Any) -> None:
        """Give a warning to its sink, and show it as before."""
        sink = self.find_sink()
        if sink is not None:
            text = f"{path}:{line}: {category.__name__}: {message}"
            record = logging.LogRecord(WARNINGS_LOGGER, logging.WARNING, path, line, text, None, None)
            sink.add_logged(record, is_shown=True)
            if self._own is not None:
                return
        token = _IS_HANDLING.set(True)
        try:
            self._show_warning(message, category, path, line, *rest)
        finally:
            _IS_HANDLING.reset(token)


AUTHOR_OUTPUT = AuthorOutput()
"""There is one, as there is one `sys.stdout`."""


def _copy(stream: str, data: bytes) -> None:
    AUTHOR_OUTPUT.copy(stream, data)


def _is_enabled_for(logger: logging.Logger, level: int) -> bool:
    return AUTHOR_OUTPUT.is_enabled_for(logger, level)


def _call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
    AUTHOR_OUTPUT.call_handlers(logger, record)


def _show_warning(
    message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    AUTHOR_OUTPUT.show_warning(message, category, filename, lineno, file, line)


NODE_LOGGER = "tidemill.graph"
"""The logger of `ctx.log` in nodes of graphs. That of tasks writes to their logs itself."""


def _is_observed(logger: logging.Logger) -> bool:
    """Return whether a logger may be of author code: Tidemill logs for operators, even while author code calls it."""
    name = logger.name
    return name == NODE_LOGGER or not (name == _OWN_LOGGER or name.startswith(f"{_OWN_LOGGER}."))


def _own_loggers() -> list[logging.Logger]:
    """Return the loggers that are not observed, as far as there are any: their records take no detour."""
    known = logging.Logger.manager.loggerDict.values()
    return [one for one in known if isinstance(one, logging.Logger) and not _is_observed(one)]


def _may_lower_level(logger: logging.Logger, level: int) -> bool:
    """Return whether only the level of the root logger hides a record: that of another logger is the author's wish."""
    if not _is_observed(logger) or logger.disabled or logger.manager.disable >= level:
        return False
    if logger.name == NODE_LOGGER:
        return True
    one: logging.Logger | None = logger
    while one is not None and one.parent is not None:
        if one.level:
            return level >= one.level
        one = one.parent
    return True


def _call_handlers_without_streams(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Call the handlers of a logger as logging does, but for those whose lines would be read at a descriptor."""
    one: logging.Logger | None = logger
    while one is not None:
        for handler in one.handlers:
            if record.levelno >= handler.level and not _writes_to_standard_stream(handler):
                handler.handle(record)
        one = one.parent if one.propagate else None


def _writes_to_standard_stream(handler: logging.Handler) -> bool:
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return isinstance(handler, logging.StreamHandler) and any(handler.stream is one for one in standard)
