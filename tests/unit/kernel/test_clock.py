"""Clocks: the system's, and a virtual one that moves only when a test moves it."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.clock import StepDetector, SystemClock, VirtualClock


async def run_loop_turns(count: int = 3) -> None:
    """Let every woken task run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_virtual_clock_stands_still() -> None:
    """Time moves only by `advance_to`."""
    clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
    assert clock.now() == clock.now() == datetime(2026, 3, 1, tzinfo=UTC)
    clock.advance_to(90.0)
    assert clock.now() == datetime(2026, 3, 1, 0, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 90.0


def test_a_virtual_clock_never_steps_back() -> None:
    """Moving to the past changes nothing."""
    clock = VirtualClock()
    clock.advance_to(10.0)
    clock.advance_to(5.0)
    assert clock.monotonic() == 10.0


def test_now_is_aware_and_in_utc() -> None:
    """`clock.now()` is aware."""
    start = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert VirtualClock(start).now() == start
    for clock in (VirtualClock(start), SystemClock()):
        assert clock.now().utcoffset() == timedelta(0)


def test_a_naive_start_is_rejected() -> None:
    """A start without a time zone is ambiguous."""
    with pytest.raises(ValueError, match="aware"):
        VirtualClock(datetime(2026, 1, 1))


async def test_sleepers_wake_in_the_order_they_are_due() -> None:
    """Ordered by due time, then by arrival."""
    clock = VirtualClock()
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("late", 3.0), ("early", 1.0), ("early too", 1.0), ("never mind", 0.0)]:
            group.create_task(sleep(name, seconds))
        await run_loop_turns()
        assert (woken, clock.next_wakeup()) == (["never mind"], 1.0)
        clock.advance_to(2.0)
        await run_loop_turns()
        assert (woken, clock.next_wakeup()) == (["never mind", "early", "early too"], 3.0)
        clock.advance_to(3.0)
    assert woken == ["never mind", "early", "early too", "late"]
    assert clock.next_wakeup() is None


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    """It is not due any more."""
    clock = VirtualClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(5.0))
        await run_loop_turns()
        task.cancel()
    assert clock.next_wakeup() is None
    clock.advance_to(10.0)
    assert not clock.has_pending_wakeups


async def test_a_clock_reports_woken_sleepers_that_have_not_run() -> None:
    """Between the move of the clock and the sleeper's turn."""
    clock = VirtualClock()
    async with asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(1.0))
        await run_loop_turns()
        assert not clock.has_pending_wakeups
        clock.advance_to(1.0)
        assert clock.has_pending_wakeups
    assert not clock.has_pending_wakeups


async def test_cancelled_while_waking_counts_as_awake() -> None:
    """A sleeper that is cancelled between its due time and its turn leaves the clock settled."""
    clock = VirtualClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(1.0))
        await run_loop_turns()
        clock.advance_to(1.0)
        task.cancel()
    assert not clock.has_pending_wakeups


async def test_the_system_clock_moves_by_itself() -> None:
    """Sleeping takes time, and monotonic never steps back."""
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > before


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20))
def test_every_sleeper_wakes_exactly_when_due(delays: list[float]) -> None:
    """However many sleep, each wakes at its own time."""

    async def run() -> None:
        clock = VirtualClock()
        woken: list[tuple[float, float]] = []

        async def sleep(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((seconds, clock.monotonic()))

        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(sleep(delay))
            await run_loop_turns()
            while (due := clock.next_wakeup()) is not None:
                clock.advance_to(due)
                await run_loop_turns()
        assert woken == [(delay, delay) for delay in sorted(delays)]

    asyncio.run(run())


def test_a_step_moves_the_wall_clock_only() -> None:
    """As an administrator or NTP does."""
    clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock.advance_to(60.0)
    clock.step("2h")
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, 2, 1, tzinfo=UTC), 60.0)
    clock.step("-1h")
    clock.step(timedelta(minutes=-1))
    clock.advance_to(120.0)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, 1, 1, tzinfo=UTC), 120.0)
    for wrong in ("--1h", "soon", float("nan")):
        with pytest.raises(ValueError, match="is not a duration"):
            clock.step(wrong)


async def test_a_step_wakes_those_who_wait_for_a_wall_time_and_no_others() -> None:
    """Seconds are counted, times are shown."""
    clock, woken = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC)), list[str]()

    async def wait(name: str, until: datetime | None = None) -> None:
        await (clock.sleep(3600.0) if until is None else clock.sleep_until(until))
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait("seconds"))
        group.create_task(wait("time", datetime(2026, 3, 1, 1, tzinfo=UTC)))
        group.create_task(wait("past", datetime(2026, 2, 1, tzinfo=UTC)))
        await run_loop_turns()
        assert woken == ["past"]
        clock.step("-30m")
        clock.advance_to(3599.0)
        await run_loop_turns()
        assert (woken, clock.next_wakeup()) == (["past"], 3600.0)
        clock.step("40m")
        await run_loop_turns()
        assert woken == ["past", "time"]
        clock.advance_to(3600.0)
        await run_loop_turns()
        assert woken == ["past", "time", "seconds"]


async def test_the_system_clock_sleeps_until_a_wall_time() -> None:
    clock = SystemClock()
    due = clock.now() + timedelta(milliseconds=20)
    await clock.sleep_until(due)
    assert clock.now() >= due


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=20))
def test_a_step_is_noticed_once_whatever_time_passes(moves: list[tuple[float, float]]) -> None:
    """Between two checks any time may pass; only the difference of the two clocks counts."""
    clock = VirtualClock()
    detector, elapsed = StepDetector(clock), 0.0
    for seconds, step in moves:
        elapsed += seconds
        clock.advance_to(elapsed)
        clock.step(step)
        expected = step if abs(step) > 1.0 else 0.0
        if abs(abs(step) - 1.0) > 0.001:
            assert detector.check().total_seconds() == pytest.approx(expected, abs=0.001)
            assert not detector.check()
        else:
            detector.check()
