"""Pushes the lines of a file or of standard input, and shows how far it is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tidemill.cli.formatting import format_count
from tidemill.cli.output import can_redraw, progress_console
from tidemill.client import AsyncClient
from tidemill.graphs.pushes import PushProblem
from tidemill.kernel.errors import RequestError

LISTED_PROBLEMS_LIMIT = 10  # problems that are printed; the others are counted


class PushReport(NamedTuple):
    """What became of the events."""

    events: int
    counts: dict[str, int]
    problems: list[PushProblem]
    lines: list[int]
    """The line of each problem, from 1."""

    def to_json(self) -> dict[str, Any]:
        """Return the report in JSON types."""
        problems = [
            {"line": line, "outcome": one.outcome, "reason": one.reason}
            for line, one in zip(self.lines, self.problems, strict=True)
        ]
        return {"events": self.events, "outcomes": self.counts, "problems": problems}

    def sentences(self) -> Iterator[str]:
        """Yield what to tell a user."""
        counts = ", ".join(f"{number:,} {outcome}" for outcome, number in self.counts.items() if number)
        yield f"{format_count(self.events, 'event')} pushed{f': {counts}' if counts else ''}"
        shown = list(zip(self.lines, self.problems, strict=True))
        for line, one in shown[:LISTED_PROBLEMS_LIMIT]:
            yield f"line {line}: {one.outcome}: {one.reason}"
        if len(shown) > LISTED_PROBLEMS_LIMIT:
            yield f"... and {len(shown) - LISTED_PROBLEMS_LIMIT:,} more that were not accepted"


async def push_lines(client: AsyncClient, accumulator: str, file: Path | None, batch: int) -> PushReport:
    """Push one event per line, in order; a line that is not JSON ends it, and what was before it is pushed."""
    numbers: list[int] = []
    with _opened(file) as stream, _progress(file) as advance:
        async with client.pusher(accumulator, batch=batch, raises=False) as push:
            for number, line in enumerate(stream, 1):
                advance(len(line))
                if line.strip():
                    await push(_parse(line, number, file))
                    numbers.append(number)
    problems = push.problems
    return PushReport(len(numbers), push.counts, problems, [numbers[one.index] for one in problems])


def _parse(line: bytes, number: int, file: Path | None) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where = "standard input" if file is None else str(file)
        message = f"{where}, line {number} is not JSON: {error}; the events before it are pushed"
        raise RequestError(message, code="invalid_line") from error


@contextmanager
def _opened(file: Path | None) -> Iterator[IO[bytes]]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise RequestError(f"{file} cannot be read: {error.strerror}", code="no_file", status=404) from error
    with stream:
        yield stream


@contextmanager
def _progress(file: Path | None) -> Iterator[Any]:
    """Show a progress bar on a terminal: of the bytes of a file, or of what has come so far."""
    if not can_redraw(sys.stderr):
        yield lambda _: None
        return
    columns = [TextColumn("pushing"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("push", total=None if file is None else file.stat().st_size)
        yield lambda size: progress.advance(task, size)
