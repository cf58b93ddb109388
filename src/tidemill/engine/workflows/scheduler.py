"""The loop of whoever is in office: plan, reap runs, reap tasks. It never dies, and it is on time.

Every tick reads from the store which runs are active and makes the desk agree with it, so that nothing depends on any
message having arrived. Between ticks the loop sleeps to the next instant at which something is due, a slot, a retry,
the end of a deferral, or until somebody rings. A phase that fails is counted and said, and the next one has its turn.
No phase waits for an executor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from tidemill.engine.wakeup import FOREVER, Wakeup
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.reapers import RunReaper, TaskReaper
from tidemill.engine.workflows.leader.retention import Retention
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.starts.schedules import ScheduleRunner
from tidemill.engine.workflows.starts.triggers import TriggerPollers
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PHASE_TIMEOUT = 5.0  # seconds that a phase may take
IDLE_TICK_INTERVAL_LIMIT = (
    300.0  # seconds between ticks at most, where nobody else can change anything and nothing runs
)


class Scheduler:
    """The loop of one term."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        coordinator: RunCoordinator,
        attempts: LocalAttempts,
        schedules: ScheduleRunner,
        pollers: TriggerPollers,
        wakeup: Wakeup,
    ) -> None:
        self._store = runtime.store
        self._versions = versions
        self._coordinator = coordinator
        self._attempts = attempts
        self._schedules = schedules
        self._pollers = pollers
        self._run_reaper = RunReaper(runtime, coordinator)
        self._task_reaper = TaskReaper(runtime, coordinator, attempts)
        self._retention = Retention(runtime)
        self._wakeup = wakeup
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._is_single_node = runtime.is_single_node
        self._interval = self._settings.tick_interval
        self._next_tick = self._clock.monotonic()
        self._has_remote_changes = False
        self._is_fully_loaded = False
        """Whether the board is known to hold everything that is active."""
        self._has_failed = False
        self._failures = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the loop sleeps, and nobody is waking it."""
        return self._wakeup.is_waiting

    @property
    def is_polling(self) -> bool:
        """Whether some trigger, or what some deferral waits for, is being asked."""
        return self._pollers.calls_in_flight > 0 or self._coordinator.deferral_polls.calls_in_flight > 0

    def on_remote_change(self) -> None:
        """Take note that somebody else changed something: what the desk has in mind may be out of date."""
        self._has_remote_changes = True
        self._wakeup.notify()

    def wake(self) -> None:
        """Come back to the rhythm of ticks after a quiet time."""
        soon = self._clock.monotonic() + self._settings.tick_interval
        if self._next_tick > soon:
            self._next_tick, self._interval = soon, self._settings.tick_interval
            self._wakeup.notify()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._has_failed = False
            if self._clock.monotonic() >= self._next_tick:
                await self.tick()
            elif self._has_remote_changes:
                self._has_remote_changes = False
                await self._run_phase("plan", self._plan)
            else:
                await self._run_phase("due", self._run_due)
            self._failures = self._failures + 1 if self._has_failed else 0
            if await self._wakeup.wait(self._seconds_until_next()):
                self._interval = self._settings.tick_interval

    async def tick(self) -> None:
        """Do one full pass."""
        began = self._clock.monotonic()
        self._metrics.set_gauge("scheduler_tick_lag_seconds", began - self._next_tick)
        await self._run_phase("plan", self._plan)
        await self._run_phase("reap runs", self._run_reaper.reap)
        await self._run_phase("reap tasks", self._task_reaper.reap)
        await self._run_phase("retention", self._retention.prune)
        self._metrics.increment("scheduler_ticks_total")
        self._metrics.set_gauge("scheduler_tick_seconds", self._clock.monotonic() - began)
        self._set_next_tick(began)

    def _set_next_tick(self, began: float) -> None:
        """Keep to the rhythm; ticks that were missed are not made up for."""
        is_busy = (
            self._coordinator.runs_in_progress or self._attempts.claimed or self._attempts.running()
        )  # also code that was given up: it ends
        is_quiet = self._is_single_node and not is_busy and self._retention.next_at > began
        base = self._settings.tick_interval
        self._interval = min(self._interval * 2, max(IDLE_TICK_INTERVAL_LIMIT, base)) if is_quiet else base
        due = self._next_tick + self._interval
        self._next_tick = due if due > began else began + self._interval
        if (
            is_quiet and self._is_fully_loaded and not self._coordinator.active_runs
        ):  # only to delete: who brings anything else stirs
            self._next_tick = max(self._next_tick, self._retention.next_at_if_idle)

    async def _run_phase(self, phase: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PHASE_TIMEOUT):  # real time: it is the store that is waited for
                await work()
        except (StoreError, TimeoutError) as error:
            self._has_failed = True
            self._metrics.increment("scheduler_phase_errors_total", phase=phase)
            said = str(error) or f"it took longer than {PHASE_TIMEOUT:g} s"
            logger.warning(events.SCHEDULER_PHASE_FAILED, extra={"phase": phase, "error": said})
            self._task_reaper.reset_grace()
        except Exception:  # whatever is wrong with a phase, the loop goes on
            self._has_failed = True
            self._metrics.increment("scheduler_phase_errors_total", phase=phase)
            logger.exception(events.SCHEDULER_PHASE_FAILED, extra={"phase": phase})

    async def _plan(self) -> None:
        self._is_fully_loaded = False
        self._coordinator.slots.apply_pauses(await self._store.schedules.list_paused_workflows())
        old = self._versions.superseded()
        if await self._coordinator.refresh():
            self._versions.discard(old - {active.version for active in self._coordinator.active_runs.values()})
        else:
            self.on_remote_change()  # there is more to be read
        self._metrics.set_gauge("runs_active", len(self._coordinator.active_runs))
        self._coordinator.slots.executor_slots.unpark()
        self._is_fully_loaded = True
        if self._coordinator.active_runs:
            self.wake()
        await self._run_due()

    async def _run_due(self) -> None:
        self._coordinator.wake_due()  # first: it asks nothing of the store
        self._coordinator.slots.assign()
        await self._schedules.sync()
        await self._pollers.sync()
        await self._schedules.fire_due()

    def _seconds_until_next(self) -> float:
        until_tick = self._next_tick - self._clock.monotonic()
        now = self._clock.now()
        times = [time for time in (self._coordinator.timers.next_time, self._schedules.next_time) if time is not None]
        least = STORE_RETRY.delay(self._failures) if self._failures else 0.0  # what is due stays due while that is away
        return min(max(least, min([until_tick, *(_seconds_between(time, now) for time in times)])), FOREVER)


def _seconds_between(time: datetime, now: datetime) -> float:
    return (time - now).total_seconds()
