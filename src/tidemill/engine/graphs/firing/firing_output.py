"""The output of nodes, kept with the firing that they ran in: the newest, in bounded memory.

A firing costs nothing until one of its nodes writes something: the sink is made then.
"""

import logging
import threading
from typing import Any

from msgspec.structs import replace

from tidemill.kernel.clock import Clock
from tidemill.kernel.masking import SecretMask
from tidemill.telemetry.author_output import NODE_LOGGER, captured_record
from tidemill.telemetry.log_records import LogRecord, printed_line

FIRING_SIZE_LIMIT = 64 * 1024
"""The characters that are kept of one firing; a marker says that the rest was left out."""
REACTOR_SIZE_LIMIT = 1024 * 1024
"""The characters that are kept of all firings of a reactor: those of the oldest firings go first."""
_FIRING_FIELDS = frozenset(["reactor", "graph", "firing"])
_RECORD_OVERHEAD = 128
"""Counted for a record besides its text."""
_LEFT_OUT = "[... the rest of what this firing wrote was left out ...]"

_Firing = tuple[str, int, int]
"""The series and the number of a firing, and its attempt."""


class FiringOutput:
    """The output of the firings of one reactor."""

    def __init__(self, clock: Clock, mask: SecretMask, *, is_kept: bool = True) -> None:
        self._is_kept = is_kept
        self._clock = clock
        self._mask = mask
        self._lock = threading.Lock()
        self._logs: dict[_Firing, _FiringRecords] = {}
        """Oldest first."""
        self._size = 0

    def sink(self, series: str, number: int, attempt: int) -> "FiringSink | None":
        """Return what keeps the output of a firing; None if nothing does."""
        return FiringSink(self, (series, number, attempt)) if self._is_kept else None

    def read(self, series: str, number: int, attempt: int) -> list[LogRecord]:
        """Return the output of a firing."""
        with self._lock:
            log = self._logs.get((series, number, attempt))
            return [] if log is None else [*log.records, *self._unfinished_lines(log)]

    def _unfinished_lines(self, log: "_FiringRecords") -> list[LogRecord]:
        return [self._to_line(stream, text) for stream, text in log.unfinished.items() if text]

    def add_printed(self, firing: _Firing, stream: str, text: str) -> None:
        """Keep what was printed, line by line."""
        with self._lock:
            log = self._find(firing)
            *lines, rest = (log.unfinished.get(stream, "") + text).split("\n")
            for line in lines:
                self._keep(log, self._to_line(stream, line))
            log.unfinished[stream] = rest[:FIRING_SIZE_LIMIT]
            self._make_room(firing)

    def add_logged(self, firing: _Firing, logged: logging.LogRecord) -> None:
        """Keep a log record."""
        record = captured_record(self._clock.now(), logged)
        if logged.name == NODE_LOGGER:  # that of `ctx.log`, which says whose it is: so does the firing
            own = {name: value for name, value in record.fields.items() if name not in _FIRING_FIELDS}
            record = replace(record, logger="", fields=own)
        fields: Any = self._mask.mask_value(record.fields)
        with self._lock:
            self._keep(self._find(firing), replace(record, message=self._mask.mask(record.message), fields=fields))
            self._make_room(firing)

    def _to_line(self, stream: str, text: str) -> LogRecord:
        return printed_line(self._clock.now(), stream, self._mask.mask(text.removesuffix("\r")))

    def _find(self, firing: _Firing) -> "_FiringRecords":
        return self._logs.setdefault(firing, _FiringRecords())

    def _keep(self, log: "_FiringRecords", record: LogRecord) -> None:
        if log.is_full:
            return
        if log.size + len(record.message) > FIRING_SIZE_LIMIT:
            log.is_full = True
            record = LogRecord(at=record.at, message=_LEFT_OUT, level="warning")
        size = len(record.message) + _RECORD_OVERHEAD
        log.records.append(record)
        log.size += size
        self._size += size

    def _make_room(self, newest: _Firing) -> None:
        while self._size > REACTOR_SIZE_LIMIT and (oldest := next(iter(self._logs))) != newest:
            self._size -= self._logs.pop(oldest).size


class _FiringRecords:
    """The output of one firing."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.unfinished: dict[str, str] = {}
        """By stream, the line that has no end yet."""
        self.size = 0
        self.is_full = False


class FiringSink:
    """Keeps the output of one firing."""

    __slots__ = ("_firing", "_output")

    def __init__(self, output: FiringOutput, firing: _Firing) -> None:
        self._output = output
        self._firing = firing

    def add_printed(self, stream: str, data: bytes) -> None:
        """Keep what was written to a standard stream."""
        self._output.add_printed(self._firing, stream, data.decode(errors="replace"))

    def add_logged(self, record: logging.LogRecord, *, is_shown: bool) -> None:  # noqa: ARG002
        """Keep a log record."""
        self._output.add_logged(self._firing, record)
