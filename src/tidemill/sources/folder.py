"""Folder: replays the rows of a folder's files, and follows it."""

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from tidemill.kernel.author_errors import Fail
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import DefinitionError
from tidemill.sources.file_order import FileOrder, FolderPosition
from tidemill.sources.interface import Delivery, Disconnected, SourceContext, read_checkpoint
from tidemill.sources.options import check_choice, check_duration
from tidemill.sources.row_files import READERS, ReadRows, Row, marking_last, read_csv

READ_ERRORS = (OSError, EOFError, zlib.error, ValueError)  # of gzip: the first three; of Parquet: ValueError
HIDDEN = (".", "_")  # files and folders whose names begin so are being written, or are notes about others


_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""By their size, numbers are nanoseconds, microseconds or milliseconds since 1970; smaller ones are seconds."""


class Pace:
    """The times of events, as a clock that runs `speed` times as fast shows them. It starts with the first event."""

    def __init__(self, clock: Clock, field: str, speed: float) -> None:
        self._clock = clock
        self._field = field
        self._speed = speed
        self._start: tuple[float, float] | None = None  # the time of the first event, and when it was delivered

    def remaining(self, event: Any) -> float:
        """Return the seconds until an event is due: 0 or less if it is, or if it has no time."""
        time = event_time(event, self._field)
        if time is None:
            return 0.0
        if self._start is None:
            self._start = time, self._clock.monotonic()
        first, started = self._start
        return started + (time - first) / self._speed - self._clock.monotonic()


def event_time(event: Any, field: str) -> float | None:
    """Return the time of an event in seconds since 1970; None if it has none that can be read."""
    if isinstance(event, bytes):
        try:
            event = msgspec.json.decode(event)
        except msgspec.DecodeError:  # a dead letter shows it
            return None
    value = event.get(field) if isinstance(event, dict) else None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value / next((unit for limit, unit in _UNITS if abs(value) >= limit), 1.0)


class Folder:
    """Reads the files of a folder in the order of their names: one event per row.

    `pattern` selects files, such as "2026-*.csv" or "**/*.parquet"; by default all of the format. A file is read once,
    when it appears: write it under a name that begins with "." or "_", and rename it when it is complete. Without
    `follow` the source ends after the last file; with it, the source waits for files whose names sort after that one,
    and looks for them at the interval `every`.

    A row that cannot be read becomes a dead letter, and the rows after it are read. A file is UTF-8.

    A cell of a CSV file is a number, true, false or null if JSON would read it so, and else text, such as "007"; the
    columns in `text` always are. An empty cell is null.

    With `speed`, rows are delivered at the intervals of the times in the field `time`: 1.0 as they were, 10.0 ten times
    as fast. Without, as fast as the reactor takes them.
    """

    replays = True

    def __init__(
        self,
        path: str | PathLike[str],
        pattern: str | None = None,
        *,
        format: Literal["parquet", "csv", "ndjson"],
        time: str | None = None,
        speed: float | None = None,
        follow: bool = False,
        every: Duration = "1s",
        text: Iterable[str] = (),
    ) -> None:
        check_choice("Folder", "format", format, READERS)
        if speed is not None and (time is None or not speed > 0):
            message = "speed= is a factor above 0, and needs time=, the field with the time of a row"
            raise DefinitionError.single("Folder", message)
        self._path = Path(path).absolute()
        self._pattern = pattern or f"*.{format}"
        self._read: ReadRows = partial(read_csv, text_columns=frozenset(text)) if format == "csv" else READERS[format]
        self._time = time
        self._speed = speed
        self._follow = follow
        self._every = check_duration("Folder", "every", every)

    def __repr__(self) -> str:
        return f"Folder({str(self._path)!r}, {self._pattern!r})"

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Find the files, and return their rows after the checkpoint."""
        position = read_checkpoint(checkpoint, FolderPosition, f"folder '{self._path}'")
        thread = WorkerThread(f"source {context.name}")
        try:
            files = await thread.call(self._list_files)
            if not files and not self._follow and position is None:  # files that were read may be removed
                raise Fail(f"no file in '{self._path}' matches '{self._pattern}'")
        except FileNotFoundError:
            thread.close()
            raise Disconnected(f"there is no folder '{self._path}' yet", retry_after=self._every) from None
        except BaseException:
            thread.close()
            raise
        return self._deliveries(thread, FileOrder(files, position, context), context)

    def _list_files(self) -> dict[str, int]:
        """Return the names of the files, relative to the folder, in order, and when each has last changed."""
        self._path.stat()
        found: list[tuple[str, int]] = []
        for path in self._path.glob(self._pattern):
            name = path.relative_to(self._path)
            if not any(part.startswith(HIDDEN) for part in name.parts) and path.is_file():
                found.append((name.as_posix(), path.stat().st_ctime_ns))
        return dict(sorted(found))

    async def _deliveries(
        self, thread: WorkerThread, order: FileOrder, context: SourceContext
    ) -> AsyncIterator[Delivery]:
        pace = None if self._speed is None or self._time is None else Pace(context.clock, self._time, self._speed)
        try:
            while True:
                if (moved := order.take_move()) is not None:
                    yield moved
                while (name := order.next_name()) is not None:
                    rows = marking_last(self._read(self._path / name, order.first_row))
                    while batch := await _next_batch(thread, rows, name):
                        async for due in _spread(batch, pace, context):
                            yield [(event, order.checkpoint(number)) for event, number in due]
                if not self._follow:
                    return
                await context.clock.sleep(self._every)
                order.update(await thread.call(self._list_files))
        finally:
            thread.close()


async def _next_batch(thread: WorkerThread, rows: Iterator[list[Row]], name: str) -> list[Row]:
    """Return the next rows of a file; an empty list after the last ones."""
    try:
        batch: list[Row] = await thread.call(next, rows, [])
    except READ_ERRORS as error:
        raise Disconnected(f"the file '{name}' cannot be read: {error}") from error
    return batch


async def _spread(batch: list[Row], pace: Pace | None, context: SourceContext) -> AsyncIterator[list[Row]]:
    """Yield the rows of a batch, each when it is due."""
    if pace is None:
        yield batch
        return
    due: list[Row] = []
    for row in batch:
        if (seconds := pace.remaining(row[0])) > 0:
            if due:
                yield due
                due = []
            await context.clock.sleep(seconds)
        due.append(row)
    yield due
