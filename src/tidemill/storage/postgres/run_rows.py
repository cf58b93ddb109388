"""Runs and what belongs to them, as columns and back."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.kernel.limits import make_storable
from tidemill.workflows.change import Change
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    FireRow,
    OutputRow,
    RunEventBatch,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
)
from tidemill.workflows.states import RunState, TaskState

_RUN_FIELDS = RunRow.__struct_fields__
_TASK_FIELDS = tuple(field for field in TaskRow.__struct_fields__ if field not in ("index", "state"))
_error_decoder = msgspec.json.Decoder(TaskError)


def decode_run(row: Any) -> RunRow:
    """Return a run from its columns."""
    return RunRow(**{field: row[field] for field in _RUN_FIELDS if field != "state"}, state=RunState(row["state"]))


def decode_task(row: Any) -> TaskRow:
    """Return a task run from its columns."""
    values = {field: row[field] for field in _TASK_FIELDS}
    return TaskRow(**values, index=row["element"], state=TaskState(row["state"]))


def decode_keyed_task(row: Any) -> tuple[TaskKey, TaskRow]:
    """Return a task run with its key."""
    return TaskKey(row["run"], row["task"], row["element"]), decode_task(row)


def decode_attempt(row: Any) -> AttemptRow:
    """Return a try from its columns."""
    run, task, element, attempt, *values, error = row
    names = ("number", "executor", "worker", "claimed_at", "started_at", "ended_at", "outcome", "exit")
    return AttemptRow(
        key=AttemptKey(run, task, element, attempt),
        error=None if error is None else _error_decoder.decode(error),
        **dict(zip(names, values, strict=True)),
    )


def decode_output(row: Any) -> OutputRow:
    """Return a value from its columns."""
    return OutputRow(key=TaskKey(row["run"], row["task"], row["element"]), value=row["value"])


def decode_event(row: Any) -> EventRow:
    """Return an event from its columns."""
    values = dict(row)
    return EventRow(index=values.pop("element"), **values)


def encode_run(row: RunRow) -> tuple[Any, ...]:
    """Return a run column by column."""
    values = msgspec.structs.asdict(row)
    values["reason"] = make_storable(row.reason)
    order = (
        *("id", "tenant", "workflow", "version", "state", "params", "origin", "created_at", "slot", "started_at"),
        *("ended_at", "reason", "max_active", "backfill", "revision", "clears"),
    )
    return tuple(values[name] for name in order)


def encode_task(key: TaskKey, tenant: str, row: TaskRow, lease: float) -> tuple[Any, ...]:
    """Return a task run column by column; in place of the end of its lease, the seconds until then."""
    return (
        *key,
        tenant,
        row.state,
        row.variant,
        row.size,
        row.wake_at,
        row.since,
        row.attempt,
        row.tries,
        row.failures,
        row.recoveries,
        row.deferrals,
        row.claimed_by,
        row.claimed_at,
        lease if row.state.is_claimed else None,
        row.started_at,
        row.ended_at,
        make_storable(row.reason),
        row.pool,
        row.priority,
        row.queue,
        row.executor,
    )


def encode_attempt(row: AttemptRow) -> tuple[Any, ...]:
    """Return a try column by column."""
    return (
        *row.key,
        row.number,
        row.executor,
        row.worker,
        row.claimed_at,
        row.started_at,
        row.ended_at,
        row.outcome,
        row.exit,
        None if row.error is None else _encode_error(row.error),
    )


def encode_history(run: str, history: RunEventBatch) -> Iterator[tuple[Any, ...]]:
    """Yield what happened column by column."""
    for one in history.events:
        what = (run, one.task, one.index, one.attempt, one.before, one.after)
        yield *what, history.at, history.actor, make_storable(one.reason)


def encode_fire(row: FireRow) -> tuple[Any, ...]:
    """Return a fire column by column."""
    return row.tenant, row.workflow, row.key, row.slot, row.digest, row.run, row.at


def written_rows(change: Change) -> Iterator[Any]:
    """Yield everything that a change would write."""
    yield from (row for row in (change.new_run, change.updated_run, change.fire, change.history) if row is not None)
    yield from (one.updated for one in change.tasks)
    yield from change.added
    yield from change.attempts


def _encode_error(error: TaskError) -> bytes:
    plain = (text.encode("utf-8", "backslashreplace").decode() for text in (error.type, error.message, error.traceback))
    return msgspec.json.encode(TaskError(*plain))
