"""Tasks of a run as the API shows them: task runs, attempts, outputs and log lines."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from tidemill.engine.workflows.client.log_lines import LogLine
from tidemill.server.views.plain_values import to_plain
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptRow, TaskError, TaskRow
from tidemill.workflows.result import TaskResult
from tidemill.workflows.states import TaskState


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a run: one task run, or all elements of a mapped task together."""

    task: str
    index: int | None
    """The element of a mapped task."""
    state: TaskState
    attempts: int
    """The number of tries; of a mapped task, of the element that needed the most."""
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    """When it is retried, or its deferral ends."""
    reason: str
    error: TaskError | None
    elements: dict[TaskState, int] | None
    """The number of elements in each state; null unless this is a mapped task as a whole."""
    executor: str
    queue: str
    pool: str | None
    priority: int
    worker: str | None
    """The node that has claimed it."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a task run."""

    task: str
    index: int | None
    attempt: int
    try_number: int
    """The try that it belongs to: a deferral and the call after it are one try."""
    outcome: str | None
    """How it ended; null while it is active."""
    executor: str
    worker: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit: int | None
    """The exit code of its process; negative if a signal ended it."""
    error: TaskError | None


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """The return value of a task; of a mapped task, the list of the values of its successful elements."""

    task: str
    index: int | None
    output: Any


class WhyView(msgspec.Struct, frozen=True):
    """Why a task has not run, or how it ended."""

    reasons: list[str]


class WaitingView(msgspec.Struct, frozen=True):
    """Why the tasks of a run that have not ended have not."""

    reasons: dict[str, list[str]]
    """By task, one sentence each."""


class LogLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log of a task."""

    at: datetime
    level: str
    message: str
    fields: dict[str, Any]
    stream: str
    """Where it comes from: log, stdout or stderr."""
    attempt: int
    index: int | None


def to_task(rows: Sequence[TaskRow], result: TaskResult) -> TaskView:
    """Return a task from its task runs: one, or all elements of a mapped task."""
    first = rows[0]
    is_whole = len(rows) > 1 or (first.index != UNMAPPED and bool(result.mapped))
    return TaskView(
        task=first.task,
        index=None if is_whole else to_index(first.index),
        state=result.state,
        attempts=result.attempts,
        started_at=result.started_at,
        ended_at=result.ended_at,
        wake_at=min((row.wake_at for row in rows if row.wake_at is not None), default=None),
        reason=result.reason,
        error=result.error,
        elements=dict(Counter(row.state for row in rows)) if is_whole else None,
        executor=first.executor,
        queue=first.queue,
        pool=first.pool,
        priority=first.priority,
        worker=None if is_whole else first.claimed_by,
    )


def to_attempt(row: AttemptRow) -> AttemptView:
    """Return an attempt."""
    return AttemptView(
        task=row.key.task,
        index=to_index(row.key.element),
        attempt=row.key.attempt,
        try_number=row.number,
        outcome=row.outcome or None,
        executor=row.executor,
        worker=row.worker,
        claimed_at=row.claimed_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        exit=row.exit,
        error=row.error,
    )


def to_log_line(line: LogLine) -> LogLineView:
    """Return a line of a log."""
    record = line.record
    return LogLineView(
        at=record.at,
        level=record.level,
        message=record.message,
        fields=to_plain(record.fields),
        stream=record.stream,
        attempt=line.attempt,
        index=to_index(line.key.element),
    )


def to_index(element: int) -> int | None:
    """Return the number of an element; None for a task that is not mapped."""
    return None if element == UNMAPPED else element
