"""Clocks: the system's in production, a virtual one in tests.

Nothing else in Tidemill reads the time or sleeps, unless it needs real time: then a comment says why. A virtual clock
stands still until a test moves it; then it wakes its sleepers in the order of their due times, so a test of three hours
takes milliseconds and always runs the same way.
"""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Protocol

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """The time as the engine reads it."""

    monotonic: Callable[[], float]
    """Returns seconds that never step back. An attribute, so that hot paths can keep the bare function."""

    def now(self) -> datetime:
        """Return the wall time as an aware datetime in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""


class SystemClock(Clock):
    """The machine's own clock."""

    def __init__(self) -> None:
        self.monotonic = time.monotonic

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # real time: this is its only entry


class VirtualClock(Clock):
    """A clock that moves only when a test moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        start = start or DEFAULT_START
        if start.tzinfo is None:
            raise ValueError("a virtual clock starts at an aware datetime, e.g. datetime(2026, 1, 1, tzinfo=UTC)")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._tie_breaker = count()
        self._pending_wakeups = 0
        self._sleep_limit: float | None = None
        self.monotonic = self._read_monotonic

    def _read_monotonic(self) -> float:
        return self._elapsed

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    @property
    def has_pending_wakeups(self) -> bool:
        """Whether a woken sleeper has not run yet."""
        return self._pending_wakeups > 0

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        if self._sleep_limit is not None:
            await asyncio.sleep(min(seconds, self._sleep_limit))  # real time: this clock is not moved any more
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._tie_breaker), future))
        try:
            await future
        finally:
            if future.done() and not future.cancelled():
                self._pending_wakeups -= 1

    @contextmanager
    def sleeping_in_real_time(self, limit: float) -> Iterator[None]:
        """Let every sleep that begins inside last real time, at most `limit` seconds; the clock stands still."""
        self._sleep_limit = limit
        try:
            yield
        finally:
            self._sleep_limit = None

    def next_wakeup(self) -> float | None:
        """Return the due time of the next sleeper, in seconds of `monotonic`."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def advance_to(self, moment: float) -> None:
        """Move time forward to `moment` and wake every sleeper that is due by then."""
        self._elapsed = max(self._elapsed, moment)
        while (due := self.next_wakeup()) is not None and due <= self._elapsed:
            _, _, future = heapq.heappop(self._sleepers)
            self._pending_wakeups += 1
            future.set_result(None)
