"""Summarizes a run: a table of its tasks, the outcome in a sentence, the tracebacks of failed tasks."""

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
"""The columns that are dropped on a narrow terminal, in this order."""
RESULT_TEXT_LIMIT = 200  # characters of a result, where the output has a width
TRACEBACKS_LIMIT = 3  # tracebacks that are printed; the others are counted


def tasks_table(result: RunResult, width: int) -> Table:
    """Return the tasks of a run: state, tries, time, and the return value or the error."""
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
    """Return how many elements of a mapped task have succeeded, of how many: "2/3"."""
    elements = list(states)
    return f"{elements.count(TaskState.SUCCESS)}/{len(elements)}"


def _result_style(task: TaskResult) -> str:
    if task.state is TaskState.SUCCESS:
        return "" if task.error is None else "red"
    return "red" if task.state is TaskState.FAILED else "dim"


def result_text(task: TaskResult, limit: int = LINE_LIMIT) -> str:
    """Return a task's value, error or reason in one line of at most `limit` characters."""
    if task.state is TaskState.SUCCESS and task.error is None:
        return format_value(task.output, limit)
    if task.error is not None:
        number = next((number for number, one in enumerate(task.mapped) if one.error is not None), None)
        element = "" if number is None else f"[{number}] "
        return one_line(f"{element}{task.error}", limit)
    return one_line("" if task.reason == task.state else task.reason, limit)


def run_outcome_text(result: RunResult) -> Text:
    """Return the outcome of a run in a sentence."""
    state = state_text(result.state)
    text = Text.assemble((result.workflow, "bold"), " ", outcome_verb(result.state), style=state.style)
    elapsed = format_elapsed(result.started_at or result.created_at, result.ended_at)
    text.append(f" after {elapsed}" if elapsed else "")
    if result.state is RunState.CANCELLED and result.reason not in ("", "cancelled"):
        text.append(f": {one_line(result.reason)}")
    return text.append(f"  (run {result.id})", "dim")


def outcome_verb(state: RunState) -> str:
    """Return the outcome of a run as the verb of a sentence."""
    return {RunState.SUCCESS: "succeeded", RunState.CANCELLED: "was cancelled"}.get(state, str(state))


def find_tracebacks(result: RunResult, element: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield the label and traceback of each failed task, or of one element; equal tracebacks once."""
    seen: set[str] = set()
    for name, task in result.tasks.items():
        parts = list(enumerate(task.mapped)) if task.mapped else [(UNMAPPED, task)]
        for number, one in parts:
            is_selected = element in (None, number)
            if is_selected and one.state is TaskState.FAILED and one.error and one.error.traceback:
                trace = one.error.traceback.rstrip()
                if trace not in seen:
                    seen.add(trace)
                    yield TaskKey(result.id, name, number).label, trace


def show_tracebacks(result: RunResult, element: int | None = None) -> bool:
    """Print the first tracebacks of failed tasks, or of one element; return whether there are any."""
    traces = list(find_tracebacks(result, element))
    for name, trace in traces[:TRACEBACKS_LIMIT]:
        show("", Text(f"{name} failed:", "red"))
        print_text(trace)
    if len(traces) > TRACEBACKS_LIMIT:
        print_text(f"\n... and {len(traces) - TRACEBACKS_LIMIT:,} more that failed")
    return bool(traces)


def plain_result(result: RunResult) -> Any:
    """Return a run's result in JSON types; values that JSON lacks become their repr."""
    tasks = {name: _plain_task(task) for name, task in result.tasks.items()}
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(result, tasks={}))
    return fields | {"tasks": tasks, "outputs": {name: tasks[name]["output"] for name in result.outputs}}


def _plain_task(task: TaskResult) -> dict[str, Any]:
    bare = msgspec.structs.replace(task, output=None, mapped=[])
    mapped = [_plain_task(one) for one in task.mapped]
    fields: dict[str, Any] = msgspec.to_builtins(bare)
    return fields | {"output": plain_value(task.output), "mapped": mapped}


def plain_value(value: Any) -> Any:
    """Return a value in JSON types, or its repr."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_repr_text))
    except (TypeError, ValueError, RecursionError):
        return _repr_text(value)


def _repr_text(value: Any) -> str:
    return format_value(value, UNLIMITED_WIDTH)
