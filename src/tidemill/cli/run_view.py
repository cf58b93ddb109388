"""A stored run as it is shown: everything that is kept of it, read together."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.table import Column, Table
from rich.text import Text

from tidemill.cli.output import tabulated
from tidemill.cli.summary import plain_result
from tidemill.cli.words import between, moment, one_line, short_moment, state_text
from tidemill.engine.workflows.control import Control
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptRow, EventRow, RunRow
from tidemill.workflows.result import RunResult

SHORT_ACTOR = 8
"""Characters of whoever did something, the last, that are shown."""


TOLD = 10  # tries that are told of before the rest is only counted


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run with all that belongs to it."""

    row: RunRow
    result: RunResult
    attempts: list[AttemptRow]
    events: list[EventRow]
    notes: dict[str | None, str]


async def read_view(control: Control, id: str) -> RunView:
    """Read a run from a store."""
    record = await control.operations.record(id)
    result = await control.operations.result(id)
    return RunView(
        row=msgspec.structs.replace(record.run, reason=result.reason),  # which also tells what cannot be read
        result=result,
        attempts=await control.store.runs.attempts(id),
        events=await control.store.runs.events(id),
        notes=await control.operations.notes(id),
    )


def title_of(view: RunView) -> Text:
    """Return what a run is, in a few lines."""
    row = view.row
    slot = f" for {row.slot:%Y-%m-%d %H:%M %Z}" if row.slot is not None else ""
    params = ", ".join(f"{name}={value!r}" for name, value in _params(row).items())
    lines = [
        Text.assemble((row.workflow, "bold"), " ", state_text(row.state), _because(row), f"  (run {row.id})"),
        Text(f"{row.origin}{slot}, version {row.version[:8]}", "dim"),
        Text(f"created {moment(row.created_at)}{_time(row)}", "dim"),
    ]
    return Text("\n").join([*lines, Text(f"params: {one_line(params)}", "dim")] if params else lines)


def _because(row: RunRow) -> str:
    return f": {one_line(row.reason)}" if row.reason and row.reason != row.state else ""


def _time(row: RunRow) -> str:
    if row.ended_at is not None:
        took = between(row.started_at, row.ended_at)
        return f", ended {moment(row.ended_at)}{f' after {took}' if took else ''}"
    return f", began {moment(row.started_at)}" if row.started_at is not None else ""


def failed_tries(attempts: Sequence[AttemptRow]) -> Iterator[str]:
    """Yield a line for each try that neither succeeded nor goes on, with the whole error; the first ones."""
    found = [one for one in _by_time(attempts) if one.outcome not in ("", "success", "deferred", "skipped")]
    for one in found[:TOLD]:
        took = between(one.started_at, one.ended_at)
        why = f": {one_line(str(one.error))}" if one.error is not None else ""
        name = _element(one.key.task, one.key.element)
        yield f"{name}, try {one.number}: {_outcome(one)}{f' after {took}' if took else ''}{why}"
    if len(found) > TOLD:
        yield f"... and {len(found) - TOLD:,} more tries that failed"


def _by_time(attempts: Sequence[AttemptRow]) -> list[AttemptRow]:
    return sorted(attempts, key=lambda one: one.claimed_at)


def attempts_table(attempts: Sequence[AttemptRow], width: int) -> Table:
    """Return tries: where each ran, how long, and how it ended."""
    rows = [
        [
            Text(_element(one.key.task, one.key.element)),
            Text(str(one.number)),
            Text(_outcome(one)),
            Text(one.executor),
            Text(short_moment(one.started_at) if one.started_at is not None else ""),
            Text(between(one.started_at, one.ended_at)),
            Text(one_line(str(one.error)) if one.error is not None else ""),
        ]
        for one in _by_time(attempts)
    ]
    columns = list(map(Column, ["task", "try", "outcome", "executor", "began", "time", "why"]))
    return _titled("tries", tabulated(columns, rows, width, spare=["executor", "began", "time", "why"], cut="why"))


def _outcome(attempt: AttemptRow) -> str:
    return {"": "running", "returned": "handed back"}.get(attempt.outcome, attempt.outcome)


def timeline_table(events: Sequence[EventRow], width: int) -> Table:
    """Return all that happened in a run, in order."""
    rows = []
    for one in events:
        what = "run" if one.task is None else _element(one.task, one.index)
        by = one.actor if len(one.actor) <= SHORT_ACTOR else f"…{one.actor[-SHORT_ACTOR:]}"
        at = f"{one.at.astimezone():%H:%M:%S.%f}"[:-3]
        rows.append([Text(text) for text in (at, what, one.before, one.after, by, one_line(one.reason))])
    columns = list(map(Column, ["at", "what", "from", "to", "by", "why"]))
    return _titled("timeline", tabulated(columns, rows, width, spare=["by", "from", "why"], cut="why"))


def _titled(title: str, table: Table) -> Table:
    table.title, table.title_justify = title, "left"
    return table


def _element(task: str, number: int) -> str:
    return task if number == WHOLE else f"{task}[{number}]"


def plain_run(row: RunRow) -> dict[str, Any]:
    """Return a run without its tasks, as JSON can hold it."""
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(row, params=b""))
    return found | {"params": _params(row)}


def plain_view(view: RunView) -> dict[str, Any]:
    """Return all of a run, as JSON can hold it."""
    return {
        **plain_run(view.row),
        "tasks": plain_result(view.result)["tasks"],
        "attempts": [_plain_attempt(one) for one in view.attempts],
        "notes": [{"task": task, "text": text} for task, text in view.notes.items()],
        "events": msgspec.to_builtins(view.events),
    }


def _plain_attempt(one: AttemptRow) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    return found | {"key": str(one.key), "task": one.key.task, "element": one.key.element}


def _params(row: RunRow) -> dict[str, Any]:
    """Return the params as plain values: without the workflow's code nobody knows more of them."""
    found: dict[str, Any] = msgspec.msgpack.decode(row.params)
    return msgspec.to_builtins(found, str_keys=True)  # type: ignore[no-any-return]
