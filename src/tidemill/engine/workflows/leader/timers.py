"""Timers of the leader: retries and deferrals that end at a time, and deferrals that end when a poll succeeds.

Retries and deferrals wait for some seconds, and are stored as wall times. Once the wall clock has been stepped by
an hour, a stored time is an hour off. The leader has counted the seconds meanwhile, so it moves the times of all that
waits by the length of the step, in memory immediately and in the store with the next change of each run. Deferrals that
name a time of the wall clock, and schedules, follow the clock.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidemill.engine.guarded_call import GuardedCall
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.leader.active_runs import ActiveRun, DraftEdit
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.clock import Clock
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import PollFunction
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.states import TaskState


class RunTimers:
    """The next wake-up time of each run.

    A run is removed when it is due; the caller schedules it again if it has later wake-ups.
    """

    def __init__(self, on_earlier_timer: Callable[[], None]) -> None:
        self._on_earlier_timer = on_earlier_timer
        self._next_by_run: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def schedule(self, run: str, rows: Iterable[TaskRow], after: datetime | None = None) -> None:
        """Set the timer of a run to the first wake-up of its tasks `after` a time, unless an earlier one is set."""
        times = [row.wake_at for row in rows if row.wake_at is not None and not row.state.is_terminal]
        first = min((one for one in times if after is None or one > after), default=None)
        if first is not None and (run not in self._next_by_run or first < self._next_by_run[run]):
            self._next_by_run[run] = first
            heappush(self._heap, (first, run))
            self._on_earlier_timer()

    def __len__(self) -> int:
        """Return how many timers are held, outdated ones included."""
        return len(self._heap)

    def cancel(self, run: str) -> None:
        """Remove the timer of a run."""
        self._next_by_run.pop(run, None)

    @property
    def next_time(self) -> datetime | None:
        """The first wake-up time of all runs."""
        while self._heap and self._next_by_run.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime) -> list[str]:
        """Remove and return the runs that are due."""
        due = []
        while (first := self.next_time) is not None and first <= now:
            run = heappop(self._heap)[1]
            del self._next_by_run[run]
            due.append(run)
        return due


logger = logging.getLogger(__name__)


class _ActivePoll(NamedTuple):
    """A poll, and the seconds between two calls of it."""

    call: GuardedCall
    interval: float


class DeferralPolls:
    """Calls the poll functions of deferred tasks, and ends a deferral when its poll returns true."""

    def __init__(self, clock: Clock, tasks: TaskScope, on_fulfilled: Callable[[AttemptKey], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._on_fulfilled = on_fulfilled
        self._active: dict[str, dict[AttemptKey, _ActivePoll]] = {}
        """By run: the polls of its deferred attempts."""
        self.calls_in_flight = 0
        """The number of polls that are being called."""

    def polled_tasks(self, run: str, rows: Mapping[TaskRef, TaskRow]) -> set[TaskRef]:
        """Return the tasks of a run that a poll wakes, not the time; drop the polls of all other tasks.

        A poll belongs to the attempt that set it: a task that was cleared may be deferred for another reason.
        """
        if run not in self._active:
            return set()
        polls = self._active[run]
        self._active[run] = {key: polls[key] for key in polls if _is_waiting(rows.get((key.task, key.element)), key)}
        return {(key.task, key.element) for key in self._active[run]}

    def intervals(self, run: str) -> dict[TaskRef, float]:
        """Return the seconds between two calls of each poll of a run, by task."""
        return {(key.task, key.element): poll.interval for key, poll in self._active.get(run, {}).items()}

    def pending_seconds(self, run: str) -> dict[TaskRef, float]:
        """Return for how many seconds the polls of a run that are being called have not returned, by task."""
        polls = {(key.task, key.element): poll.call for key, poll in self._active.get(run, {}).items()}
        return {ref: seconds for ref, call in polls.items() if (seconds := call.pending_seconds) is not None}

    def add(self, key: AttemptKey, poll: PollFunction, every: float) -> None:
        """Call the poll of a deferred attempt from now on."""
        active = _ActivePoll(GuardedCall(f"the poll of {key}", poll, self._clock, self._tasks), every)
        self._active.setdefault(key.run, {})[key] = active
        self._tasks.start(f"poll: {key}", self._poll_until_true(key, active))

    def cancel(self, run: str) -> None:
        """Stop the polls of a run."""
        self._active.pop(run, None)

    def close(self) -> None:
        """Stop all polls."""
        self._active.clear()

    async def _poll_until_true(self, key: AttemptKey, poll: _ActivePoll) -> None:
        while True:
            await self._clock.sleep(poll.interval)
            if self._active.get(key.run, {}).get(key) is not poll:
                return
            if await self._call_once(poll.call, key.run):
                self._active.get(key.run, {}).pop(key, None)
                self._on_fulfilled(key)
                return

    async def _call_once(self, call: GuardedCall, run: str) -> bool:
        self.calls_in_flight += 1
        try:
            return bool(await call.call())
        except AUTHOR_ERRORS as error:  # author code: a poll that fails is called again
            if is_cancelled_here(error):
                raise
            logger.warning(events.POLL_FAILED, extra={"run": run, "error": repr(error)})
            return False
        finally:
            self.calls_in_flight -= 1


def _is_waiting(row: TaskRow | None, key: AttemptKey) -> bool:
    return row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt


def move_timers(
    active_runs: Mapping[str, ActiveRun],
    timers: RunTimers,
    request: Callable[[str, DraftEdit], Any],
    step: timedelta,
) -> None:
    """Let everything that waits for seconds to pass wait as long as if the wall clock had not been stepped."""
    logger.warning(events.CLOCK_STEPPED, extra={"seconds": step.total_seconds()})
    for run, active in list(active_runs.items()):
        if times := _move_wake_times(active, step):
            timers.cancel(run)
            timers.schedule(run, active.rows.values())
            request(run, partial(RunDraft.set_wake_times, times=times, step=step))


def _move_wake_times(active: ActiveRun, step: timedelta) -> dict[AttemptKey, datetime]:
    """Move the wake times of a cached run; return the new ones."""
    moved: dict[AttemptKey, datetime] = {}
    for ref, row in list(active.rows.items()):
        if row.is_counting_down and row.wake_at is not None:
            moved[AttemptKey(active.run.id, *ref, row.attempt)] = row.wake_at + step
            active.rows = active.rows | {ref: replace(row, wake_at=row.wake_at + step)}
    return moved
