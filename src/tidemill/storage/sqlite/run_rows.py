"""Runs, task runs and attempts as SQLite stores them: times, columns, and the conversion of rows.

The columns of a table are the fields of its row, in their order. Statements name them as fragments, `{run_columns}`, so
that a new field of a run needs a migration and nothing else here. Only the functions that encode and decode a task run
spell its columns out: they run for every step of every task.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, get_args

import msgspec

from tidemill.storage.queries import check_timezone
from tidemill.storage.state_sets import CLAIMED_TASKS
from tidemill.workflows.change import Change
from tidemill.workflows.records import (
    MUTABLE_RUN_FIELDS,
    AttemptKey,
    AttemptRow,
    EventRow,
    FireRow,
    NumberedEvent,
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
"""The values of one row, in the order of a statement's columns."""

RUN_COLUMNS = RunRow.__struct_fields__
NEW_RUN_COLUMNS = tuple(name for name in RUN_COLUMNS if name not in ("revision", "clears", "sequence"))
"""All columns of a run but those that the store counts."""
PLACEMENT_COLUMNS = ("pool", "priority", "queue", "executor")
"""Where a task run runs: rarely changed."""
TASK_COLUMNS = ("run", *("element" if name == "index" else name for name in TaskRow.__struct_fields__))
"""All columns of a task run but the tenant, which is the run's."""
PROGRESS_COLUMNS = tuple(name for name in TASK_COLUMNS if name not in (*TaskKey._fields, *PLACEMENT_COLUMNS))
ATTEMPT_COLUMNS = (*AttemptKey._fields, *(name for name in AttemptRow.__struct_fields__ if name != "key"))


def _parameters(columns: Sequence[str]) -> str:
    return ", ".join("?" for _ in columns)


def _updates(columns: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in columns)


COLUMN_FRAGMENTS = {
    "run_columns": ", ".join(RUN_COLUMNS),
    "bare_run_columns": ", ".join("x'' AS params" if name == "params" else name for name in RUN_COLUMNS),
    "new_run_columns": ", ".join(NEW_RUN_COLUMNS),
    "new_run_parameters": _parameters(NEW_RUN_COLUMNS),
    "run_updates": _updates(MUTABLE_RUN_FIELDS),
    "task_columns": ", ".join(TASK_COLUMNS),
    "task_parameters": _parameters(TASK_COLUMNS),
    "task_updates": _updates((*PROGRESS_COLUMNS, *PLACEMENT_COLUMNS)),
    "progress_updates": _updates(PROGRESS_COLUMNS),
    "attempt_columns": ", ".join(ATTEMPT_COLUMNS),
    "attempt_parameters": _parameters(ATTEMPT_COLUMNS),
}
"""What statements may name in braces."""


def _time_fields(row: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(row) if datetime in (field.type, *get_args(field.type)))


_RUN_TIMES = _time_fields(RunRow)
_new_run_values = attrgetter(*NEW_RUN_COLUMNS)
_mutable_run_values = attrgetter(*MUTABLE_RUN_FIELDS)
_placement = attrgetter(*PLACEMENT_COLUMNS)

_encode_json = msgspec.json.Encoder().encode
_decode_error_json = msgspec.json.Decoder(TaskError).decode
_decode_events_json = msgspec.json.Decoder(list[RunEvent]).decode

# -- times

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CACHE_LIMIT = 64

_micros_cache: dict[int, tuple[datetime, int]] = {}
"""Times that were encoded lately: the rows of one change repeat the same few. The cache keeps them alive.

By identity, since two times may be equal and yet an hour apart: where a zone has an hour twice.
"""


def to_micros(time: datetime) -> int:
    """Return a time as microseconds since 1970 in UTC, so that none is rounded; ValueError for a naive time."""
    if (known := _micros_cache.get(id(time))) is not None:
        return known[1]
    try:
        number = (time - _EPOCH) // _MICROSECOND
    except TypeError:
        check_timezone(time)
        raise
    if len(_micros_cache) >= _CACHE_LIMIT:
        _micros_cache.clear()
    _micros_cache[id(time)] = time, number
    return number


