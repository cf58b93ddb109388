"""Shows the progress of a run: one plain line per event, or nothing; `live_progress` redraws a terminal.

Progress goes to standard error, so that standard output has nothing but the result.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from tidemill.api.runs import RunSnapshot, RunTransition
from tidemill.api.tasks import TaskLogLine
from tidemill.cli.formatting import log_text, one_line
from tidemill.kernel.clock import Clock
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
        self._tries: dict[str, int] = {}
        """The try of each task that has had several."""

    def show(self, snapshot: RunSnapshot) -> None:
        workflow = snapshot.run.workflow
        entries = [*map(_log_entry, snapshot.lines), *self._transitions(snapshot.events, workflow)]
        self._width = min(32, max(map(len, [workflow, *(one.task for one in snapshot.tasks)])))
        for at, name, text in sorted(entries, key=lambda entry: entry[0]):
            self._print_line(f"{at.astimezone():%H:%M:%S}  {name:<{self._width}}  {text}")

    def set_status(self, text: str) -> None:
        if text:
            self.print_note(text)

    def print_note(self, text: str) -> None:
        self._print_line(f"{self._clock.now().astimezone():%H:%M:%S}  {text}")

    def _transitions(self, events: Sequence[RunTransition], workflow: str) -> Iterator[tuple[datetime, str, str]]:
        for one in events:
            if one.task is None:
                yield one.at, workflow, f"{one.after}{_format_reason(one)}"
                continue
            label = label_of(one.task, one.index)
            number = self._tries.get(label, 1)
            if one.after == TaskState.UP_FOR_RETRY:
                self._tries[label] = number + 1
            elif one.after == TaskState.NONE:
                self._tries.pop(label, None)
            if one.after not in HIDDEN_STATES and (one.index is None or one.after != TaskState.RUNNING):
                attempt = f" (try {number})" if number > 1 else ""
                yield one.at, label, f"{one.after}{attempt}{_format_reason(one)}"


def label_of(task: str, index: int | None) -> str:
    """Return a task or element as runs name it: "clean", or "clean[7]"."""
    return task if index is None else f"{task}[{index}]"


def _log_entry(line: TaskLogLine) -> tuple[datetime, str, str]:
    level = "" if line.level == "info" else f"{line.level}: "
    return line.at, label_of(line.task, line.index), f"| {level}{log_text(line)}"


def _format_reason(event: RunTransition) -> str:
    return f": {one_line(event.reason)}" if event.reason and event.reason != event.after else ""
