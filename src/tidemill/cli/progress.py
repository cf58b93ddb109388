"""What is seen of a run while it goes: a live display on a terminal, one plain line per event elsewhere.

Both go to standard error, so that standard output has nothing but what came of the run.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tidemill.cli.formatting import (
    format_count,
    format_elapsed,
    format_with_fields,
    one_line,
    shorten_name,
    state_mark,
    state_text,
)
from tidemill.cli.run_summary import format_element_progress
from tidemill.engine.workflows.client.values import LogLine, RunSnapshot
from tidemill.kernel.clock import Clock
from tidemill.workflows.plan import UNMAPPED, mapped_state
from tidemill.workflows.records import EventRow, RunRecord, TaskKey, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import TaskState

RESERVED_LINES = 4  # lines of a terminal that are not for tasks: the heading, what is not shown, the prompt
NARROW_WIDTH = 60  # columns of a line below which it is short
RIGHT_MARGIN = (
    4  # columns that stay free at the end: ^C, pressed twice, must not begin another line below what is redrawn
)
TIME_COLUMN = 3  # which column has the time
REFRESHES_PER_SECOND = 10  # pictures a second
HIDDEN_STATES = frozenset([TaskState.NONE, TaskState.SCHEDULED, TaskState.QUEUED])
"""Of no interest to somebody who reads along."""


class Progress(Protocol):
    """Somebody who is shown a run while it goes."""

    wants_events: bool = False
    """Whether a glance without events is of no use."""

    def show(self, snapshot: RunSnapshot) -> None:
        """Show how the run stands now."""

    def set_status(self, text: str) -> None:
        """Show a sentence about how the run stands as a whole, in place of the last one; nothing takes it away."""

    def print_note(self, text: str) -> None:
        """Show something that stays to be seen."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SilentProgress(Progress):
    """Shows nothing."""

    def show(self, snapshot: RunSnapshot) -> None: ...

    def set_status(self, text: str) -> None: ...

    def print_note(self, text: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


# -- a terminal


class TaskLine(NamedTuple):
    """A task as it is shown."""

    name: str
    state: TaskState
    tries: int
    elements: str
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    message: str


class LiveProgress(Progress):
    """One line per task, redrawn in place; in a thread of its own, so that it lives while a task blocks the loop."""

    def __init__(self, spec: WorkflowSpec, console: Console, clock: Clock, *, redirects_stdout: bool) -> None:
        self._workflow = spec.name
        self._order = {task.name: number for number, task in enumerate(spec.topological_order)}
        self._started_at = clock.now()
        self._clock = clock
        self._ended_at: datetime | None = None
        self._lines: list[TaskLine] = []
        self._last_messages: dict[str, str] = {}
        self._status = ""
        self._spinner = Spinner("dots")
        self._live = Live(
            self,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=redirects_stdout,
        )

    def show(self, snapshot: RunSnapshot) -> None:
        for said in snapshot.log_lines:
            self._last_messages[said.key.task] = format_with_fields(said.record.message, said.record.fields)
        self._ended_at = snapshot.record.run.ended_at
        found = snapshot.record.by_task()
        self._lines = [self._task_line(name, found[name]) for name in sorted(found, key=self._order.__getitem__)]

    def set_status(self, text: str) -> None:
        self._status = text

    def print_note(self, text: str) -> None:
        self._live.console.print(Text(text, "yellow"), soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def _task_line(self, name: str, rows: Sequence[TaskRow]) -> TaskLine:
        is_mapped = rows[0].index != UNMAPPED
        state = mapped_state(row.state for row in rows) if is_mapped else rows[0].state
        starts = [row.started_at for row in rows if row.started_at is not None]
        ends = [row.ended_at for row in rows if row.ended_at is not None]
        reason = next((row.reason for row in rows if row.reason and row.state is not TaskState.SUCCESS), "")
        is_over = state.is_terminal and state is not TaskState.SUCCESS
        message = reason if is_over or state is TaskState.UP_FOR_RETRY else self._last_messages.get(name, "")
        return TaskLine(
            name=name,
            state=state,
            tries=max(row.tries for row in rows),
            elements=format_element_progress(row.state for row in rows) if is_mapped else "",
            started_at=min(starts, default=None),
            ended_at=max(ends) if len(ends) == len(rows) else None,
            wake_at=rows[0].wake_at,
            message=one_line(message),
        )

    # -- drawing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sentence = Text(f"  {self._status}" if self._status else "", "yellow")
        below = len(sentence.wrap(console, options.max_width)) if sentence else 0
        room = max(3, (options.height or console.height) - RESERVED_LINES - below)
        lines, left_out = _select_lines(self._lines, room)
        now = self._clock.now()
        yield self._heading(now)
        if sentence:
            yield sentence
        cells = [list(self._cells(line, now, is_ascii=options.ascii_only)) for line in lines]
        yield _table(cells, options.max_width - RIGHT_MARGIN)
        if left_out:
            yield Text(f"  {left_out}", style="dim")

    def _heading(self, now: datetime) -> Text:
        done = sum(line.state.is_terminal for line in self._lines)
        elapsed = format_elapsed(self._started_at, self._ended_at or now)
        heading = Text(self._workflow, "bold", no_wrap=True, overflow="ellipsis")
        return heading.append(f"  {done} of {format_count(len(self._order), 'task')}  {elapsed}", "dim")

    def _cells(self, line: TaskLine, now: datetime, *, is_ascii: bool) -> Iterator[Text]:
        running = line.state is TaskState.RUNNING
        yield self._spinner_frame() if running and not is_ascii else state_mark(line.state, is_ascii=is_ascii)
        yield Text(line.name, "dim" if line.state is TaskState.NONE else "")
        state = Text("" if line.state is TaskState.NONE else line.state, state_text(line.state).style)
        more = [line.elements, f"try {line.tries}" if line.tries > 1 else ""]
        yield state.append("".join(f" {one}" for one in more if one))
        ended = line.ended_at if line.state.is_terminal else now
        yield Text(format_elapsed(line.started_at, ended) if line.state is not TaskState.NONE else "", "dim")
        again = format_elapsed(now, line.wake_at) if line.wake_at is not None and line.wake_at > now else ""
        yield Text(f"again in {again}: {line.message}" if again else line.message, "dim")

    def _spinner_frame(self) -> Text:
        picture = self._spinner.render(self._live.console.get_time())
        return Text(str(picture), "cyan")


def _table(rows: Sequence[Sequence[Text]], width: int) -> Table:
    """Return cells in columns, each as wide as it needs to be, and the rest of the line for the last one.

    Where the line is short there are only names and states: those are to be read.
    """
    name, state, time = (_column_width([row[number] for row in rows]) for number in (1, 2, 3))
    if width < NARROW_WIDTH:
        wide = [1, min(name, max(12, width - state - 4)), state]
    else:
        wide = [1, min(name, max(12, width // 3)), state, max(6, time)]
        wide.append(max(1, width - sum(wide) - len(wide) - 1))
    table = Table.grid(padding=(0, 1))
    for number, columns in enumerate(wide):
        justify: Literal["left", "right"] = "right" if number == TIME_COLUMN else "left"
        table.add_column(width=columns, no_wrap=True, overflow="ellipsis", justify=justify)
    for sign, task, *rest in rows:
        table.add_row(sign, Text(shorten_name(task.plain, wide[1]), task.style), *rest[: len(wide) - 2])
    return table


def _column_width(cells: Sequence[Text]) -> int:
    return max((cell.cell_len for cell in cells), default=0)


def _select_lines(lines: Sequence[TaskLine], line_limit: int) -> tuple[list[TaskLine], str]:
    """Return the lines that are worth the room there is, in order, and in words what is left out."""
    if len(lines) <= line_limit:
        return list(lines), ""
    ranked = sorted(lines, key=lambda line: (_line_priority(line), -_last_changed_at(line)))
    kept = {line.name for line in ranked[: line_limit - 1]}
    rest = [line.state for line in lines if line.name not in kept]
    ended = sum(state.is_terminal for state in rest)
    parts = [f"{ended} more that have ended"] * bool(ended) + [f"{len(rest) - ended} more to come"] * (
        len(rest) > ended
    )
    return [line for line in lines if line.name in kept], " and ".join(parts)


def _line_priority(line: TaskLine) -> int:
    """Return how little a line matters while others run."""
    if line.state is TaskState.FAILED or (line.state.is_active and line.state is not TaskState.SCHEDULED):
        return 0
    return 2 if line.state is TaskState.NONE else 1


def _last_changed_at(line: TaskLine) -> float:
    at = line.ended_at or line.started_at
    return at.timestamp() if at is not None else 0.0


# -- anything else


class PlainProgress(Progress):
    """One line per event, and per line that a task logs, with the time: for files and the logs of CI."""

    wants_events = True

    def __init__(self, print_line: Callable[[str], None], clock: Clock) -> None:
        self._print_line = print_line
        self._clock = clock
        self._width = 0

    def show(self, snapshot: RunSnapshot) -> None:
        told = [*map(_log_entry, snapshot.log_lines), *self._transitions(snapshot.events, snapshot.record)]
        names = [row.task for row in snapshot.record.tasks]
        self._width = min(32, max(map(len, [snapshot.record.run.workflow, *names])))
        for at, name, text in sorted(told, key=lambda one: one[0]):
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
                tried = f" (try {number})" if number > 1 else ""
                yield one.at, TaskKey(one.run, one.task, one.index).label, f"{one.after}{tried}{_format_reason(one)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


def _log_entry(said: LogLine) -> tuple[datetime, str, str]:
    level = "" if said.record.level == "info" else f"{said.record.level}: "
    return said.record.at, said.key.label, f"| {level}{format_with_fields(said.record.message, said.record.fields)}"


def _format_reason(event: EventRow) -> str:
    return f": {one_line(event.reason)}" if event.reason and event.reason != event.after else ""