def _times_to_micros(times: Iterable[datetime | None]) -> list[int | None]:
    """Return times as `to_micros` does, and None for None, in one call: this runs for every row of every change."""
    micros: list[int | None] = []
    for time in times:
        if time is None:
            micros.append(None)
        else:
            known = _micros_cache.get(id(time))
            micros.append(to_micros(time) if known is None else known[1])
    return micros


def to_micros_or_none(time: datetime | None) -> int | None:
    """Return a time as `to_micros` does; None for None."""
    return None if time is None else to_micros(time)


def from_micros_or_none(number: int | None) -> datetime | None:
    """Return a time as `from_micros` does; None for None."""
    return None if number is None else from_micros(number)


def from_micros(number: int) -> datetime:
    """Return the time in UTC that a number encodes; the end of the calendar for a damaged number."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        return (datetime.max if number > 0 else datetime.min).replace(tzinfo=UTC)


# -- runs


class _Positions(NamedTuple):
    """Where the columns that need encoding are among the columns of a statement."""

    times: tuple[int, ...]
    times_of: Callable[[Columns], tuple[datetime | None, ...]]
    state: int

    @classmethod
    def among(cls, names: Sequence[str]) -> "_Positions":
        times = tuple(names.index(name) for name in names if name in _RUN_TIMES)
        return cls(times, itemgetter(*times), names.index("state"))


_IN_RUN = _Positions.among(RUN_COLUMNS)
_IN_NEW_RUN = _Positions.among(NEW_RUN_COLUMNS)
_IN_RUN_UPDATE = _Positions.among(MUTABLE_RUN_FIELDS)


def encode_new_run(row: RunRow) -> Columns:
    """Return the columns of a new run."""
    return _encode_values(_new_run_values(row), _IN_NEW_RUN)


def encode_run_update(row: RunRow) -> Columns:
    """Return the columns of a run that a change may replace."""
    return _encode_values(_mutable_run_values(row), _IN_RUN_UPDATE)


def _encode_values(values: Columns, positions: _Positions) -> Columns:
    encoded = list(values)
    encoded[positions.state] = str(values[positions.state])  # sqlite3 would search an adapter for an enum
    times = _times_to_micros(positions.times_of(values))
    for position, micros in zip(positions.times, times, strict=True):
        encoded[position] = micros
    return tuple(encoded)


def decode_run(columns: Columns) -> RunRow:
    """Build a run from its columns."""
    values = list(columns)
    values[_IN_RUN.state] = RunState(values[_IN_RUN.state])
    for position in _IN_RUN.times:
        if (number := values[position]) is not None:
            values[position] = from_micros(number)
    return RunRow(**dict(zip(RUN_COLUMNS, values, strict=True)))


# -- task runs


def encode_task(row: TaskRow, lease_until: int) -> Columns:
    """Return the columns of a task run from its state on; with a lease, if it is queued or running."""
    return (*encode_progress(row, lease_until), row.pool, row.priority, row.queue, row.executor)


def encode_progress(row: TaskRow, lease_until: int) -> Columns:
    """Return the columns that say how far a task run is, not where it runs."""
    state = row.state
    times = _times_to_micros((row.wake_at, row.since, row.claimed_at, row.started_at, row.ended_at))
    wake_at, since, claimed_at, started_at, ended_at = times
    return (
        str(state),
        row.variant,
        row.size,
        wake_at,
        since,
        row.attempt,
        row.tries,
        row.failures,
        row.recoveries,
        row.deferrals,
        row.claimed_by,
        claimed_at,
        lease_until if state in CLAIMED_TASKS else None,
        started_at,
        ended_at,
        row.reason,
    )


def decode_keyed_task(columns: Columns) -> tuple[TaskKey, TaskRow]:
    """Build a task run and its key from its columns."""
    run, task, element, state, variant, size, wake_at, since, attempt, tries, failures, *rest = columns
    recoveries, deferrals, claimed_by, claimed_at, lease_until, started_at, ended_at, reason, *placement = rest
    pool, priority, queue, executor = placement
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


# -- attempts, outputs and events


def encode_attempt(row: AttemptRow) -> Columns:
    """Return the columns of an attempt."""
    claimed_at, started_at, ended_at = _times_to_micros((row.claimed_at, row.started_at, row.ended_at))
    return (
        *row.key,
        row.number,
        row.executor,
        row.worker,
        claimed_at,
        started_at,
        ended_at,
        row.outcome,
        row.exit,
        None if row.error is None else _encode_json(row.error),
    )


def decode_attempt(columns: Columns) -> AttemptRow:
    """Build an attempt from its columns."""
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
    """Build an output from its columns."""
    run, task, element, value, _ = columns
    return OutputRow(key=TaskKey(run, task, element), value=value)


def encode_history(history: RunEventBatch) -> Columns:
    """Return the columns of the events of one change, after run and revision; last, how many they are."""
    return to_micros(history.at), history.actor, _encode_json(history.events).decode(), len(history.events)


def decode_events(columns: Columns) -> Iterator[EventRow]:
    """Yield the events of one change from its columns."""
    run, at, actor, events = columns
    return RunEventBatch(from_micros(at), actor, _decode_events_json(events)).to_rows(run)


def decode_numbered_events(columns: Columns, after: int) -> Iterator[NumberedEvent]:
    """Yield the events of one change that have a higher number than `after`; the first column is that of the last."""
    last, tenant, workflow, *row = columns
    events = list(decode_events(tuple(row)))
    for number, event in enumerate(events, last - len(events) + 1):
        if number > after:
            yield NumberedEvent(number, tenant, workflow, event)


# -- changes


class EncodedChange(NamedTuple):
    """The rows of a change, each in the order of its statement's parameters."""

    new_run: Columns | None
    run_update: Columns | None
    removed: list[Columns]
    progress_updates: list[Columns]
    task_updates: list[Columns]
    added: list[Columns]
    attempts: list[Columns]
    history: Columns | None
    fire: Columns | None


