"""The timing of the scheduler: a full pass every tick, fewer on an idle node, and wake-ups in between."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemill.engine.tasks import FOREVER, Wakeup
from tidemill.engine.workflows.runtime import WorkflowRuntime

IDLE_TICK_INTERVAL_LIMIT = 300.0
"""The longest interval between ticks in seconds, on an idle node whose store no other process can change."""


class TickTimer:
    """Decides when the scheduler runs next, and wakes it."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._clock = runtime.clock
        self._base_interval = runtime.settings.tick_interval
        self._wakeup = Wakeup(runtime.clock)
        self.reset()

    def reset(self) -> None:
        """Make the next tick due now: a new term begins."""
        self.is_slow = False
        """Whether the next tick is further away than the tick interval."""
        self.interval = self._base_interval
        self.next_tick = self._clock.monotonic()
        self._has_remote_changes = False

    @property
    def is_waiting(self) -> bool:
        """Whether the scheduler sleeps and no wake-up is pending."""
        return self._wakeup.is_waiting

    @property
    def is_due(self) -> bool:
        """Whether it is time for a tick."""
        return self._clock.monotonic() >= self.next_tick

    def notify(self) -> None:
        """Wake the scheduler."""
        self._wakeup.notify()

    def on_remote_change(self) -> None:
        """Wake the scheduler to refresh the active runs: another process changed the store."""
        self._has_remote_changes = True
        self._wakeup.notify()

    def take_remote_change(self) -> bool:
        """Return whether another process changed the store since the last call."""
        has_changes, self._has_remote_changes = self._has_remote_changes, False
        return has_changes

    def speed_up(self) -> None:
        """Return to the regular tick interval after an idle time."""
        soon = self._clock.monotonic() + self._base_interval
        if self.next_tick > soon:
            self.next_tick, self.interval, self.is_slow = soon, self._base_interval, False
            self._wakeup.notify()

    def schedule_next(self, began: float, *, is_idle: bool, not_before: float | None) -> None:
        """Set the next tick after one that `began`; missed ticks are skipped.

        The interval doubles while the node `is_idle`, and the tick waits until `not_before`, if that is given.
        """
        limit = max(IDLE_TICK_INTERVAL_LIMIT, self._base_interval)
        self.interval = min(self.interval * 2, limit) if is_idle else self._base_interval
        due = self.next_tick + self.interval
        self.next_tick = due if due > began else began + self.interval
        if not_before is not None:
            self.next_tick = max(self.next_tick, not_before)
        self.is_slow = self.next_tick > began + self._base_interval

    async def wait(self, due_times: Iterable[datetime | None], at_least: float) -> None:
        """Sleep until the next tick, the first of some due times or a wake-up, but `at_least` some seconds.

        A due time has come when the seconds until then have passed, or when the wall clock shows it: the clock may be
        stepped during the sleep, and some times count seconds while others follow the clock.
        """
        now = self._clock.now()
        first = min((time for time in due_times if time is not None), default=None)
        delay = self.next_tick - self._clock.monotonic()
        if first is not None:
            first = max(first, now + timedelta(seconds=at_least))
            delay = min(delay, (first - now).total_seconds())
        if await self._wakeup.wait(min(max(at_least, delay), FOREVER), first):
            self.interval = self._base_interval
