"""Log lines of tasks: read in order, from any position on, and in pages."""

from collections.abc import AsyncIterator, Iterable, Sequence
from heapq import merge
from typing import NamedTuple

import msgspec

from tidemill.engine.loop_watch import BLOCK_MARK
from tidemill.storage.tables.logs import Logs
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey, TaskKey

_RECORDS_DECODER = msgspec.msgpack.Decoder(list[LogRecord])


class LogPosition(NamedTuple):
    """The position of a line in the log of a task run. Lines are written in this order."""

    attempt: int
    chunk: int
    line: int


LOG_START = LogPosition(0, -1, -1)
"""The position before all lines."""


class LogLine(NamedTuple):
    """A log record of a task."""

    key: TaskKey
    record: LogRecord
    position: LogPosition

    @property
    def attempt(self) -> int:
        """The attempt that logged it."""
        return self.position.attempt


class LogFilter(NamedTuple):
    """Selects lines of a log."""

    attempt: int | None = None
    """None for all."""
    text: str = ""
    """A part of the message or of a field, in letters of either case."""

    def takes(self, line: LogLine) -> bool:
        """Return whether a line is selected."""
        if self.attempt not in (None, line.attempt):
            return False
        wanted, record = self.text.casefold(), line.record
        return not wanted or any(
            wanted in str(value).casefold() for value in (record.message, *record.fields, *record.fields.values())
        )


EVERY_LINE = LogFilter()


class LogPage(NamedTuple):
    """A part of the log of a task."""

    lines: list[LogLine]
    total: int


class TaskLogReader:
    """Reads the log of a task run after a position; each call continues where the last one stopped."""

    def __init__(self, logs: Logs, key: TaskKey, after: LogPosition = LOG_START) -> None:
        self._logs = logs
        self._key = key
        self._position = after

    async def read_new(self) -> AsyncIterator[LogLine]:
        """Yield the lines written since the last call, in order."""
        seen, chunk_before = self._position, (self._position.attempt, self._position.chunk - 1)
        while chunks := await self._logs.read(self._key, chunk_before):
            for chunk in chunks:
                chunk_before = chunk.key.attempt, chunk.number
                for number, record in enumerate(_RECORDS_DECODER.decode(chunk.payload)):
                    position = LogPosition(*chunk_before, number)
                    if position > seen:
                        self._position = position
                        yield LogLine(self._key, record, position)


async def find_loop_block(logs: Logs, key: AttemptKey) -> str | None:
    """Return the sentence that the node of an attempt has logged when the attempt blocked its event loop."""
    number = -1
    while chunks := await logs.read(TaskKey(key.run, key.task, key.element), (key.attempt, number)):
        for chunk in chunks:
            if chunk.key.attempt != key.attempt:
                return None
            number = chunk.number
            if BLOCK_MARK.encode() in chunk.payload:
                for record in _RECORDS_DECODER.decode(chunk.payload):
                    if record.level == "warning" and record.message.startswith(BLOCK_MARK):
                        return record.message
    return None


def merge_by_time(logs: Iterable[Sequence[LogLine]]) -> list[LogLine]:
    """Return the lines of several task runs by their times; those of one task run keep their order."""
    return list(merge(*logs, key=lambda line: line.record.at))


async def read_log_page(
    logs: Logs,
    keys: Sequence[TaskKey],
    wanted: LogFilter,
    *,
    after: tuple[int, LogPosition] | None = None,
    limit: int = 50,
) -> LogPage:
    """Return lines of some task runs, by element and position, after one of them; and the number of all."""
    total, page = 0, list[LogLine]()
    for key in sorted(keys, key=lambda key: key.element):
        async for line in TaskLogReader(logs, key).read_new():
            if not wanted.takes(line):
                continue
            total += 1
            if len(page) < limit and (after is None or (key.element, line.position) > after):
                page.append(line)
    return LogPage(page, total)
