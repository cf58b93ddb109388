"""Reads stored runs and formats them: list, title, attempts, timeline, JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from tidemill.access.principal import Caller
from tidemill.cli.formatting import (
    LINE_LIMIT,
    format_elapsed,
    format_short_time,
    format_time,
    format_zoned_time,
    one_line,
    relative_path,
    state_text,
    time_column_title,
)
from tidemill.cli.output import build_table, text_limit
from tidemill.cli.run_summary import plain_result
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptRow, EventRow, RunRecord, RunRow, TaskError, TaskKey
from tidemill.workflows.result import RunResult, TaskResult

ACTOR_LENGTH_LIMIT = 8
"""The number of last characters of an actor that are shown."""


RUN_ID_LENGTH = 8  # last characters of an id that are shown: enough to name a run
FAILED_ATTEMPTS_LIMIT = 10  # failed attempts that are listed; the others are counted


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run with everything that is stored about it."""

    row: RunRow
    result: RunResult
    attempts: list[AttemptRow]
    events: list[EventRow]
    notes: dict[str | None, str]


async def read_run_view(client: WorkflowClient, caller: Caller, id: str) -> RunView:
    """Read a run from a store."""
    record = await client.load_record(caller, id)
    result = _with_class_names(await client.load_result(caller, id), record)
    return RunView(
        row=msgspec.structs.replace(record.run, reason=result.reason),  # the result also names unreadable values
        result=result,
        attempts=await client.load_attempts(caller, id),
        events=await client.load_events(caller, id),
        notes=await client.notes(caller, id),
    )


