"""Runs, task runs and attempts as PostgreSQL stores them: columns, and the conversion of rows.

The columns of a table are listed once, with their types. Statements name them as fragments, `{run_columns}`: they write
all rows at once, one array per column.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tidemill.kernel.limits import make_storable
from tidemill.workflows.change import Change
from tidemill.workflows.records import (
    MUTABLE_RUN_FIELDS,
    AttemptKey,
    AttemptRow,
    EventRow,
    FireRow,
    NumberedEvent,
    OutputRow,
    RunEventBatch,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
)
from tidemill.workflows.states import RunState, TaskState

RUN_COLUMNS = {
    "id": "text",
    "tenant": "text",
    "workflow": "text",
    "version": "text",
    "state": "text",
    "params": "bytea",
    "origin": "text",
    "created_at": "timestamptz",
    "slot": "timestamptz",
    "started_at": "timestamptz",
    "ended_at": "timestamptz",
    "reason": "text",
    "max_active": "integer",
    "backfill": "text",
    "cause": "text",
    "about": "text",
    "caused_by": "text",
    "cause_key": "text",
    "dismissed_at": "timestamptz",
    "trace": "text",
    "revision": "bigint",
    "clears": "bigint",
    "sequence": "bigint",
}
"""The columns of a run: the fields of RunRow."""
NEW_RUN_COLUMNS = {name: kind for name, kind in RUN_COLUMNS.items() if name != "sequence"}
"""All columns of a run but its sequence number, which the database gives."""

TASK_COLUMNS = {
    "run": "text",
    "task": "text",
    "element": "integer",
    "tenant": "text",
    "state": "text",
    "variant": "text",
    "size": "bigint",
    "wake_at": "timestamptz",
    "since": "timestamptz",
    "attempt": "integer",
    "tries": "integer",
    "failures": "integer",
    "recoveries": "integer",
    "deferrals": "integer",
    "claimed_by": "text",
    "claimed_at": "timestamptz",
    "lease_until": "timestamptz",
    "started_at": "timestamptz",
    "ended_at": "timestamptz",
    "reason": "text",
    "pool": "text",
    "priority": "integer",
    "queue": "text",
    "executor": "text",
}
"""The columns of a task run: its key, the run's tenant, and the fields of TaskRow (`element` is its `index`)."""

ATTEMPT_COLUMNS = {
    "run": "text",
    "task": "text",
    "element": "integer",
    "attempt": "integer",
    "number": "integer",
    "executor": "text",
    "worker": "text",
    "claimed_at": "timestamptz",
    "started_at": "timestamptz",
    "ended_at": "timestamptz",
    "outcome": "text",
    "exit": "integer",
    "error": "bytea",
}
"""The columns of an attempt: its key, and the fields of AttemptRow."""

_RUN_UPDATE_COLUMNS = {
    "id": "text",
    "revision": "bigint",
    "clears": "bigint",
    "moves": "boolean",  # whether the mutable columns are replaced
    **{name: RUN_COLUMNS[name] for name in MUTABLE_RUN_FIELDS},
}
_WRITTEN_TASK_COLUMNS = TASK_COLUMNS | {"lease_until": "double precision"}  # the seconds of the lease, from now
_LEASE_UNTIL = (
    f"coalesce(${len(TASK_COLUMNS) + 1}::timestamptz, clock_timestamp()) + n.lease_until * interval '1 second'"
)


def _arrays(columns: Mapping[str, str]) -> str:
    return ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), start=1))


def _lines(items: Iterable[str]) -> str:
    return ",\n    ".join(items)


def _task_updates(names: Collection[str]) -> str:
    changed = [name for name in names if name not in (*TaskKey._fields, "tenant")]
    return _lines(f"{name} = {_LEASE_UNTIL if name == 'lease_until' else f'n.{name}'}" for name in changed)


_LOCKED_ROWS = """held AS MATERIALIZED (
    SELECT name, epoch FROM tidemill.leases
    WHERE name = ANY($1::text[]) AND holder IS NOT NULL
    ORDER BY name FOR SHARE
), tasks AS MATERIALIZED (
    SELECT t.run, t.task, t.element, t.state, t.attempt, t.claimed_by, t.pool, t.lease_until
    FROM tidemill.task_runs AS t
    JOIN unnest($2::text[], $3::text[], $4::integer[]) AS asked (run, task, element) USING (run, task, element)
    WHERE (SELECT count(*) FROM held) >= 0
    ORDER BY t.run, t.task, t.element
    FOR UPDATE OF t
), runs AS MATERIALIZED (
    SELECT id, tenant, state, clears, revision FROM tidemill.runs
    WHERE id = ANY($5::text[]) AND (SELECT count(*) FROM tasks) >= 0
    ORDER BY id FOR UPDATE
)"""
"""Locks leases, task runs and runs, in the order that every transaction keeps to: each part begins after the one that
it counts has locked all its rows."""

