"""The results of an attempt, and their effect on its task run: success, retry, deferral or final failure. Pure.

The worker that ran an attempt reports its result. Only `Lost` comes from another component, about an attempt that will
never be reported. There are two budgets: failures of the author's code use up the author's retries, lost attempts use
up recoveries. So a worker that dies does not cost a task its retries, and a task that kills its workers does not run
forever.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from tidemill.kernel.backoff import Retry
from tidemill.workflows.records import (
    DEFERRED_UNTIL_TIME,
    WAITING_FOR_ANSWER,
    AttemptOutcome,
    FailureOutcome,
    LossOutcome,
    TaskError,
    TaskRow,
)
from tidemill.workflows.states import TaskState
from tidemill.workflows.waits import WaitRequest

PollFunction = Callable[[], bool | Awaitable[bool]]


class Succeeded(msgspec.Struct, frozen=True):
    """The task returned a value that can be stored."""

    outcome: ClassVar[AttemptOutcome] = "success"
    value: bytes
    variant: str | None = None
    size: int | None = None


class Skipped(msgspec.Struct, frozen=True):
    """The task raised Skip."""

    outcome: ClassVar[AttemptOutcome] = "skipped"
    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The task raised or timed out, or its process ended."""

    error: TaskError
    outcome: FailureOutcome = "failed"
    may_retry: bool = True
    """Whether a retry could help: False after `Fail`, or if the author's filter rejects the error."""
    exit: int | None = None


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    """The task deferred itself."""

    outcome: ClassVar[AttemptOutcome] = "deferred"
    wake_at: datetime | None
    """When it is woken, or polled next; None if only an answer wakes it."""
    delay: float | None = None
    """The seconds until then, if the task named a duration: another clock computes another moment from it."""
    ends_on_wake: bool = True
    """Whether waking ends the deferral; False if a poll decides."""
    poll: PollFunction | None = None
    """The function to call until it returns true, if it can be called without the task."""
    every: float = 0.0
    waits: tuple[WaitRequest, ...] = ()
    """What the task asks; the first of them that ends wakes it."""
    ended_waits: int = 0
    """The number of ended waits that the task knows."""

    def wakes_at(self, now: datetime) -> datetime | None:
        """Return when the task is woken at the latest."""
        if not self.waits:
            return self.wake_at
        times = (
            one.expires_at if one.is_open or one.timeout is None else now + timedelta(seconds=one.timeout)
            for one in self.waits
        )
        return min((one for one in times if one is not None), default=None)


class Lost(msgspec.Struct, frozen=True):
    """The attempt will never be reported; `reason` says how that is known."""

    reason: str
    expired_lease: datetime | None = None
    """The end of the lease that expired, if that is the reason: a late heartbeat disproves it."""
    outcome: LossOutcome = "lost"


class Cancelled(msgspec.Struct, frozen=True):
    """The attempt was stopped because its task run was cancelled, cleared, or claimed by another worker."""

    outcome: ClassVar[AttemptOutcome] = "cancelled"
    reason: str = "cancelled"


class HandedBack(msgspec.Struct, frozen=True):
    """The worker handed the attempt back: before it began, or because the node is closing. Uses up no budget."""

    outcome: ClassVar[AttemptOutcome] = "returned"
    reason: str


AttemptResult = Succeeded | Skipped | Failed | Deferred | Lost | Cancelled | HandedBack
"""Each has an `outcome`: the word that attempt rows store."""


class RetryBudgets(msgspec.Struct, frozen=True):
    """The retry budgets of a task: the author's after failures, the operator's after losses."""

    retry: Retry | None = None
    max_recoveries: int = 3
    rng: Random | None = None


def apply_result(row: TaskRow, result: AttemptResult, now: datetime, budgets: RetryBudgets) -> TaskRow:
    """Return a queued or running task run with the result of its attempt applied."""
    released = replace(row, claimed_by=None, lease_until=None, since=now, wake_at=None, reason="")
    match result:
        case Succeeded(variant=variant, size=size):
            return _terminal_row(released, TaskState.SUCCESS, now, variant=variant, size=size)
        case Skipped(reason):
            return _terminal_row(released, TaskState.SKIPPED, now, reason=reason)
        case Cancelled(reason):
            return _terminal_row(released, TaskState.CANCELLED, now, reason=reason)
        case Deferred():
            tries, deferrals = row.tries - 1, row.deferrals
            return replace(
                released,
                state=TaskState.DEFERRED,
                wake_at=result.wakes_at(now),
                tries=tries,
                deferrals=deferrals + result.ends_on_wake,
                reason=WAITING_FOR_ANSWER if result.waits else DEFERRED_UNTIL_TIME if result.delay is None else "",
            )
        case HandedBack(reason) if row.state is TaskState.QUEUED:
            return replace(released, state=TaskState.SCHEDULED, tries=row.tries - 1, reason=reason)
        case HandedBack(reason):
            return replace(released, state=TaskState.UP_FOR_RETRY, wake_at=now, reason=reason)
        case Failed():
            return _apply_failure(replace(released, failures=row.failures + 1), result, now, budgets)
        case Lost(reason=reason):
            return _apply_loss(replace(released, recoveries=row.recoveries + 1), reason, now, budgets)


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
