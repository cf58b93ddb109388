"""When which run has to be planned again: retries and deferrals that come to their end."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.guarded_call import GuardedCall
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.clock import Clock
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import PollFunction
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.run_draft import TaskRef
from tidemill.workflows.states import TaskState


class RunTimers:
    """For each run, the first time at which something in it is to be woken.

    Whoever deals with a run whose time has come has it remembered again, for what is still to come.
    """

    def __init__(self, on_earlier_timer: Callable[[], None]) -> None:
        self._on_earlier_timer = on_earlier_timer
        self._next_by_run: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def schedule(self, run: str, rows: Iterable[TaskRow]) -> None:
        """Take note of when task runs of a run are to be woken."""
        times = [row.wake_at for row in rows if row.wake_at is not None and not row.state.is_terminal]
        first = min(times, default=None)
        if first is not None and (run not in self._next_by_run or first < self._next_by_run[run]):
            self._next_by_run[run] = first
            heappush(self._heap, (first, run))
            self._on_earlier_timer()

    def cancel(self, run: str) -> None:
        """Wake nothing more of a run."""
        self._next_by_run.pop(run, None)

    @property
    def next_time(self) -> datetime | None:
        """The first of these times."""
        while self._heap and self._next_by_run.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime) -> list[str]:
        """Return the runs whose time has come, once."""
        found = []
        while (first := self.next_time) is not None and first <= now:
            run = heappop(self._heap)[1]
            del self._next_by_run[run]
            found.append(run)
        return found


logger = logging.getLogger(__name__)


class _ActivePoll(NamedTuple):
    """A question, and how many seconds there are between two times it is asked."""

    call: GuardedCall
    interval: float


class DeferralPolls:
    """The questions that deferred task runs wait for."""

    def __init__(self, clock: Clock, tasks: TaskScope, on_fulfilled: Callable[[AttemptKey], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._on_fulfilled = on_fulfilled
        self._active: dict[str, dict[AttemptKey, _ActivePoll]] = {}
        """By run: which attempts wait for a question."""
        self.calls_in_flight = 0
        """How many questions are being answered at this moment."""

    def polled_tasks(self, run: str, rows: Mapping[TaskRef, TaskRow]) -> set[TaskRef]:
        """Return the task runs of a run that are woken by a question, not by the time; others' questions are dropped.

        A question belongs to the attempt that asked it: a task run that was cleared may sleep for another reason.
        """
        if run not in self._active:
            return set()
        asked = self._active[run]
        self._active[run] = {key: asked[key] for key in asked if _is_waiting(rows.get((key.task, key.element)), key)}
        return {(key.task, key.element) for key in self._active[run]}

    def intervals(self, run: str) -> dict[TaskRef, float]:
        """Return how many seconds there are between questions, for the task runs of a run that are woken by one."""
        return {(key.task, key.element): asked.interval for key, asked in self._active.get(run, {}).items()}

    def pending_seconds(self, run: str) -> dict[TaskRef, float]:
        """Return for how many seconds the task runs of a run have waited for an answer, if they were asked."""
        waits = {
            (key.task, key.element): asked.call.pending_seconds for key, asked in self._active.get(run, {}).items()
        }
        return {place: seconds for place, seconds in waits.items() if seconds is not None}

    def add(self, key: AttemptKey, poll: PollFunction, every: float) -> None:
        """Begin to ask a question for an attempt that was deferred."""
        asked = _ActivePoll(GuardedCall(f"the poll of {key}", poll, self._clock, self._tasks), every)
        self._active.setdefault(key.run, {})[key] = asked
        self._tasks.start(f"poll: {key}", self._poll_until_true(key, asked))

    def cancel(self, run: str) -> None:
        """Ask nothing more for a run."""
        self._active.pop(run, None)

    def close(self) -> None:
        """Ask nothing more at all."""
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
        except AUTHOR_ERRORS as error:  # author code: a question that fails is asked again
            if is_cancelled_here(error):
                raise
            logger.warning(events.POLL_FAILED, extra={"run": run, "error": repr(error)})
            return False
        finally:
            self.calls_in_flight -= 1


def _is_waiting(row: TaskRow | None, key: AttemptKey) -> bool:
    return row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt
