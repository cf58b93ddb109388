"""Waiting for a notification or a timeout, whichever comes first."""

import asyncio

from tidemill.kernel.clock import Clock

FOREVER = 10 * 365 * 86400.0
"""A timeout in seconds that never passes: no clock sleeps for an infinite time."""


class Wakeup:
    """An event to wait on, with a timeout. A notification before the wait is not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Wake the waiter, or the next one."""
        self._notified.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a waiter waits, and neither its timeout nor a notification has come."""
        return self._timer is not None and not self._timer.done() and not self._notified.is_set()

    async def wait(self, timeout: float) -> bool:
        """Return True when notified, False after `timeout` seconds."""
        if not self._notified.is_set():
            async with asyncio.TaskGroup() as group:
                self._timer = group.create_task(self._clock.sleep(timeout), name="wakeup: timeout")
                notification = group.create_task(self._notified.wait(), name="wakeup: notification")
                await asyncio.wait((self._timer, notification), return_when=asyncio.FIRST_COMPLETED)
                self._timer.cancel()
                notification.cancel()
        self._timer = None
        was_notified = self._notified.is_set()
        self._notified.clear()
        return was_notified