class _NamedFields(dict[str, Any]):
    """A value whose class is not loaded: its fields, printed as the class would print itself."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def _with_class_names(result: RunResult, record: RunRecord) -> RunResult:
    """Return a result whose values show their class names, as far as these are stored."""
    names = {(row.task, row.index): row.variant or "" for row in record.tasks}

    def with_name(task: str, index: int, value: Any) -> Any:
        name = names.get((task, index), "")
        has_class = isinstance(value, dict) and name.isidentifier() and name != "dict"
        return _NamedFields(name, value) if has_class else value

    def with_names(name: str, task: TaskResult) -> TaskResult:
        if not task.mapped:
            return msgspec.structs.replace(task, output=with_name(name, UNMAPPED, task.output))
        mapped = [
            msgspec.structs.replace(one, output=with_name(name, number, one.output))
            for number, one in enumerate(task.mapped)
        ]
        return msgspec.structs.replace(task, mapped=mapped, output=[one.output for one in mapped if one.has_output])

    return msgspec.structs.replace(result, tasks={name: with_names(name, task) for name, task in result.tasks.items()})


def runs_table(rows: Sequence[RunRow], width: int) -> Table:
    """Return a table of runs: workflow, state, origin, slot, creation and duration of each."""
    slots = [row.slot for row in rows if row.slot is not None]
    slot, created = time_column_title("slot", slots), time_column_title("created", (row.created_at for row in rows))
    columns = [*map(Column, ["run", "workflow", "state", "by", slot, created]), Column("time", justify="right")]
    cells = [
        [
            Text(row.id[-RUN_ID_LENGTH:]),
            Text(row.workflow),
            state_text(row.state),
            Text(row.origin),
            Text(format_time(row.slot, seconds=any(one.second for one in slots))),
            Text(format_short_time(row.created_at)),
            Text(format_elapsed(row.started_at, row.ended_at)),
        ]
        for row in rows
    ]
    if not slots:
        columns, cells = columns[:4] + columns[5:], [one[:4] + one[5:] for one in cells]
    return build_table(columns, cells, width, droppable=["by", "time", created, slot], folded=["workflow"])


def run_title(view: RunView, width: int) -> Text:
    """Return the heading of a run: workflow, state, origin, version, times, params."""
    row, limit = view.row, text_limit(LINE_LIMIT, width)
    slot = f" for {format_zoned_time(row.slot)}" if row.slot is not None else ""
    params = ", ".join(f"{name}={value!r}" for name, value in (_decode_run_params(row) or {}).items())
    lines = [
        Text.assemble(
            (row.workflow, "bold"), " ", state_text(row.state), _format_reason(row, limit), f"  (run {row.id})"
        ),
        Text(f"{row.origin}{slot}, version {row.version[:8]}", "dim"),
        Text(f"created {format_zoned_time(row.created_at)}{_format_run_times(row)}", "dim"),
    ]
    return Text("\n").join([*lines, Text(f"params: {one_line(params, limit)}", "dim")] if params else lines)


def _format_reason(row: RunRow, limit: int) -> str:
    return f": {one_line(row.reason, limit)}" if row.reason and row.reason != row.state else ""


def _format_run_times(row: RunRow) -> str:
    if row.ended_at is not None:
        elapsed = format_elapsed(row.started_at, row.ended_at)
        return f", ended {format_zoned_time(row.ended_at)}{f' after {elapsed}' if elapsed else ''}"
    return f", started {format_zoned_time(row.started_at)}" if row.started_at is not None else ""


def failed_attempt_lines(attempts: Sequence[AttemptRow], width: int) -> Iterator[str]:
    """Yield a line for each of the first failed, lost or cancelled attempts, with its error."""
    failed = [one for one in _sort_by_time(attempts) if one.outcome not in ("", "success", "deferred", "skipped")]
    for one in failed[:FAILED_ATTEMPTS_LIMIT]:
        elapsed = format_elapsed(one.started_at, one.ended_at)
        outcome = f"{_outcome_text(one)}{f' after {elapsed}' if elapsed else ''}"
        error = (
            f": {one_line(str(one.error), text_limit(LINE_LIMIT, width))}{_format_error_location(one.error)}"
            if one.error is not None
            else ""
        )
        yield f"{one.key.task_key.label}, try {one.number}: {outcome}{error}"
    if len(failed) > FAILED_ATTEMPTS_LIMIT:
        yield f"... and {len(failed) - FAILED_ATTEMPTS_LIMIT:,} more tries that failed"


def _format_error_location(error: TaskError) -> str:
    return f" ({relative_path(error.place)})" if error.place else ""


def _sort_by_time(attempts: Sequence[AttemptRow]) -> list[AttemptRow]:
    return sorted(attempts, key=lambda one: one.claimed_at)


def attempts_table(attempts: Sequence[AttemptRow], width: int) -> Table:
    """Return a table of attempts: executor, start, duration, outcome and error of each."""
    rows = [
        [
            Text(one.key.task_key.label),
            Text(str(one.number)),
            Text(_outcome_text(one)),
            Text(one.executor),
            Text(format_short_time(one.started_at) if one.started_at is not None else ""),
            Text(format_elapsed(one.started_at, one.ended_at)),
            Text(one_line(str(one.error), text_limit(LINE_LIMIT, width)) if one.error is not None else ""),
        ]
        for one in _sort_by_time(attempts)
    ]
    began = time_column_title("began", (one.started_at for one in attempts))
    columns = list(map(Column, ["task", "try", "outcome", "executor", began, "time", "why"]))
    return _with_title(
        "tries", build_table(columns, rows, width, droppable=["executor", began, "time", "why"], truncated="why")
    )


def _outcome_text(attempt: AttemptRow) -> str:
    return {"": "running", "returned": "handed back"}.get(attempt.outcome, attempt.outcome)


def timeline_table(events: Sequence[EventRow], width: int) -> Table:
    """Return a table of all events of a run, in order."""
    rows = []
    for one in events:
        subject = "run" if one.task is None else TaskKey(one.run, one.task, one.index).label
        actor = one.actor if len(one.actor) <= ACTOR_LENGTH_LIMIT else f"…{one.actor[-ACTOR_LENGTH_LIMIT:]}"
        at = f"{one.at.astimezone():%H:%M:%S.%f}"[:-3]
        reason = one_line(one.reason, text_limit(LINE_LIMIT, width))
        rows.append([Text(text) for text in (at, subject, one.before, one.after, actor, reason)])
    at = time_column_title("at", (one.at for one in events))
    columns = list(map(Column, [at, "what", "from", "to", "by", "why"]))
    table = build_table(columns, rows, width, droppable=["by", "from", "why"], truncated="why", folded=["what"])
    return _with_title("timeline", table)


def _with_title(title: str, table: Table) -> Table:
    table.title, table.title_justify = title, "left"
    return table


def plain_run(row: RunRow) -> dict[str, Any]:
    """Return a run without its tasks, in JSON types."""
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(row, params=b""))
    return fields | {"params": _decode_run_params(row)}


def plain_view(view: RunView) -> dict[str, Any]:
    """Return a run with everything that is stored about it, in JSON types."""
    return {
        **plain_run(view.row),
        "tasks": plain_result(view.result)["tasks"],
        "attempts": [_plain_attempt(one) for one in view.attempts],
        "notes": [{"task": task, "text": text} for task, text in view.notes.items()],
        "events": [plain_event(one) for one in view.events],
    }


def _plain_attempt(one: AttemptRow) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(one)
    del fields["key"]
    return {"id": str(one.key), "task": one.key.task, "element": one.key.element, **fields}


def plain_event(one: EventRow) -> dict[str, Any]:
    """Return an event of a run in JSON types."""
    fields: dict[str, Any] = msgspec.to_builtins(one)
    del fields["run"]  # the `id` of the whole
    return fields


def _decode_run_params(row: RunRow) -> dict[str, Any] | None:
    """Return the params as plain values, whose types are not known without the workflow's code; None if omitted."""
    values: dict[str, Any] | None = msgspec.msgpack.decode(row.params)
    return msgspec.to_builtins(values, str_keys=True)  # type: ignore[no-any-return]
