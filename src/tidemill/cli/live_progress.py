"""Shows the progress of a run on a terminal: one line per task, redrawn in place.

`watch_run` does it for any run, and prints a line per event where nothing can be redrawn.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, NamedTuple, Self

import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tidemill.api.handles import AsyncRun
from tidemill.api.runs import RunSnapshot
from tidemill.api.tasks import TaskInfo
from tidemill.cli.formatting import (
    format_count,
    format_elapsed,
    format_with_fields,
    one_line,
    shorten_name,
    state_mark,
    state_style,
)
from tidemill.cli.output import StreamFormat, can_redraw, print_json_line, print_text, progress_console
from tidemill.cli.progress import PlainProgress, Progress
from tidemill.cli.run_summary import format_element_progress
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.workflows.result import RunResult
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import TaskState

RESERVED_LINES = 4  # lines of a terminal that are not for tasks: the heading, the omitted tasks, the prompt
NARROW_WIDTH = 60  # columns below which only names and states are shown
RIGHT_MARGIN = 4  # columns that stay free: ^C, typed twice, must not wrap into a line below the redrawn ones
TIME_COLUMN = 3  # the index of the column with the time
REFRESHES_PER_SECOND = 10


class TaskLine(NamedTuple):
    """One task in the display."""

    name: str
    state: TaskState
    tries: int
    elements: str
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    message: str


class LiveProgress(Progress):
    """One line per task, redrawn in place, by a separate thread, so that it moves while a task blocks the loop."""

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
        for line in snapshot.lines:
            self._last_messages[line.task] = format_with_fields(line.message, line.fields)
        self._ended_at = snapshot.run.ended_at
        tasks = sorted(snapshot.tasks, key=lambda one: self._order.get(one.task, len(snapshot.tasks)))
        self._lines = [self._task_line(one) for one in tasks]

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

    def _task_line(self, task: TaskInfo) -> TaskLine:
        state = task.state
        is_over = state.is_terminal and state is not TaskState.SUCCESS
        message = task.reason if is_over or state is TaskState.UP_FOR_RETRY else self._last_messages.get(task.task, "")
        return TaskLine(
            name=task.task,
            state=state,
            tries=task.attempts,
            elements="" if task.elements is None else format_element_progress(Counter(task.elements).elements()),
            started_at=task.started_at,
            ended_at=task.ended_at,
            wake_at=task.wake_at,
            message=one_line(message),
        )

    # -- drawing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        status = Text(f"  {self._status}" if self._status else "", "yellow")
        status_lines = len(status.wrap(console, options.max_width)) if status else 0
        line_limit = max(3, (options.height or console.height) - RESERVED_LINES - status_lines)
        lines, omitted = _select_lines(self._lines, line_limit)
        now = self._clock.now()
        yield self._heading(now)
        if status:
            yield status
        cells = [list(self._cells(line, now, is_ascii=options.ascii_only)) for line in lines]
        yield _table(cells, options.max_width - RIGHT_MARGIN)
        if omitted:
            yield Text(f"  {omitted}", style="dim")

    def _heading(self, now: datetime) -> Text:
        done = sum(line.state.is_terminal for line in self._lines)
        elapsed = format_elapsed(self._started_at, self._ended_at or now)
        heading = Text(self._workflow, "bold", no_wrap=True, overflow="ellipsis")
        return heading.append(
            f"  {done} of {format_count(max(len(self._order), len(self._lines)), 'task')}  {elapsed}", "dim"
        )

    def _cells(self, line: TaskLine, now: datetime, *, is_ascii: bool) -> Iterator[Text]:
        running = line.state is TaskState.RUNNING
        yield self._spinner_frame() if running and not is_ascii else state_mark(line.state, is_ascii=is_ascii)
        yield Text(line.name, "dim" if line.state is TaskState.NONE else "")
        state = Text("" if line.state is TaskState.NONE else line.state, state_style(line.state))
        more = [line.elements, f"try {line.tries}" if line.tries > 1 else ""]
        yield state.append("".join(f" {one}" for one in more if one))
        ended = line.ended_at if line.state.is_terminal else now
        yield Text(format_elapsed(line.started_at, ended) if line.state is not TaskState.NONE else "", "dim")
        delay = format_elapsed(now, line.wake_at) if line.wake_at is not None and line.wake_at > now else ""
        yield Text(f"again in {delay}: {line.message}" if delay else line.message, "dim")

    def _spinner_frame(self) -> Text:
        frame = self._spinner.render(self._live.console.get_time())
        return Text(str(frame), "cyan")


def _table(rows: Sequence[Sequence[Text]], width: int) -> Table:
    """Return a grid: each column as wide as needed, and the rest of the width for the last one.

    A narrow terminal shows only names and states.
    """
    name, state, time = (_column_width([row[number] for row in rows]) for number in (1, 2, 3))
    if width < NARROW_WIDTH:
        widths = [1, min(name, max(12, width - state - 4)), state]
    else:
        widths = [1, min(name, max(12, width // 3)), state, max(6, time)]
        widths.append(max(1, width - sum(widths) - len(widths) - 1))
    table = Table.grid(padding=(0, 1))
    for number, columns in enumerate(widths):
        justify: Literal["left", "right"] = "right" if number == TIME_COLUMN else "left"
        table.add_column(width=columns, no_wrap=True, overflow="ellipsis", justify=justify)
    for sign, task, *rest in rows:
        table.add_row(sign, Text(shorten_name(task.plain, widths[1]), task.style), *rest[: len(widths) - 2])
    return table


def _column_width(cells: Sequence[Text]) -> int:
    return max((cell.cell_len for cell in cells), default=0)


def _select_lines(lines: Sequence[TaskLine], line_limit: int) -> tuple[list[TaskLine], str]:
    """Return the most important lines, in order, and a text that counts the omitted ones."""
    if len(lines) <= line_limit:
        return list(lines), ""
    ranked = sorted(lines, key=lambda line: (_line_priority(line), -_last_changed_at(line)))
    kept = {line.name for line in ranked[: line_limit - 1]}
    rest = [line.state for line in lines if line.name not in kept]
    ended = sum(state.is_terminal for state in rest)
    counts = {"more that have ended": ended, "more to come": len(rest) - ended}
    parts = [f"{number} {words}" for words, number in counts.items() if number]
    return [line for line in lines if line.name in kept], " and ".join(parts)


def _line_priority(line: TaskLine) -> int:
    """Return the rank of a line; the lowest are shown first."""
    if line.state is TaskState.FAILED or (line.state.is_active and line.state is not TaskState.SCHEDULED):
        return 0
    return 2 if line.state is TaskState.NONE else 1


def _last_changed_at(line: TaskLine) -> float:
    at = line.ended_at or line.started_at
    return at.timestamp() if at is not None else 0.0


async def watch_run(run: AsyncRun, output: StreamFormat) -> RunResult:
    """Show a run until it has ended; return its result."""
    if output.is_for_programs:
        async for event in run.events(follow=True):
            print_json_line(msgspec.to_builtins(event))
    else:
        await _show_snapshots(run.watch(events=not can_redraw(sys.stderr)))
    return await run.state()


async def _show_snapshots(snapshots: AsyncIterator[RunSnapshot]) -> None:
    first = await anext(snapshots)
    with _make_watcher(first.run.workflow) as progress:
        progress.show(first)
        async for snapshot in snapshots:
            progress.show(snapshot)


def _make_watcher(workflow: str) -> Progress:
    clock = SystemClock()
    if can_redraw(sys.stderr):
        return LiveProgress(WorkflowSpec(name=workflow, tasks=()), progress_console(), clock, redirects_stdout=False)
    return PlainProgress(print_text, clock)
