"""How a try ends, and what becomes of its task run: succeeded, tried again, put off, or failed for good. Pure.

A try ends in one of a few ways, said by whoever ran it; `Lost` is said by somebody else, about a try that nobody will
ever report on. Two budgets are kept apart: failures of the author's code spend the retries that the author gave, lost
tries spend recoveries, so that a worker that dies does not cost a task its retries, and a task that kills its workers
does not go on for ever.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random

import msgspec
from msgspec.structs import replace

from tidemill.kernel.backoff import Retry
from tidemill.workflows.records import AttemptOutcome, FailureOutcome, TaskError, TaskRow
from tidemill.workflows.states import TaskState

PollFunction = Callable[[], bool | Awaitable[bool]]


class Succeeded(msgspec.Struct, frozen=True):
    """It returned a value that can be stored."""

    value: bytes
    variant: str | None = None
    size: int | None = None


class Skipped(msgspec.Struct, frozen=True):
    """It raised Skip."""

    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """It raised, ran out of time, or its process ended."""

    error: TaskError
    outcome: FailureOutcome = "failed"
    may_retry: bool = True
    """Whether another try could help, as far as the error tells: the author's filter, and no `Fail`."""
    exit: int | None = None


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    """It asked to be put off."""

    wake_at: datetime
    """When it is woken, or polled next."""
    delay: float | None = None
    """In how many seconds that is, if it asked for a time to pass: on another clock it is another moment."""
    ends_on_wake: bool = True
    """Whether the deferral is over when it is woken: not so if a poll must decide."""
    poll: PollFunction | None = None
    """What to ask until it says yes, if that can be asked without the task."""
    every: float = 0.0


class Lost(msgspec.Struct, frozen=True):
    """Nobody will report on it any more; why that is known."""

    reason: str
    expired_lease: datetime | None = None
    """The end of the lease that was not renewed, if that is why: a heartbeat after all refutes it."""


class Cancelled(msgspec.Struct, frozen=True):
    """It was ended from outside because its task run was cancelled, cleared, or given to somebody else."""

    reason: str = "cancelled"


class HandedBack(msgspec.Struct, frozen=True):
    """It was handed back in good order: before it began, or because its node is closing. It costs nothing."""

    reason: str


AttemptResult = Succeeded | Skipped | Failed | Deferred | Lost | Cancelled | HandedBack


class RetryBudgets(msgspec.Struct, frozen=True):
    """How often a task is tried again: after failures as its author said, after losses as the operator did."""

    retry: Retry | None = None
    max_recoveries: int = 3
    rng: Random | None = None


def apply_result(row: TaskRow, result: AttemptResult, now: datetime, budgets: RetryBudgets) -> TaskRow:
    """Return a queued or running task run as it is after a try of it has ended."""
    over = replace(row, claimed_by=None, lease_until=None, since=now, wake_at=None, reason="")
    match result:
        case Succeeded(variant=variant, size=size):
            return _terminal_row(over, TaskState.SUCCESS, now, variant=variant, size=size)
        case Skipped(reason):
            return _terminal_row(over, TaskState.SKIPPED, now, reason=reason)
        case Cancelled(reason):
            return _terminal_row(over, TaskState.CANCELLED, now, reason=reason)
        case Deferred():
            tries, deferrals = row.tries - 1, row.deferrals
            return replace(
                over,
                state=TaskState.DEFERRED,
                wake_at=result.wake_at,
                tries=tries,
                deferrals=deferrals + result.ends_on_wake,
            )
        case HandedBack(reason) if row.state is TaskState.QUEUED:
            return replace(over, state=TaskState.SCHEDULED, tries=row.tries - 1, reason=reason)
        case HandedBack(reason):
            return replace(over, state=TaskState.UP_FOR_RETRY, wake_at=now, reason=reason)
        case Failed():
            return _apply_failure(replace(over, failures=row.failures + 1), result, now, budgets)
        case Lost(reason=reason):
            return _apply_loss(replace(over, recoveries=row.recoveries + 1), reason, now, budgets)


def _apply_failure(row: TaskRow, result: Failed, now: datetime, budgets: RetryBudgets) -> TaskRow:
    retry, reason = budgets.retry, str(result.error)
    if retry is None or not result.may_retry or row.failures > retry.times:
        return _terminal_row(row, TaskState.FAILED, now, reason=reason)
    wait = timedelta(seconds=retry.delay_after(row.failures, budgets.rng))
    return replace(row, state=TaskState.UP_FOR_RETRY, wake_at=now + wait, reason=reason)


def _apply_loss(row: TaskRow, reason: str, now: datetime, budgets: RetryBudgets) -> TaskRow:
    if row.recoveries > budgets.max_recoveries:
        times = "once" if row.recoveries == 1 else f"{row.recoveries} times"
        return _terminal_row(row, TaskState.FAILED, now, reason=f"lost {times}: {reason}")
    return replace(row, state=TaskState.UP_FOR_RETRY, wake_at=now, reason=f"lost: {reason}")


def _terminal_row(
    row: TaskRow,
    state: TaskState,
    now: datetime,
    *,
    reason: str = "",
    variant: str | None = None,
    size: int | None = None,
) -> TaskRow:
    return replace(row, state=state, ended_at=now, reason=reason, variant=variant, size=size)


def outcome_word(result: AttemptResult) -> AttemptOutcome:
    """Return the word for an ending in the row of its attempt."""
    match result:
        case Succeeded():
            return "success"
        case Skipped():
            return "skipped"
        case Failed(outcome=outcome):
            return outcome
        case Deferred():
            return "deferred"
        case Lost():
            return "lost"
        case Cancelled():
            return "cancelled"
        case HandedBack():
            return "returned"
