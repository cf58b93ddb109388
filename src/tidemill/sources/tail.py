"""Tail: follows the lines of a file that other programs append to."""

from collections.abc import AsyncIterator
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from tidemill.kernel.concurrency import WorkerThread
from tidemill.kernel.durations import Duration
from tidemill.sources.interface import Delivery, Disconnected, Moved, SourceContext, read_checkpoint
from tidemill.sources.options import check_choice, check_duration
from tidemill.sources.rotated_file import NO_FILE, FilePosition, RotatedFile

MAX_LINE = 1_048_576  # bytes


class Tail:
    """Follows a file that only grows, such as a log: one event per line, as `tail -F` shows them.

    Lines are JSON, or anything if the annotation of the event is `bytes`. A line counts when its end is written. The
    file may be rotated by renaming or by truncation. `begin="end"` skips the lines that are there at the first start of
    all; `every` is the interval at which the file is looked at.
    """

    replays = True

    def __init__(
        self, path: str | PathLike[str], *, begin: Literal["start", "end"] = "start", every: Duration = "200ms"
    ) -> None:
        check_choice("Tail", "begin", begin, ("start", "end"))
        self._path = Path(path).absolute()
        self._begin = begin
        self._every = check_duration("Tail", "every", every)

    def __repr__(self) -> str:
        return f"Tail({str(self._path)!r})"

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Open the file at the checkpoint, and return its lines."""
        position = read_checkpoint(checkpoint, FilePosition, f"file '{self._path}'")
        session = _TailSession(RotatedFile(self._path, MAX_LINE), context, self._every)
        missing = Disconnected(f"there is no file '{self._path}' yet", retry_after=self._every)
        try:
            await session.open(position, self._begin)
        except FileNotFoundError:
            session.close()
            if position is None and self._begin == "end":
                return _begin_without_file(missing)
            raise missing from None
        except BaseException:
            session.close()
            raise
        return session.deliveries(keeps_begin=position is None and self._begin == "end")


async def _begin_without_file(missing: Disconnected) -> AsyncIterator[Delivery]:
    """Keep that there was no file at the first start: whatever appears later is new, and read from its start."""
    yield Moved(list(NO_FILE))
    raise missing


class _TailSession:
    """Reads the file on a separate thread: a file system over a network may block."""

    def __init__(self, file: RotatedFile, context: SourceContext, every: float) -> None:
        self._file = file
        self._context = context
        self._every = every
        self._thread = WorkerThread(f"source {context.name}")

    async def open(self, position: FilePosition | None, begin: Literal["start", "end"]) -> None:
        """Open the file at a position."""
        await self._thread.call(self._file.open, position, begin)

    async def deliveries(self, *, keeps_begin: bool) -> AsyncIterator[Delivery]:
        """Yield the lines of each part of the file that was read; before them, if asked for, where they begin."""
        try:
            if keeps_begin:
                yield Moved(list(self._file.position))
            while True:
                lines = await self._read_lines()
                self._report_gap()
                if lines:
                    yield [(line, list(position)) for line, position in lines]
                else:
                    await self._context.clock.sleep(self._every)
        finally:
            self.close()

    async def _read_lines(self) -> list[tuple[bytes, FilePosition]]:
        try:
            lines: list[tuple[bytes, FilePosition]] = await self._thread.call(self._file.read_lines)
        except FileNotFoundError as error:
            raise Disconnected(f"the file no longer exists: {error}", retry_after=self._every) from None
        return lines

    def _report_gap(self) -> None:
        if self._file.gap is not None:
            self._context.report_gap(self._file.gap)
            self._file.gap = None

    def close(self) -> None:
        """Close the file after the call that the thread is in."""
        self._thread.submit(lambda *_: None, self._file.close)
        self._thread.close()
