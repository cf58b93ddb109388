"""What came of a run: a table of its tasks, the outcome in a sentence, the tracebacks of what failed."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from tidemill.cli.formatting import LINE_LIMIT, format_elapsed, format_value, one_line, state_text
from tidemill.cli.output import UNLIMITED_WIDTH, build_table, print_text, show, text_limit
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import TaskKey
from tidemill.workflows.result import RunResult, TaskResult
from tidemill.workflows.states import RunState, TaskState

DROPPABLE_COLUMNS = ("tries", "time", "result")
"""What is left out where there is no room, in this order."""
RESULT_TEXT_LIMIT = 200  # characters of a result that are shown at most, where lines are not as long as they need to be
TRACEBACKS_LIMIT = 3  # tracebacks that are shown before the rest is only counted


def tasks_table(result: RunResult, width: int) -> Table:
    """Return the tasks of a run: state, tries, time, and what each returned, or why it did not."""
    columns = [Column("task"), Column("state"), _number_column("tries"), _number_column("time"), Column("result")]
    limit = text_limit(RESULT_TEXT_LIMIT, width)
    rows = [
        [
            Text(name),
            _state_cell(task),
            Text(str(task.attempts) if task.attempts else ""),
            Text(format_elapsed(task.started_at, task.ended_at)),
            Text(result_text(task, limit), _result_style(task)),
        ]
        for name, task in result.tasks.items()
    ]
    return build_table(columns, rows, width, droppable=DROPPABLE_COLUMNS, truncated="result")


def _number_column(title: str) -> Column:
    return Column(title, justify="right")


def _state_cell(task: TaskResult) -> Text:
    state = state_text(task.state)
    if task.mapped:
        state.append(f" {format_element_progress(one.state for one in task.mapped)}")
    return state


def format_element_progress(states: Iterable[TaskState]) -> str:
    """Return how many elements of a mapped task have succeeded, and how many there are: "2/3"."""
    found = list(states)
    return f"{found.count(TaskState.SUCCESS)}/{len(found)}"


def _result_style(task: TaskResult) -> str:
    if task.state is TaskState.SUCCESS:
        return "" if task.error is None else "red"
    return "red" if task.state is TaskState.FAILED else "dim"


def result_text(task: TaskResult, limit: int = LINE_LIMIT) -> str:
    """Return what a task returned, or why it did not, in one line of at most so many characters."""
    if task.state is TaskState.SUCCESS and task.error is None:
        return format_value(task.output, limit)
    if task.error is not None:
        number = next((number for number, one in enumerate(task.mapped) if one.error is not None), None)
        element = "" if number is None else f"[{number}] "
        return one_line(f"{element}{task.error}", limit)
    return one_line("" if task.reason == task.state else task.reason, limit)


def run_outcome_text(result: RunResult) -> Text:
    """Return how a run ended, in a sentence."""
    state = state_text(result.state)
    text = Text.assemble((result.workflow, "bold"), " ", outcome_verb(result.state), style=state.style)
    took = format_elapsed(result.started_at or result.created_at, result.ended_at)
    text.append(f" after {took}" if took else "")
    if result.state is RunState.CANCELLED and result.reason not in ("", "cancelled"):
        text.append(f": {one_line(result.reason)}")
    return text.append(f"  (run {result.id})", "dim")


def outcome_verb(state: RunState) -> str:
    """Return how a run ended, as the verb of a sentence."""
    return {RunState.SUCCESS: "succeeded", RunState.CANCELLED: "was cancelled"}.get(state, str(state))


def find_tracebacks(result: RunResult, element: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield what failed, or only that element of it, and its traceback, the same one once: the author's own lines."""
    seen: set[str] = set()
    for name, task in result.tasks.items():
        parts = list(enumerate(task.mapped)) if task.mapped else [(UNMAPPED, task)]
        for number, one in parts:
            is_meant = element in (None, number)
            if is_meant and one.state is TaskState.FAILED and one.error and one.error.traceback:
                trace = one.error.traceback.rstrip()
                if trace not in seen:
                    seen.add(trace)
                    yield TaskKey(result.id, name, number).label, trace


def show_tracebacks(result: RunResult, element: int | None = None) -> bool:
    """Print the tracebacks of what failed, or only of that element, the first ones; return whether there are any."""
    traces = list(find_tracebacks(result, element))
    for name, trace in traces[:TRACEBACKS_LIMIT]:
        show("", Text(f"{name} failed:", "red"))
        print_text(trace)
    if len(traces) > TRACEBACKS_LIMIT:
        print_text(f"\n... and {len(traces) - TRACEBACKS_LIMIT:,} more that failed")
    return bool(traces)


def plain_result(result: RunResult) -> Any:
    """Return a run's result as JSON can hold it; what JSON cannot is there as its `repr`."""
    tasks = {name: _plain_task(task) for name, task in result.tasks.items()}
    whole: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, tasks={}))
    return whole | {"tasks": tasks, "outputs": {name: tasks[name]["output"] for name in result.outputs}}


def _plain_task(task: TaskResult) -> dict[str, Any]:
    bare = msgspec.structs.replace(task, output=None, mapped=[])
    mapped = [_plain_task(one) for one in task.mapped]
    found: dict[str, Any] = msgspec.to_builtins(bare)
    return found | {"output": plain_value(task.output), "mapped": mapped}


def plain_value(value: Any) -> Any:
    """Return a value as JSON can hold it, or its text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_repr_text))
    except (TypeError, ValueError, RecursionError):
        return _repr_text(value)


def _repr_text(value: Any) -> str:
    return format_value(value, UNLIMITED_WIDTH)
