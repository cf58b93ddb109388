"""Waiting for news or for a time, whichever comes first."""

import asyncio

from tidemill.kernel.clock import Clock

FOREVER = 10 * 365 * 86400.0
"""Seconds, for whoever means for ever: no clock can sleep that long."""


class Wakeup:
    """Something to sleep on: it ends when rung, or after a time. Rung before anybody sleeps, it is not forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Wake whoever sleeps, or the next who would."""
        self._notified.set()

    @property
    def is_waiting(self) -> bool:
        """Whether somebody sleeps, and neither the time nor anybody is waking them."""
        return self._timer is not None and not self._timer.done() and not self._notified.is_set()

    async def wait(self, timeout: float) -> bool:
        """Return True when rung, False after so many seconds."""
        if not self._notified.is_set():
            async with asyncio.TaskGroup() as group:
                self._timer = group.create_task(self._clock.sleep(timeout), name="alarm: time")
                bell = group.create_task(self._notified.wait(), name="alarm: bell")
                await asyncio.wait((self._timer, bell), return_when=asyncio.FIRST_COMPLETED)
                self._timer.cancel()
                bell.cancel()
        self._timer = None
        was_rung = self._notified.is_set()
        self._notified.clear()
        return was_rung
