"""Shows the progress of a run: one plain line per event, or nothing; `live_progress` redraws a terminal.

Progress goes to standard error, so that standard output has nothing but the result.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from tidemill.cli.formatting import format_with_fields, one_line
from tidemill.engine.workflows.client.log_lines import LogLine
from tidemill.engine.workflows.client.values import RunSnapshot
from tidemill.kernel.clock import Clock
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, RunRecord, TaskKey
from tidemill.workflows.states import TaskState

HIDDEN_STATES = frozenset([TaskState.NONE, TaskState.SCHEDULED, TaskState.QUEUED])
"""States that plain progress does not print."""


class Progress:
    """A display of a run's progress. This one shows nothing."""

    wants_events: bool = False
    """Whether `show` needs the events of a snapshot."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Show the current state of the run."""

    def set_status(self, text: str) -> None:
        """Show a sentence about the run as a whole, in place of the last one; "" removes it."""

    def print_note(self, text: str) -> None:
        """Show a sentence that stays visible."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""


class SilentProgress(Progress):
    """Shows nothing."""


class PlainProgress(Progress):
    """One line per event and per log line of a task, with the time: for files and CI logs."""

    wants_events = True

    def __init__(self, print_line: Callable[[str], None], clock: Clock) -> None:
        self._print_line = print_line
        self._clock = clock
        self._width = 0

    def show(self, snapshot: RunSnapshot) -> None:
        entries = [*map(_log_entry, snapshot.log_lines), *self._transitions(snapshot.events, snapshot.record)]
        names = [row.task for row in snapshot.record.tasks]
        self._width = min(32, max(map(len, [snapshot.record.run.workflow, *names])))
        for at, name, text in sorted(entries, key=lambda entry: entry[0]):
            self._print_line(f"{at.astimezone():%H:%M:%S}  {name:<{self._width}}  {text}")

    def set_status(self, text: str) -> None:
        if text:
            self.print_note(text)

    def print_note(self, text: str) -> None:
        self._print_line(f"{self._clock.now().astimezone():%H:%M:%S}  {text}")

    def _transitions(self, events: Sequence[EventRow], record: RunRecord) -> Iterator[tuple[datetime, str, str]]:
        tries = {(row.task, row.index, row.attempt): row.tries for row in record.tasks}
        for one in events:
            if one.task is None:
                yield one.at, record.run.workflow, f"{one.after}{_format_reason(one)}"
            elif one.after not in HIDDEN_STATES and not (one.index != UNMAPPED and one.after == TaskState.RUNNING):
                number = tries.get((one.task, one.index, one.attempt), 0)
                attempt = f" (try {number})" if number > 1 else ""
                yield one.at, TaskKey(one.run, one.task, one.index).label, f"{one.after}{attempt}{_format_reason(one)}"


def _log_entry(line: LogLine) -> tuple[datetime, str, str]:
    level = "" if line.record.level == "info" else f"{line.record.level}: "
    return line.record.at, line.key.label, f"| {level}{format_with_fields(line.record.message, line.record.fields)}"


def _format_reason(event: EventRow) -> str:
    return f": {one_line(event.reason)}" if event.reason and event.reason != event.after else ""
