"""The output of an attempt: printed lines, log records and errors, in bounded memory.

The first 8 MiB are passed on as they arrive. Of the rest, the newest MiB is kept and passed on at the end, after a
line that says how much was left out. So a gigabyte of output costs no more memory than that, and the process that
writes it never waits for a reader.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tidemill.kernel.author_errors import TRACEBACK_LIMIT, describe, format_traceback, shorten
from tidemill.kernel.clock import Clock
from tidemill.kernel.masking import MaskedStream, SecretMask
from tidemill.kernel.namespaces import plain_text
from tidemill.telemetry.log_fields import format_exc_info, format_message, rename_reserved, storable_fields
from tidemill.telemetry.log_records import (
    LOG_LINE_LIMIT,
    LogRecord,
    printed_line,
)
from tidemill.workflows.attempt_results import AttemptResult, Failed, Skipped
from tidemill.workflows.records import AttemptKey, TaskError

HEAD_LIMIT = 8 * 1024 * 1024
TAIL_LIMIT = 1024 * 1024
RECORD_OVERHEAD = 128
"""Bytes counted for a record besides its text: bounds the memory of an attempt that logs many short records."""


class OutputBuffer:
    """Turns the output of one running attempt into log records for a sink."""

    def __init__(
        self,
        clock: Clock,
        sink: Callable[[list[LogRecord]], None],
        mask: SecretMask,
        *,
        keeps_printed: bool = True,
    ) -> None:
        """Create the buffer; without `keeps_printed`, printed lines go to the streams of this process."""
        self._keeps_printed = keeps_printed
        self._clock = clock
        self._sink = sink
        self._mask = mask
        self._masked_streams: dict[str, MaskedStream] = {}
        self._lines = {stream: _LineSplitter() for stream in ("stdout", "stderr")}
        self._head_left = HEAD_LIMIT
        self._tail: deque[tuple[str, bytes] | LogRecord] = deque()
        self._tail_size = 0
        self._dropped_bytes = 0

    def write(self, stream: str, data: bytes) -> None:
        """Accept bytes that a process printed."""
        if not self._mask.is_empty:
            data = self._masked_streams.setdefault(stream, MaskedStream(self._mask)).feed(data)
        self._write_masked(stream, data)

    def _write_masked(self, stream: str, data: bytes) -> None:
        if self._head_left > 0:
            self._head_left -= len(data)
            self._emit_lines(stream, self._lines[stream].feed(data))
        else:
            self._append_to_tail((stream, data))

    def add(self, record: LogRecord) -> None:
        """Accept a record that author code logged."""
        if not self._mask.is_empty:
            record = mask_record(self._mask, record)
        if self._head_left > 0:
            self._head_left -= _entry_size(record)
            self._sink([record])
        else:
            self._append_to_tail(record)

    def finish(self) -> None:
        """Pass on the tail and the lines that have no end."""
        for stream, masked in self._masked_streams.items():
            self._write_masked(stream, masked.flush())
        tail, self._tail = self._tail, deque()
        if self._dropped_bytes:
            self._emit_partial_lines()
            note = f"[... {self._dropped_bytes} bytes left out ...]"
            self._sink([LogRecord(at=self._clock.now(), message=note, level="warning")])
        for one in tail:
            if isinstance(one, LogRecord):
                self._sink([one])
            else:
                self._emit_lines(one[0], self._lines[one[0]].feed(one[1]))
        self._emit_partial_lines()

    def _emit_partial_lines(self) -> None:
        for stream, lines in self._lines.items():
            self._emit_lines(stream, lines.flush())

    def _emit_lines(self, stream: str, lines: list[bytes]) -> None:
        if lines:
            now = self._clock.now()
            records = [printed_line(now, stream, one.decode(errors="replace")) for one in lines]
            if self._keeps_printed:
                self._sink(records)
            else:
                _print(stream, records)

    def _append_to_tail(self, entry: tuple[str, bytes] | LogRecord) -> None:
        self._tail.append(entry)
        self._tail_size += _entry_size(entry)
        while self._tail_size > TAIL_LIMIT and len(self._tail) > 1:
            dropped = self._tail.popleft()
            self._tail_size -= _entry_size(dropped)
            self._dropped_bytes += len(_entry_text(dropped))


def _print(stream: str, records: Sequence[LogRecord]) -> None:
    for one in records:
        print(one.message, file=getattr(sys, stream), flush=True)


def mask_record(mask: SecretMask, record: LogRecord) -> LogRecord:
    """Return a log record without secrets."""
    fields = {mask.mask(name): mask.mask_value(value) for name, value in record.fields.items()}
    return replace(record, message=mask.mask(record.message), fields=fields)


def mask_ending(mask: SecretMask, ending: AttemptResult) -> AttemptResult:
    """Return the result of an attempt without secrets in its error or its reason; an output is left as it is."""
    if isinstance(ending, Skipped):
        return replace(ending, reason=mask.mask(ending.reason))
    if isinstance(ending, Failed):
        error = ending.error
        masked = replace(error, message=mask.mask(error.message), traceback=mask.mask(error.traceback))
        return replace(ending, error=masked)
    return ending


def _entry_size(entry: tuple[str, bytes] | LogRecord) -> int:
    return len(_entry_text(entry)) + (RECORD_OVERHEAD if isinstance(entry, LogRecord) else 0)


def _entry_text(entry: tuple[str, bytes] | LogRecord) -> str | bytes:
    return entry.message if isinstance(entry, LogRecord) else entry[1]


class _LineSplitter:
    """Splits bytes into lines, and cuts lines longer than LOG_LINE_LIMIT."""

    def __init__(self) -> None:
        self._partial = b""
        self._is_cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete."""
        *ended, rest = data.split(b"\n")
        lines = [self._finish_line(one) for one in ended]
        self._extend(rest)
        return lines

    def flush(self) -> list[bytes]:
        """Return the incomplete line, if there is one."""
        return [self._finish_line(b"")] if self._partial else []

    def _extend(self, data: bytes) -> None:
        room = LOG_LINE_LIMIT - len(self._partial)
        self._is_cut = self._is_cut or len(data) > room
        self._partial += data[:room]

    def _finish_line(self, data: bytes) -> bytes:
        self._extend(data)
        line = self._partial.removesuffix(b"\r") + (b" [... cut]" if self._is_cut else b"")
        self._partial, self._is_cut = b"", False
        return line


