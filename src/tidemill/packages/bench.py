"""Room for so many at a time, for work that is short as a rule."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.engine.wakeups import Alarm
from tidemill.kernel.clock import Clock

MOMENT = 1.0
"""Seconds after which work counts no more: it hangs, or waits for something, and keeps nobody from working."""


class Bench:
    """A bench with so many places, given in the order in which they are asked for.

    What works for longer than a moment keeps its place and is no longer counted. So what hangs delays the others once,
    and only if there are as many of its kind as there are places.
    """

    def __init__(self, count: int, clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._taken: dict[object, float] = {}
        self._first_in_line = asyncio.Lock()
        self._alarm = Alarm(clock)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for a while."""
        async with self._first_in_line:  # nobody else has to look out for the next one
            while (seconds := self._until_one_counts_no_more()) > 0:
                await self._alarm.sleep(seconds)
            us = object()
            self._taken[us] = self._clock.monotonic()
        try:
            yield
        finally:
            del self._taken[us]
            self._alarm.ring()

    def _until_one_counts_no_more(self) -> float:
        """Return for how long all places are taken if nobody leaves; 0 if one is free."""
        now = self._clock.monotonic()
        left = [since + MOMENT - now for since in self._taken.values() if since + MOMENT > now]
        return min(left) if len(left) >= self._count else 0.0
