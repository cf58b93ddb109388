"""Clocks: the system's in production, a virtual one in tests.

Nothing else in Tidemill reads the time or sleeps, unless it needs real time: then a comment says why. A virtual clock
stands still until a test moves it; then it wakes its sleepers in the order of their due times, so a test of three hours
takes milliseconds and always runs the same way.

There are two times. Monotonic time counts seconds, and all waiting is counted in it. Wall time is what people read off
a clock: administrators and NTP step it, forwards and backwards. Schedules follow it, and stored times are in it, so
whatever acts because a stored time has passed, such as a reaper or a schedule, asks a `StepDetector` first.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Protocol

from tidemill.kernel.durations import Duration, parse_signed_duration

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)

STEP_TOLERANCE = 1.0
"""The seconds that wall and monotonic time may diverge between two checks, before that counts as a step."""

LONGEST_GRACE_PERIOD = 60.0
"""Seconds: what a closing node waits for is shorter."""

WALL_CHECK_INTERVAL = 30.0
"""The longest real sleep, in seconds, towards a wall time: a step of the wall clock wakes no sleeper."""


class Clock(Protocol):
    """The time as the engine reads it."""

    monotonic: Callable[[], float]
    """Returns seconds that never step back. An attribute, so that hot paths can keep the bare function."""

    def now(self) -> datetime:
        """Return the wall time as an aware datetime in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds, whatever happens to the wall clock."""

    async def sleep_until(self, time: datetime) -> None:
        """Return when the wall clock shows this time, even if it is stepped meanwhile."""


class SystemClock(Clock):
    """The machine's own clock."""

    now = staticmethod(partial(datetime.now, UTC))

    def __init__(self) -> None:
        self.monotonic = time.monotonic

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # real time: this is its only entry

    async def sleep_until(self, time: datetime) -> None:
        while (remaining := (time - self.now()).total_seconds()) > 0:
            await self.sleep(min(remaining, WALL_CHECK_INTERVAL))


_NO_STEP = timedelta()


class StepDetector:
    """Notices that the wall clock was stepped: then wall and monotonic time disagree about how much time has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now().timestamp() - clock.monotonic()

    def check(self) -> timedelta:
        """Return how far the wall clock was stepped since the last check; zero if it was not."""
        return self.check_at(self._clock.now())

    def check_at(self, now: datetime) -> timedelta:
        """Return the same as `check`, for a wall time that was just read."""
        before, self._offset = self._offset, now.timestamp() - self._clock.monotonic()
        step = self._offset - before
        return timedelta(seconds=step) if abs(step) > STEP_TOLERANCE else _NO_STEP


class StepAwareClock:
    """The wall time of a clock. Calls `on_step` before it returns a time after a step."""

    def __init__(self, clock: Clock, on_step: Callable[[timedelta], None]) -> None:
        self._clock = clock
        self._on_step = on_step
        self._steps = StepDetector(clock)

    def now(self) -> datetime:
        """Return the wall time as an aware datetime in UTC."""
        now = self._clock.now()
        if step := self._steps.check_at(now):
            self._on_step(step)
        return now


_Sleeper = tuple[float, int, "asyncio.Future[None]"]


class _Reading(float):
    """A reading of a virtual clock: the time may be the same as before, and this reading still came later."""

    __slots__ = ("order",)

    order: int


def order_of(reading: float) -> tuple[float, int]:
    """Return a sort key that orders readings even of a virtual clock that has not advanced between them."""
    return reading, getattr(reading, "order", 0)


class VirtualClock(Clock):
    """A clock that moves only when a test moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        start = start or DEFAULT_START
        if start.tzinfo is None:
            raise ValueError("a virtual clock starts at an aware datetime, e.g. datetime(2026, 1, 1, tzinfo=UTC)")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._sleepers: list[_Sleeper] = []
        """By monotonic due time."""
        self._wall_sleepers: list[_Sleeper] = []
        """By wall due time, in seconds after the start."""
        self._stepped = 0.0
        self._tie_breaker = count()
        self._readings = count()
        self._pending_wakeups = 0
        self._sleep_limit: float | None = None
        self.monotonic = self._read_monotonic

    def _read_monotonic(self) -> float:
        reading = _Reading(self._elapsed)
        reading.order = next(self._readings)
        return reading

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed + self._stepped)

    def step(self, duration: Duration) -> None:
        """Step the wall clock, as an administrator or NTP does: "2h" forwards, "-1h" backwards. Nothing else moves."""
        self._stepped += parse_signed_duration(duration)
        self._wake_due()

    @property
    def has_pending_wakeups(self) -> bool:
        """Whether a woken sleeper has not run yet."""
        return self._pending_wakeups > 0

    async def sleep(self, seconds: float) -> None:
        await self._sleep(self._sleepers, self._elapsed + seconds, seconds)

    async def sleep_until(self, time: datetime) -> None:
        due = (time - self._start).total_seconds()
        await self._sleep(self._wall_sleepers, due, due - self._elapsed - self._stepped)

    async def _sleep(self, sleepers: list[_Sleeper], due: float, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        if self._sleep_limit is not None and seconds <= LONGEST_GRACE_PERIOD:
            await asyncio.sleep(min(seconds, self._sleep_limit))  # real time: this clock no longer moves
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(sleepers, (due, next(self._tie_breaker), future))
        try:
            await future
        finally:
            if future.done() and not future.cancelled():
                self._pending_wakeups -= 1

    @contextmanager
    def sleeping_in_real_time(self, limit: float) -> Iterator[None]:
        """Let every sleep that begins inside last real time, at most `limit` seconds; the clock stands still.

        Longer sleeps than any grace period, such as the delay of a retry, last until they are cancelled.
        """
        self._sleep_limit = limit
        try:
            yield
        finally:
            self._sleep_limit = None

    def next_wakeup(self) -> float | None:
        """Return the due time of the next sleeper, in seconds of `monotonic`."""
        sleeper = self._next_sleeper()
        return None if sleeper is None else sleeper[0]

    def _next_sleeper(self) -> tuple[float, list[_Sleeper]] | None:
        """Return the monotonic due time of the next sleeper, and the heap that it is in."""
        found: list[tuple[float, int, list[_Sleeper]]] = []
        for sleepers, stepped in ((self._sleepers, 0.0), (self._wall_sleepers, self._stepped)):
            while sleepers and sleepers[0][2].done():
                heapq.heappop(sleepers)
            if sleepers:
                found.append((sleepers[0][0] - stepped, sleepers[0][1], sleepers))
        first = min(found, key=lambda one: one[:2], default=None)
        return None if first is None else (first[0], first[2])

    def advance_to(self, moment: float) -> None:
        """Move time forward to `moment` and wake every sleeper that is due by then."""
        self._elapsed = max(self._elapsed, moment)
        self._wake_due()

    def _wake_due(self) -> None:
        while (sleeper := self._next_sleeper()) is not None and sleeper[0] <= self._elapsed:
            _, _, future = heapq.heappop(sleeper[1])
            self._pending_wakeups += 1
            future.set_result(None)
