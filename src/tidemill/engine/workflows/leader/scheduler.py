"""The leader's loop: plan, reap runs, reap tasks. It never dies, and it is on time.

Every tick reads from the store which runs are active and refreshes the cache of the coordinator, so that nothing
depends on any message having arrived. Between ticks the loop sleeps to the next instant at which something is due, a
slot, a retry, the end of a deferral, or until it is woken. A phase that fails is counted and logged, and the next one
runs. No phase waits for an executor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.reapers import RunReaper, TaskReaper
from tidemill.engine.workflows.leader.retention import Retention
from tidemill.engine.workflows.leader.ticks import TickTimer
from tidemill.engine.workflows.leader.unfinished_runs import UnfinishedRuns
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PHASE_TIMEOUT = 5.0  # seconds that a phase may take


class Phase(StrEnum):
    """The phases of a tick, as the metric `scheduler_phase_errors_total` labels them."""

    PLAN = "plan"
    DUE = "due"
    REAP_RUNS = "reap runs"
    REAP_TASKS = "reap tasks"
    RETENTION = "retention"


class DueWork(Protocol):
    """Work of the leader that starts runs when their time comes: schedules and triggers."""

    @property
    def next_time(self) -> datetime | None:
        """When `run_due` has something to do next; None if that needs no wake-up."""

    @property
    def calls_in_flight(self) -> int:
        """The number of author callbacks that are running."""

    async def refresh(self) -> None:
        """Read what other processes may have changed; once per tick."""

    async def sync(self) -> None:
        """Follow the workflows that are loaded now."""

    async def run_due(self) -> None:
        """Start the runs that are due."""

    async def close(self) -> None:
        """Stop everything that runs in the background."""


class Scheduler:
    """The loop of one term."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        coordinator: RunCoordinator,
        attempts: LocalAttempts,
        due_work: Sequence[DueWork],
        ticks: TickTimer,
    ) -> None:
        self.due_work = due_work
        self.run_reaper = RunReaper(runtime, coordinator)
        self.task_reaper = TaskReaper(runtime, coordinator, attempts)
        self._store, self._pools = runtime.store, runtime.pools
        self._versions = versions
        self._coordinator = coordinator
        self._attempts = attempts
        self.unfinished_runs = UnfinishedRuns(runtime, versions, coordinator)
        self.retention = Retention(runtime)
        self._ticks = ticks
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._runtime = runtime
        self._is_fully_loaded = False
        """Whether the coordinator's cache is known to hold all active runs."""
        self._has_failed = False
        self._failures = 0
        ticks.reset()

    @property
    def is_waiting(self) -> bool:
        """Whether the loop sleeps, and no wake-up is pending."""
        return self._ticks.is_waiting

    @property
    def is_polling(self) -> bool:
        """Whether a trigger or the poll of a deferral is being called."""
        calls = self._coordinator.deferral_polls.calls_in_flight
        return calls + sum(work.calls_in_flight for work in self.due_work) > 0

    def wake(self) -> None:
        """Start what is due now."""
        self._ticks.notify()

    def on_remote_change(self) -> None:
        """Refresh the active runs soon: another process changed the store."""
        self._ticks.on_remote_change()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._has_failed = False
            if self._ticks.is_due:
                await self.tick()
            elif self._ticks.take_remote_change():
                await self.run_phase(Phase.PLAN, self.plan)
            else:
                await self.run_phase(Phase.DUE, self.run_due)
            self._failures = self._failures + 1 if self._has_failed else 0
            await self._wait()

    async def _wait(self) -> None:
        times = [self._coordinator.timers.next_time, *(work.next_time for work in self.due_work)]
        retry_delay = STORE_RETRY.delay(self._failures) if self._failures else 0.0  # due work stays due meanwhile
        await self._ticks.wait(times, retry_delay)

    async def tick(self) -> None:
        """Run all phases once."""
        began = self._clock.monotonic()
        self._metrics.set_gauge("scheduler_tick_lag_seconds", began - self._ticks.next_tick)
        await self.run_phase(Phase.PLAN, self._plan_with_pools)
        await self.run_phase(Phase.REAP_RUNS, self.run_reaper.reap)
        await self.run_phase(Phase.REAP_TASKS, self.task_reaper.reap)
        await self.run_phase(Phase.RETENTION, self.retention.prune)
        self._metrics.increment("scheduler_ticks_total")
        self._metrics.set_gauge("scheduler_tick_seconds", self._clock.monotonic() - began)
        self._schedule_next(began)

    def _schedule_next(self, began: float) -> None:
        """Set the next tick. On an idle single node only retention needs one: all other work speeds ticks up."""
        is_busy = self._coordinator.runs_in_progress or self._attempts.claimed or self._attempts.running()
        is_idle = self._runtime.is_single_node and not is_busy and self.retention.next_at > began
        has_no_runs = self._is_fully_loaded and not self._coordinator.active_runs
        not_before = self.retention.next_at_if_idle if is_idle and has_no_runs else None
        self._ticks.schedule_next(began, is_idle=is_idle, not_before=not_before)

    async def run_phase(self, phase: Phase, work: Callable[[], Awaitable[None]]) -> None:
        """Run one phase; its failure is counted and logged, and ends neither the tick nor the loop."""
        try:
            async with asyncio.timeout(PHASE_TIMEOUT):  # real time: the phase waits for the store
                await work()
        except (StoreError, TimeoutError) as error:
            self._has_failed = True
            self._metrics.increment("scheduler_phase_errors_total", phase=phase)
            text = str(error) or f"it took longer than {PHASE_TIMEOUT:g} s"
            logger.warning(events.SCHEDULER_PHASE_FAILED, extra={"phase": phase, "error": text})
            self.task_reaper.reset_grace()
        except Exception:  # no error of a phase may end the loop
            self._has_failed = True
            self._metrics.increment("scheduler_phase_errors_total", phase=phase)
            logger.exception(events.SCHEDULER_PHASE_FAILED, extra={"phase": phase})

    async def _plan_with_pools(self) -> None:
        if not self._runtime.is_single_node:
            await self._pools.refresh()
        await self.plan()

    async def plan(self) -> None:
        """Refresh the active runs from the store, discard unused versions, and start what is due."""
        self._is_fully_loaded = False
        self._coordinator.apply_pauses(await self._store.schedules.list_paused_workflows())
        await self.refresh_due_work()
        superseded = self._versions.superseded()
        if await self._coordinator.refresh():
            in_use = {active.version for active in self._coordinator.active_runs.values()}
            await self._versions.discard(superseded - in_use)
            await self.unfinished_runs.review()
        else:
            self._ticks.on_remote_change()  # further runs are yet to be read
        self._metrics.set_gauge("runs_waiting_for_code", len(self.unfinished_runs.waiting))
        self._metrics.set_gauge("runs_active", len(self._coordinator.active_runs))
        self._coordinator.slots.executor_slots.unpark()
        self._is_fully_loaded = True
        if self._coordinator.active_runs:
            self._ticks.speed_up()
        await self.run_due()

    async def refresh_due_work(self) -> None:
        """Read what other processes may have changed about schedules and triggers."""
        for work in self.due_work:
            await work.refresh()

    async def run_due(self) -> None:
        """Start everything that is due: retries, deferrals, schedules."""
        self._coordinator.wake_due()  # first: it needs nothing from the store
        self._coordinator.assign_slots()
        for work in self.due_work:
            await work.sync()
        for work in self.due_work:
            await work.run_due()