def encode_change(change: Change, now: datetime) -> EncodedChange:
    """Encode everything that a change writes; ValueError if it holds a naive time. Leases begin at `now`."""
    run, new_run, update = change.run, change.new_run, change.updated_run
    lease_until = to_micros(now) + round(change.lease * 1_000_000)
    progress_updates: list[Columns] = []
    task_updates: list[Columns] = []
    for one in change.tasks:
        guard = _guard_columns(run, one.expected)
        if one.expired_lease is None and _placement(one.expected) == _placement(one.updated):
            progress_updates.append((*encode_progress(one.updated, lease_until), *guard))
        else:
            expired_lease = to_micros_or_none(one.expired_lease)
            task_updates.append((*encode_task(one.updated, lease_until), *guard, expired_lease))
    return EncodedChange(
        new_run=None if new_run is None else encode_new_run(new_run),
        run_update=None if update is None else (*encode_run_update(update), run),
        removed=[_guard_columns(run, row) for row in change.removed] if change.removed else [],
        progress_updates=progress_updates,
        task_updates=task_updates,
        added=[(run, row.task, row.index, *encode_task(row, lease_until)) for row in change.added]
        if change.added
        else [],
        attempts=[(*encode_attempt(row), change.outputs.get(row.key)) for row in change.attempts]
        if change.attempts
        else [],
        history=None if change.history is None else encode_history(change.history),
        fire=None if change.fire is None else _encode_fire(change.fire),
    )


def _guard_columns(run: str, expected: TaskRow) -> Columns:
    """Return the key and the guard of a task run: what must be unchanged for it to be written."""
    return (run, expected.task, expected.index, str(expected.state), expected.attempt, expected.claimed_by)


def _encode_fire(fire: FireRow) -> Columns:
    slot = to_micros_or_none(fire.slot)
    return (fire.tenant, fire.workflow, fire.key, fire.run, to_micros(fire.at), slot, fire.digest, fire.dedup)