COLUMN_FRAGMENTS = {
    "locked_rows": _LOCKED_ROWS,
    "bare_run_columns": ", ".join("''::bytea AS params" if name == "params" else name for name in RUN_COLUMNS),
    "run_columns": ", ".join(RUN_COLUMNS),
    "new_run_columns": ", ".join(NEW_RUN_COLUMNS),
    "new_run_arrays": _arrays(NEW_RUN_COLUMNS),
    "run_sender": f"${len(NEW_RUN_COLUMNS) + 1}",
    "run_update_columns": ", ".join(_RUN_UPDATE_COLUMNS),
    "run_update_arrays": _arrays(_RUN_UPDATE_COLUMNS),
    "run_update_sender": f"${len(_RUN_UPDATE_COLUMNS) + 1}",
    "run_updates": _lines(f"{name} = CASE WHEN n.moves THEN n.{name} ELSE r.{name} END" for name in MUTABLE_RUN_FIELDS),
    "task_columns": ", ".join(TASK_COLUMNS),
    "task_arrays": _arrays(_WRITTEN_TASK_COLUMNS),
    "task_values": ", ".join(_LEASE_UNTIL if name == "lease_until" else f"n.{name}" for name in TASK_COLUMNS),
    "task_updates": _task_updates(TASK_COLUMNS),
    "attempt_columns": ", ".join(ATTEMPT_COLUMNS),
    "attempt_arrays": _arrays(ATTEMPT_COLUMNS),
}
"""What statements may name in braces."""

_TASK_FIELDS = tuple(field for field in TaskRow.__struct_fields__ if field not in ("index", "state"))
_ATTEMPT_FIELDS = tuple(field for field in AttemptRow.__struct_fields__ if field not in ("key", "error"))
_error_decoder = msgspec.json.Decoder(TaskError)


def decode_run(row: Any) -> RunRow:
    """Build a run from its columns."""
    return RunRow(**{name: row[name] for name in RUN_COLUMNS if name != "state"}, state=RunState(row["state"]))


def decode_task(row: Any) -> TaskRow:
    """Build a task run from its columns."""
    values = {field: row[field] for field in _TASK_FIELDS}
    return TaskRow(**values, index=row["element"], state=TaskState(row["state"]))


def decode_keyed_task(row: Any) -> tuple[TaskKey, TaskRow]:
    """Build a task run and its key from its columns."""
    return TaskKey(row["run"], row["task"], row["element"]), decode_task(row)


def decode_attempt(row: Any) -> AttemptRow:
    """Build an attempt from its columns."""
    run, task, element, attempt, *values, error = row
    return AttemptRow(
        key=AttemptKey(run, task, element, attempt),
        error=None if error is None else _error_decoder.decode(error),
        **dict(zip(_ATTEMPT_FIELDS, values, strict=True)),
    )


def decode_output(row: Any) -> OutputRow:
    """Build an output from its columns."""
    return OutputRow(key=TaskKey(row["run"], row["task"], row["element"]), value=row["value"])


def decode_event(row: Any) -> EventRow:
    """Build an event from its columns."""
    values = dict(row)
    return EventRow(index=values.pop("element"), **values)


def decode_numbered_event(row: Any) -> NumberedEvent:
    """Build an event with its number from its columns."""
    values = dict(row)
    number, tenant, workflow = values.pop("id"), values.pop("tenant"), values.pop("workflow")
    return NumberedEvent(number, tenant, workflow, decode_event(values))


def encode_run(row: RunRow) -> tuple[Any, ...]:
    """Return the columns of a new run."""
    values = msgspec.structs.asdict(row)
    values["reason"] = make_storable(row.reason)
    return tuple(values[name] for name in NEW_RUN_COLUMNS)


def encode_run_update(row: RunRow | None) -> tuple[Any, ...]:
    """Return whether the mutable columns of a run are replaced, and their values: placeholders if they are not."""
    if row is None:
        return False, *("" if RUN_COLUMNS[name] == "text" else None for name in MUTABLE_RUN_FIELDS)
    values = (getattr(row, name) for name in MUTABLE_RUN_FIELDS)
    return True, *(make_storable(value) if type(value) is str else value for value in values)


def encode_task(key: TaskKey, tenant: str, row: TaskRow, lease: float) -> tuple[Any, ...]:
    """Return the columns of a task run; with the seconds of its lease in place of its end."""
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
    """Return the columns of an attempt."""
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
    """Yield the columns of each event."""
    for event in history.events:
        transition = (run, event.task, event.index, event.attempt, event.before, event.after)
        yield *transition, history.at, history.actor, make_storable(event.reason)


def encode_fire(row: FireRow) -> tuple[Any, ...]:
    """Return the columns of a fire."""
    return row.tenant, row.workflow, row.key, row.slot, row.digest, row.run, row.at, row.dedup


def written_rows(change: Change) -> Iterator[Any]:
    """Yield every row that a change would write."""
    yield from (row for row in (change.new_run, change.updated_run, change.fire, change.history) if row is not None)
    yield from (one.updated for one in change.tasks)
    yield from change.added
    yield from change.attempts


def _encode_error(error: TaskError) -> bytes:
    plain = (text.encode("utf-8", "backslashreplace").decode() for text in (error.type, error.message, error.traceback))
    return msgspec.json.encode(TaskError(*plain))
