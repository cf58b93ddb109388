"""Runs, task runs and the rest as SQLite keeps them: structs to columns, and back."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.storage.sqlite.times import from_micros, micros, moment, to_micros
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    Event,
    EventRow,
    History,
    OutputRow,
    RunRow,
    TaskError,
    TaskKey,
    TaskRow,
)
from tidemill.workflows.states import RunState, TaskState

Columns = tuple[Any, ...]


_encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(TaskError).decode
_decode_events = msgspec.json.Decoder(list[Event]).decode


def columns_of_run(row: RunRow) -> Columns:
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
        micros(row.slot),
        micros(row.started_at),
        micros(row.ended_at),
        row.reason,
        row.max_active,
        row.backfill,
    )


def run_of(columns: Columns) -> RunRow:
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
        slot=moment(slot),
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        reason=reason,
        max_active=max_active,
        backfill=backfill,
        revision=revision,
        clears=clears,
    )


def columns_of_task(row: TaskRow, lease_until: int) -> Columns:
    """Return a task run's columns from its state on; with a lease, if it is queued or running."""
    return (*columns_of_move(row, lease_until), row.pool, row.priority, row.queue, row.executor)


def columns_of_move(row: TaskRow, lease_until: int) -> Columns:
    """Return those columns that tell how far a task run is, not where it runs."""
    return (
        str(row.state),
        row.variant,
        row.size,
        micros(row.wake_at),
        micros(row.since),
        row.attempt,
        row.tries,
        row.failures,
        row.recoveries,
        row.deferrals,
        row.claimed_by,
        micros(row.claimed_at),
        lease_until if row.state.is_claimed else None,
        micros(row.started_at),
        micros(row.ended_at),
        row.reason,
    )


def is_move(found: TaskRow, row: TaskRow) -> bool:
    """Return whether a task run stays where it runs."""
    before = found.executor, found.queue, found.pool, found.priority
    return before == (row.executor, row.queue, row.pool, row.priority)


def guard_of(run: str, found: TaskRow) -> Columns:
    """Return what must still be so of a task run."""
    return (run, found.task, found.index, str(found.state), found.attempt, found.claimed_by)


def task_of(columns: Columns) -> tuple[TaskKey, TaskRow]:
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
        wake_at=moment(wake_at),
        since=moment(since),
        attempt=attempt,
        tries=tries,
        failures=failures,
        recoveries=recoveries,
        deferrals=deferrals,
        claimed_by=claimed_by,
        claimed_at=moment(claimed_at),
        lease_until=moment(lease_until),
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        reason=reason,
        pool=pool,
        priority=priority,
        queue=queue,
        executor=executor,
    )
    return TaskKey(run, task, element), row


def columns_of_attempt(row: AttemptRow) -> Columns:
    """Return an attempt's columns."""
    return (
        *row.key,
        row.number,
        row.executor,
        row.worker,
        to_micros(row.claimed_at),
        micros(row.started_at),
        micros(row.ended_at),
        row.outcome,
        row.exit,
        None if row.error is None else _encode(row.error),
    )


def attempt_of(columns: Columns) -> AttemptRow:
    """Return an attempt from its columns."""
    *key, number, executor, worker, claimed_at, started_at, ended_at, outcome, exit_code, error = columns
    return AttemptRow(
        key=AttemptKey(*key),
        number=number,
        executor=executor,
        worker=worker,
        claimed_at=from_micros(claimed_at),
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        outcome=outcome,
        exit=exit_code,
        error=None if error is None else _decode_error(error),
    )


def output_of(columns: Columns) -> OutputRow:
    """Return an output from its columns."""
    run, task, element, value, _ = columns
    return OutputRow(key=TaskKey(run, task, element), value=value)


def columns_of_history(history: History) -> Columns:
    """Return the columns of what happened in one change, but for which it was."""
    return to_micros(history.at), history.actor, _encode(history.events).decode()


def events_of(columns: Columns) -> Iterator[EventRow]:
    """Yield what happened in one change, from its columns."""
    run, at, actor, events = columns
    return History(from_micros(at), actor, _decode_events(events)).rows(run)
