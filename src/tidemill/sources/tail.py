"""Tail: follows the lines of a file that other programs append to."""

from collections.abc import AsyncIterator
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.durations import Duration
from tidemill.sources.interface import Disconnected, Event, SourceContext
from tidemill.sources.options import check_choice, check_duration
from tidemill.sources.rotated_file import FilePosition, RotatedFile

MAX_LINE = 1_048_576  # bytes


class Tail:
    """Follows a file that only grows, such as a log: one event per line, as `tail -F` shows them.

    Lines are JSON, or anything if the annotation of the event is `bytes`. A line counts when its end is written. The
    file may be rotated by renaming or by truncation. `begin="end"` skips the lines that are there at the first start;
    `every` is the interval at which the file is looked at.
    """

    def __init__(
        self, path: str | PathLike[str], *, begin: Literal["start", "end"] = "start", every: Duration = "200ms"
    ) -> None:
        check_choice("Tail", "begin", begin, ("start", "end"))
        self._path = Path(path).absolute()
        self._begin = begin
        self._every = check_duration("Tail", "every", every)

    def __repr__(self) -> str:
        return f"Tail({str(self._path)!r})"

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[list[Event]]:
        """Open the file at the checkpoint, and return its lines."""
        session = _TailSession(RotatedFile(self._path, MAX_LINE), context, self._every)
        try:
            await session.open(checkpoint, self._begin)
        except FileNotFoundError:
            session.close()
            raise Disconnected(f"there is no file '{self._path}' yet", retry_after=self._every) from None
        except BaseException:
            session.close()
            raise
        return session.deliveries()


class _TailSession:
    """Reads the file on a thread of its own: a file system over a network may block."""

    def __init__(self, file: RotatedFile, context: SourceContext, every: float) -> None:
        self._file = file
        self._context = context
        self._every = every
        self._thread = WorkerThread(f"source {context.name}")

    async def open(self, checkpoint: Any, begin: Literal["start", "end"]) -> None:
        """Open the file at a checkpoint."""
        await self._thread.call(self._file.open, None if checkpoint is None else FilePosition(*checkpoint), begin)

    async def deliveries(self) -> AsyncIterator[list[Event]]:
        """Yield the lines of each part of the file that was read."""
        try:
            while True:
                lines = await self._thread.call(self._file.read_lines)
                self._report_gap()
                if lines:
                    yield [(line, list(position)) for line, position in lines]
                else:
                    await self._context.clock.sleep(self._every)
        finally:
            self.close()

    def _report_gap(self) -> None:
        if self._file.gap is not None:
            self._context.report_gap(self._file.gap)
            self._file.gap = None

    def close(self) -> None:
        """Close the file after the call that the thread is in."""
        self._thread.submit(lambda *_: None, self._file.close)
        self._thread.close()
