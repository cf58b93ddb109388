"""Runs, task runs and the rest as SQLite keeps them: structs to columns, and back."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.storage.sqlite.times import from_micros, from_micros_or_none, to_micros, to_micros_or_none
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    OutputRow,
    RunEvent,
    RunEventBatch,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
)
from tidemill.workflows.states import RunState, TaskState

Columns = tuple[Any, ...]


_encode_json = msgspec.json.Encoder().encode
_decode_error_json = msgspec.json.Decoder(TaskError).decode
_decode_events_json = msgspec.json.Decoder(list[RunEvent]).decode


def encode_run(row: RunRow) -> Columns:
    """Return a run's columns, but for those that the store counts."""
    return (
        row.id,
        row.tenant,
        row.workflow,
        row.version,
        str(row.state),  # a plain text: sqlite3 would look for an adapter of anything else, every time
        row.params,
        row.origin,
        to_micros(row.created_at),
        to_micros_or_none(row.slot),
        to_micros_or_none(row.started_at),
        to_micros_or_none(row.ended_at),
        row.reason,
        row.max_active,
        row.backfill,
    )


def decode_run(columns: Columns) -> RunRow:
    """Return a run from its columns."""
    (id_, tenant, workflow, version, state, params, origin, created_at, slot, started_at, ended_at, *rest) = columns
    reason, max_active, backfill, revision, clears = rest
    return RunRow(
        id=id_,
        tenant=tenant,
        workflow=workflow,
        version=version,
        state=RunState(state),
        params=params,
        origin=origin,
        created_at=from_micros(created_at),
        slot=from_micros_or_none(slot),
        started_at=from_micros_or_none(started_at),
        ended_at=from_micros_or_none(ended_at),
        reason=reason,
        max_active=max_active,
        backfill=backfill,
        revision=revision,
        clears=clears,
    )


def encode_task(row: TaskRow, lease_until: int) -> Columns:
    """Return a task run's columns from its state on; with a lease, if it is queued or running."""
    return (*encode_progress(row, lease_until), row.pool, row.priority, row.queue, row.executor)


def encode_progress(row: TaskRow, lease_until: int) -> Columns:
    """Return those columns that tell how far a task run is, not where it runs."""
    return (
        str(row.state),
        row.variant,
        row.size,
        to_micros_or_none(row.wake_at),
        to_micros_or_none(row.since),
        row.attempt,
        row.tries,
        row.failures,
        row.recoveries,
        row.deferrals,
        row.claimed_by,
        to_micros_or_none(row.claimed_at),
        lease_until if row.state.is_claimed else None,
        to_micros_or_none(row.started_at),
        to_micros_or_none(row.ended_at),
        row.reason,
    )


def has_same_placement(found: TaskRow, row: TaskRow) -> bool:
    """Return whether a task run stays where it runs."""
    before = found.executor, found.queue, found.pool, found.priority
    return before == (row.executor, row.queue, row.pool, row.priority)


def guard_columns(run: str, found: TaskRow) -> Columns:
    """Return what must still be so of a task run."""
    return (run, found.task, found.index, str(found.state), found.attempt, found.claimed_by)


def decode_keyed_task(columns: Columns) -> tuple[TaskKey, TaskRow]:
    """Return a task run, and which it is, from its columns."""
    run, task, element, state, variant, size, wake_at, since, attempt, tries, failures, *rest = columns
    recoveries, deferrals, claimed_by, claimed_at, lease_until, started_at, ended_at, reason, *place = rest
    pool, priority, queue, executor = place
    row = TaskRow(
        task=task,
        index=element,
        state=TaskState(state),
        variant=variant,
        size=size,
        wake_at=from_micros_or_none(wake_at),
        since=from_micros_or_none(since),
        attempt=attempt,
        tries=tries,
        failures=failures,
        recoveries=recoveries,
        deferrals=deferrals,
        claimed_by=claimed_by,
        claimed_at=from_micros_or_none(claimed_at),
        lease_until=from_micros_or_none(lease_until),
        started_at=from_micros_or_none(started_at),
        ended_at=from_micros_or_none(ended_at),
        reason=reason,
        pool=pool,
        priority=priority,
        queue=queue,
        executor=executor,
    )
    return TaskKey(run, task, element), row


def encode_attempt(row: AttemptRow) -> Columns:
    """Return an attempt's columns."""
    return (
        *row.key,
        row.number,
        row.executor,
        row.worker,
        to_micros(row.claimed_at),
        to_micros_or_none(row.started_at),
        to_micros_or_none(row.ended_at),
        row.outcome,
        row.exit,
        None if row.error is None else _encode_json(row.error),
    )


def decode_attempt(columns: Columns) -> AttemptRow:
    """Return an attempt from its columns."""
    *key, number, executor, worker, claimed_at, started_at, ended_at, outcome, exit_code, error = columns
    return AttemptRow(
        key=AttemptKey(*key),
        number=number,
        executor=executor,
        worker=worker,
        claimed_at=from_micros(claimed_at),
        started_at=from_micros_or_none(started_at),
        ended_at=from_micros_or_none(ended_at),
        outcome=outcome,
        exit=exit_code,
        error=None if error is None else _decode_error_json(error),
    )


def decode_output(columns: Columns) -> OutputRow:
    """Return an output from its columns."""
    run, task, element, value, _ = columns
    return OutputRow(key=TaskKey(run, task, element), value=value)


def encode_history(history: RunEventBatch) -> Columns:
    """Return the columns of what happened in one change, but for which it was."""
    return to_micros(history.at), history.actor, _encode_json(history.events).decode()


def decode_events(columns: Columns) -> Iterator[EventRow]:
    """Yield what happened in one change, from its columns."""
    run, at, actor, events = columns
    return RunEventBatch(from_micros(at), actor, _decode_events_json(events)).to_rows(run)