MESSAGE_LIMIT = 4 * 1024


def build_task_error(error: BaseException, mask: SecretMask | None = None) -> TaskError:
    """Return an exception in its stored form, without secrets; these are masked before a long text is shortened."""
    kind, _, message = plain_text(describe(error)).partition(": ")
    trace = format_traceback(error)
    if mask is not None and not mask.is_empty:
        message, trace = mask.mask(message), mask.mask(trace)
    return TaskError(kind, shorten(message, MESSAGE_LIMIT), shorten(trace, TRACEBACK_LIMIT))


logger = logging.getLogger("tidemill.task")


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one attempt. It keeps every level, so that readers choose.

    Keywords are fields of the record, `ctx.log.info("read", rows=3)`, and so are those in `extra`.
    """

    def __init__(
        self,
        key: AttemptKey,
        clock: Clock,
        sink: Callable[[LogRecord], None],
        *,
        echoes: bool,
        mask: SecretMask | None = None,
    ) -> None:
        super().__init__(logger, {})
        self._mask = mask
        self._key = key
        self._clock = clock
        self._sink = sink
        self._echoes = echoes

    def isEnabledFor(self, level: int) -> bool:  # noqa: ARG002, N802 - the name is logging's
        """Return True: the log keeps every level."""
        return True

    def log(self, level: int, msg: object, /, *args: object, **kwargs: Any) -> None:  # type: ignore[override]
        """Pass a record on to the sink, and to Python's logging if `echoes` is set."""
        message = format_message(msg, args) + format_exc_info(kwargs.get("exc_info"))
        if self._mask is not None and not self._mask.is_empty:
            message = self._mask.mask(message)
        record = LogRecord(
            at=self._clock.now(),
            message=shorten(message, LOG_LINE_LIMIT),
            level=logging.getLevelName(level).lower(),
            fields=storable_fields(kwargs),
        )
        if self._mask is not None and not self._mask.is_empty:
            record = mask_record(self._mask, record)
        self._sink(record)
        if self._echoes:
            echo_to_logging(self._key, record)


def echo_to_logging(key: AttemptKey, record: LogRecord) -> None:
    """Repeat an attempt's log record in Python's logging."""
    level = logging.getLevelNamesMapping().get(record.level.upper(), logging.INFO)
    if logger.isEnabledFor(level):
        origin = {"logger": record.logger} if record.logger else {}
        fields = rename_reserved(record.fields, "attempt", *origin)
        logger.log(level, "%s", record.message, extra=fields | origin | {"attempt": str(key)})
