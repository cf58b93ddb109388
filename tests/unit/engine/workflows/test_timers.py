"""Timers: when which run has a retry or a deferral that is due, and polls that end a deferral."""

import asyncio

from tests.unit.engine.workflows.builders import START, later, task_row
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.leader.timers import DeferralPolls, RunTimers
from tidemill.kernel.clock import VirtualClock
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.states import TaskState

KEY = AttemptKey("r1", "work", UNMAPPED, 1)


def sleeping(seconds: float, state: TaskState = TaskState.UP_FOR_RETRY) -> TaskRow:
    """Return a task that is woken so many seconds after the start."""
    return task_row(state=state, wake_at=later(seconds))


class Wakeups:
    """Counts how often the scheduler is woken."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_the_first_wake_up_of_a_run_counts() -> None:
    """The scheduler sleeps until the earliest one, of retries and deferrals alike."""
    timers = RunTimers(Wakeups())
    timers.schedule("r1", [sleeping(9), sleeping(5, TaskState.DEFERRED)])
    timers.schedule("r2", [sleeping(7)])
    assert timers.next_time == later(5)
    assert timers.pop_due(later(7)) == ["r1", "r2"]
    assert timers.next_time is None


def test_a_run_is_due_once() -> None:
    """The coordinator schedules it again for its later wake-ups."""
    timers = RunTimers(Wakeups())
    timers.schedule("r1", [sleeping(1)])
    assert timers.pop_due(later(0.5)) == []
    assert timers.pop_due(later(1)) == ["r1"]
    assert timers.pop_due(later(2)) == []
    timers.schedule("r1", [sleeping(3)])
    assert timers.pop_due(later(3)) == ["r1"]


def test_an_earlier_timer_wakes_the_scheduler_and_a_later_one_does_not() -> None:
    """A timer that is set already is not set again."""
    wakeups = Wakeups()
    timers = RunTimers(wakeups)
    timers.schedule("r1", [sleeping(5)])
    timers.schedule("r1", [sleeping(5)])
    timers.schedule("r1", [sleeping(8)])
    assert (wakeups.count, timers.next_time) == (1, later(5))
    timers.schedule("r1", [sleeping(2)])
    assert (wakeups.count, timers.next_time) == (2, later(2))
    assert timers.pop_due(later(9)) == ["r1"]


def test_what_has_ended_or_has_no_time_is_not_woken() -> None:
    """Neither are the tasks of a run whose timer is cancelled."""
    timers = RunTimers(Wakeups())
    timers.schedule("r1", [sleeping(1, TaskState.CANCELLED), task_row()])
    assert timers.next_time is None
    timers.schedule("r2", [sleeping(1)])
    timers.cancel("r2")
    assert timers.next_time is None
    assert timers.pop_due(later(5)) == []


async def test_a_poll_that_succeeds_ends_its_deferral() -> None:
    """It is called at its interval until then, and an error counts as no."""
    clock, tasks, fulfilled = VirtualClock(START), TaskScope(), asyncio.Queue[AttemptKey]()
    await tasks.open()
    polls = DeferralPolls(clock, tasks, fulfilled.put_nowait)
    replies = iter([False, ValueError("not yet"), True])

    async def poll() -> bool:
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    deferred = {("work", UNMAPPED): task_row(state=TaskState.DEFERRED, attempt=1)}
    polls.add(KEY, poll, 10.0)
    assert polls.intervals("r1") == {("work", UNMAPPED): 10.0}
    assert polls.polled_tasks("r1", deferred) == {("work", UNMAPPED)}
    for _ in range(3):
        assert fulfilled.empty()
        await _pass(clock, 10.0)
    assert await asyncio.wait_for(fulfilled.get(), 5) == KEY
    assert polls.polled_tasks("r1", deferred) == set()
    await tasks.close()


async def test_a_poll_of_a_task_that_was_cleared_is_dropped() -> None:
    """A poll belongs to the attempt that set it."""
    clock, tasks = VirtualClock(START), TaskScope()
    await tasks.open()
    calls: list[int] = []
    polls = DeferralPolls(clock, tasks, lambda _: None)

    async def poll() -> bool:
        calls.append(1)
        return False

    polls.add(KEY, poll, 10.0)
    newer = {("work", UNMAPPED): task_row(state=TaskState.DEFERRED, attempt=2)}
    assert polls.polled_tasks("r1", newer) == set()
    await _pass(clock, 10.0)
    assert calls == []
    await tasks.close()


async def _pass(clock: VirtualClock, seconds: float) -> None:
    """Let time pass once all tasks sleep, and give them turns."""
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance_to(clock.monotonic() + seconds)
    for _ in range(10):
        await asyncio.sleep(0)
