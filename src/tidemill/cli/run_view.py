"""Reads stored runs and formats them: list, title, attempts, timeline, JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.table import Column, Table
from rich.text import Text

from tidemill.api.handlers import HandlerRun
from tidemill.api.handles import AsyncRun
from tidemill.api.reruns import Rerun
from tidemill.api.runs import RunDetails, RunInfo, RunTransition
from tidemill.api.tasks import AttemptInfo
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
from tidemill.cli.progress import label_of
from tidemill.cli.run_summary import plain_result
from tidemill.workflows.records import TaskError
from tidemill.workflows.result import RunResult

ACTOR_LENGTH_LIMIT = 8
"""The number of last characters of an actor that are shown."""


RUN_ID_LENGTH = 8  # last characters of an id that are shown: enough to name a run
FAILED_ATTEMPTS_LIMIT = 10  # failed attempts that are listed; the others are counted


class RunView(NamedTuple):
    """A run with everything that is stored about it."""

    info: RunDetails
    result: RunResult
    attempts: list[AttemptInfo]
    events: list[RunTransition]
    handlers: list[HandlerRun]


async def read_run_view(run: AsyncRun) -> RunView:
    """Read a run with everything that is stored about it."""
    info, result = await run.info(), await run.state()
    attempts = [one for task in info.tasks for one in await run.attempts(task)]
    events = [one async for one in run.events()]
    return RunView(info, result, attempts, events, await run.handlers())


def runs_table(rows: Sequence[RunInfo], width: int) -> Table:
    """Return a table of runs: workflow, state, origin, slot, creation and duration of each."""
    slots = [row.slot for row in rows if row.slot is not None]
    slot, created = time_column_title("slot", slots), time_column_title("created", (row.created_at for row in rows))
    columns = [*map(Column, ["run", "workflow", "state", "by", slot, created]), Column("time", justify="right")]
    cells = [
        [
            Text(row.id[-RUN_ID_LENGTH:]),
            Text(row.workflow),
            state_text(row.state),
            Text(_format_cause(row)),
            Text(format_time(row.slot, seconds=any(one.second for one in slots))),
            Text(format_short_time(row.created_at)),
            Text(format_elapsed(row.started_at, row.ended_at)),
        ]
        for row in rows
    ]
    if not slots:
        columns, cells = columns[:4] + columns[5:], [one[:4] + one[5:] for one in cells]
    return build_table(columns, cells, width, droppable=["by", "time", created, slot], folded=["workflow"])


def _format_cause(row: RunInfo) -> str:
    """Return what started a run: "manual", "trigger new_files"."""
    return row.origin if row.cause is None else f"{row.origin} {row.cause}"


def run_title(view: RunView, width: int) -> Text:
    """Return the heading of a run: workflow, state, origin, version, times, params."""
    row, limit = view.info, text_limit(LINE_LIMIT, width)
    slot = f" for {format_zoned_time(row.slot)}" if row.slot is not None else ""
    params = ", ".join(f"{name}={value!r}" for name, value in (row.params or {}).items())
    lines = [
        Text.assemble(
            (row.workflow, "bold"), " ", state_text(row.state), _format_reason(row, limit), f"  (run {row.id})"
        ),
        Text(f"{_format_cause(row)}{slot}, version {row.version[:8]}", "dim"),
        Text(f"created {format_zoned_time(row.created_at)}{_format_run_times(row)}", "dim"),
    ]
    return Text("\n").join([*lines, Text(f"params: {one_line(params, limit)}", "dim")] if params else lines)


def _format_reason(row: RunInfo, limit: int) -> str:
    return f": {one_line(row.reason, limit)}" if row.reason and row.reason != row.state else ""


def _format_run_times(row: RunInfo) -> str:
    if row.ended_at is not None:
        elapsed = format_elapsed(row.started_at, row.ended_at)
        return f", ended {format_zoned_time(row.ended_at)}{f' after {elapsed}' if elapsed else ''}"
    return f", started {format_zoned_time(row.started_at)}" if row.started_at is not None else ""


def handler_lines(called: Sequence[HandlerRun]) -> Iterator[str]:
    """Yield a line for each run of handlers: the state of each handler, and the id of the run."""
    for one in called:
        states = ", ".join(f"{task} {state}" for task, state in one.tasks.items())
        yield f"{one.handles}: {states}  (run {one.run})"


def failed_attempt_lines(attempts: Sequence[AttemptInfo], width: int) -> Iterator[str]:
    """Yield a line for each of the first failed, lost or cancelled attempts, with its error."""
    failed = [one for one in _sort_by_time(attempts) if one.outcome not in (None, "success", "deferred", "skipped")]
    for one in failed[:FAILED_ATTEMPTS_LIMIT]:
        elapsed = format_elapsed(one.started_at, one.ended_at)
        outcome = f"{_outcome_text(one)}{f' after {elapsed}' if elapsed else ''}"
        error = (
            f": {one_line(str(one.error), text_limit(LINE_LIMIT, width))}{_format_error_location(one.error)}"
            if one.error is not None
            else ""
        )
        yield f"{label_of(one.task, one.index)}, try {one.try_number}: {outcome}{error}"
    if len(failed) > FAILED_ATTEMPTS_LIMIT:
        yield f"... and {len(failed) - FAILED_ATTEMPTS_LIMIT:,} more tries that failed"


def _format_error_location(error: TaskError) -> str:
    return f" ({relative_path(error.place)})" if error.place else ""


def _sort_by_time(attempts: Sequence[AttemptInfo]) -> list[AttemptInfo]:
    return sorted(attempts, key=lambda one: one.claimed_at)


def attempts_table(attempts: Sequence[AttemptInfo], width: int) -> Table:
    """Return a table of attempts: executor, start, duration, outcome and error of each."""
    rows = [
        [
            Text(label_of(one.task, one.index)),
            Text(str(one.try_number)),
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


def _outcome_text(attempt: AttemptInfo) -> str:
    return {"": "running", "returned": "handed back"}.get(attempt.outcome or "", attempt.outcome or "")


def timeline_table(events: Sequence[RunTransition], width: int) -> Table:
    """Return a table of all events of a run, in order."""
    rows = []
    for one in events:
        subject = "run" if one.task is None else label_of(one.task, one.index)
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


def plain_view(view: RunView) -> dict[str, Any]:
    """Return a run with everything that is stored about it, in JSON types."""
    fields: dict[str, Any] = msgspec.to_builtins(view.info)
    return {
        **fields,
        "tasks": plain_result(view.result)["tasks"],
        "attempts": msgspec.to_builtins(view.attempts),
        "events": msgspec.to_builtins(view.events),
        "handlers": msgspec.to_builtins(view.handlers),
    }


def rerun_sentences(plan: Rerun, *, latest: bool) -> Iterator[str]:
    """Yield what a retry or clear does, or would do."""
    parts = {name: f"{name} ({one.reruns} of {one.total})" for name, one in plan.elements.items()}
    names = [parts.get(name, name) for name in plan.reruns]
    with_version = f", with version {plan.version}" if latest else ""
    yield f"{'would rerun' if plan.preview else 'will rerun'}{with_version}: {', '.join(names) or 'nothing'}"
    if plan.missing_tasks:
        yield f"removed, because this version does not have them: {', '.join(plan.missing_tasks)}"
    if plan.note is not None:
        yield plan.note
    if not plan.preview and not plan.live_nodes:
        yield "no node is running on this store: start one"
