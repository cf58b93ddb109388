"""Waiting for a notification or a timeout, whichever comes first."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

from tidemill.kernel.clock import Clock

FOREVER = 10 * 365 * 86400.0
"""A timeout in seconds that never passes: no clock sleeps for an infinite time."""


class Wakeup:
    """An event to wait on, with a timeout. A notification before the wait is not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified = asyncio.Event()
        self._timers: list[asyncio.Task[None]] = []

    def notify(self) -> None:
        """Wake the waiter, or the next one."""
        self._notified.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a waiter waits, and neither its timeout nor a notification has come."""
        is_asleep = bool(self._timers) and not any(timer.done() for timer in self._timers)
        return is_asleep and not self._notified.is_set()

    async def wait(self, timeout: float, until: datetime | None = None) -> bool:
        """Return True when notified, False after `timeout` seconds or when the wall clock shows `until`."""
        if not self._notified.is_set():
            sleeps: list[Coroutine[Any, Any, None]] = [self._clock.sleep(timeout)]
            if until is not None:
                sleeps.append(self._clock.sleep_until(until))
            async with asyncio.TaskGroup() as group:
                self._timers = [group.create_task(sleep, name="wakeup: timeout") for sleep in sleeps]
                notification = group.create_task(self._notified.wait(), name="wakeup: notification")
                await asyncio.wait((*self._timers, notification), return_when=asyncio.FIRST_COMPLETED)
                for task in (*self._timers, notification):
                    task.cancel()
        self._timers = []
        was_notified = self._notified.is_set()
        self._notified.clear()
        return was_notified
