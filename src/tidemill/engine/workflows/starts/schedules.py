"""Schedules: the leader sleeps to the next slot, and starts its run.

The store guarantees that a slot has at most one run (a fire is unique by workflow, key and slot), so nothing here has
to remember it. The cursor of a schedule is stored after its runs are created: if that write is lost, slots are
processed again, and found to have their runs.

A slot whose run cannot be started, because the author's params raise or the workflow refuses them, is retried a few
times, and later slots wait meanwhile. Then it is dropped and the schedule continues, so that it cannot block itself.
"""

import logging
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.leader.run_admission import RunAdmission
from tidemill.engine.workflows.leader.scheduler import DueWork
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunOrigin, RunStarter, StartRequest
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import StepDetector
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.telemetry import events
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.schedule import Schedule, due_slots
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

ScheduleKey = tuple[str, str, str]
START_ATTEMPT_LIMIT = 5  # attempts to start the run of a slot
_SLOT_RETRY = Backoff(1.0, 60.0)


def first_cursor(
    tenant: str, workflow: str, schedule: Schedule, now: datetime, *, armed: bool = True
) -> ScheduleCursor:
    """Return the cursor of a new schedule: its slots count from now on, or from its `start`."""
    start = now if schedule.start is None else schedule.start - timedelta.resolution
    return ScheduleCursor(
        tenant=tenant, workflow=workflow, key=schedule.key, rule=str(schedule), last=min(start, now), armed=armed
    )


class _WatchedSchedule:
    """One schedule, and how far it was processed."""

    def __init__(
        self, tenant: str, workflow: Workflow, schedule: Schedule, cursor: ScheduleCursor, alive_since: datetime
    ) -> None:
        self.tenant = tenant
        self.workflow = workflow
        self.schedule = schedule
        self.cursor = cursor
        self.alive_since = alive_since
        self.is_paused = False
        """Whether its workflow was paused at the last check."""
        self.failing_slot: datetime | None = None
        """The slot whose run could not be started so far."""
        self.failures = 0
        """How often starting that run failed."""
        self.next_slot = schedule.next_after(cursor.last)
        self.is_retrying = False
        """Whether `next_slot` is the time of a retry."""

    def move_retry(self, step: timedelta) -> None:
        """Retry after as many seconds as if the wall clock had not been stepped; slots follow the clock."""
        if self.is_retrying and self.next_slot is not None:
            self.next_slot += step


class ScheduleRunner(DueWork):
    """Starts the runs of the schedules of all loaded workflows."""

    def __init__(
        self, runtime: WorkflowRuntime, versions: WorkflowVersions, starter: RunStarter, admission: RunAdmission
    ) -> None:
        self._store = runtime.store
        self._versions = versions
        self._starter = starter
        self._admission = admission
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._steps = StepDetector(runtime.clock)
        self._watched: dict[ScheduleKey, _WatchedSchedule] = {}

    @property
    def watched_keys(self) -> Collection[ScheduleKey]:
        """The schedules that it follows."""
        return self._watched.keys()

    @property
    def next_time(self) -> datetime | None:
        """When the next slot of an active schedule is due."""
        return min((watch.next_slot for watch in self._active() if watch.next_slot is not None), default=None)

    @property
    def calls_in_flight(self) -> int:
        """0: schedules call author code only in `run_due`."""
        return 0

    async def close(self) -> None:
        """Do nothing: schedules run nothing in the background."""

    def _active(self) -> list[_WatchedSchedule]:
        """Return the schedules that are neither paused nor on hold, and whose last pause is processed."""
        inactive = self._admission.paused | self._versions.schedules_on_hold
        active = [watch for watch in self._watched.values() if (watch.tenant, watch.workflow.name) not in inactive]
        return [watch for watch in active if not watch.is_paused]

    async def refresh(self) -> None:
        """Do nothing: the pauses of workflows are applied to all work of the leader."""

    async def sync(self) -> None:
        """Watch the schedules of the loaded workflows, and no others."""
        wanted = {
            (version.tenant, workflow.name, schedule.key): (version.tenant, workflow, schedule)
            for version, workflow in self._versions.current_workflows()
            for schedule in workflow.schedules
        }
        for key in self._watched.keys() - wanted.keys():
            del self._watched[key]
        for key, (tenant, workflow, schedule) in wanted.items():
            if (tenant, workflow.name) in self._versions.schedules_on_hold:
                continue
            watch = self._watched.get(key)
            if watch is not None and watch.schedule is schedule:
                watch.workflow = workflow
            elif (watch := await self._rewatch(key, workflow, schedule)) is not None:
                self._watched[key] = watch
            else:
                self._watched.pop(key, None)
            if watch is not None:
                await self._apply_pause(watch)

    async def _apply_pause(self, watch: _WatchedSchedule) -> None:
        """After a pause, drop the slots that fell due in it: `resume` has moved the stored cursor to its end."""
        is_paused = (watch.tenant, watch.workflow.name) in self._admission.paused
        if watch.is_paused and not is_paused:
            before, watch.alive_since = watch.cursor, self._clock.now()
            stored = await self._store.schedules.get_cursor(*before.schedule)
            if stored is not None:
                watch.cursor, watch.alive_since = stored, stored.last
                await self._advance_cursor(watch, stored.last, watch.schedule.count(before.last, stored.last))
            watch.next_slot = watch.schedule.next_after(watch.cursor.last)
        watch.is_paused = is_paused

    async def _rewatch(self, key: ScheduleKey, workflow: Workflow, schedule: Schedule) -> _WatchedSchedule | None:
        """Return the watch of a schedule; it continues the watch of its older version, if that had the same rule."""
        older = self._watched.get(key)
        watch = await self._load_watch(key[0], workflow, schedule)
        if watch is not None and older is not None and str(older.schedule) == str(schedule):
            watch.alive_since, watch.is_paused = older.alive_since, older.is_paused
        return watch

    async def _load_watch(self, tenant: str, workflow: Workflow, schedule: Schedule) -> _WatchedSchedule | None:
        """Return the watch of a schedule; None if it is not armed, or no longer loaded."""
        now = self._clock.now()
        cursor = await self._store.schedules.get_cursor(tenant, workflow.name, schedule.key)
        if (cursor is not None and not cursor.armed) or not self._is_loaded(tenant, workflow.name, schedule):
            return None  # an unloaded schedule must not get a row again
        if cursor is None:
            cursor = first_cursor(tenant, workflow.name, schedule, now)
            await self._store.schedules.advance_cursor(cursor)
        elif cursor.rule != str(schedule):
            cursor = replace(cursor, rule=str(schedule), last=now)
            await self._store.schedules.advance_cursor(cursor)
        return _WatchedSchedule(tenant, workflow, schedule, cursor, now)

    def _is_loaded(self, tenant: str, name: str, schedule: Schedule) -> bool:
        """Return whether a loaded workflow has a schedule of this key and rule, and is not on hold."""
        if (tenant, name) in self._versions.schedules_on_hold:
            return False
        version = self._versions.current.get((tenant, name))
        workflow = None if version is None else self._versions.find_workflow(version)
        wanted = schedule.key, str(schedule)
        return workflow is not None and any((loaded.key, str(loaded)) == wanted for loaded in workflow.schedules)

    async def run_due(self) -> None:
        """Start the runs of all due slots; an error concerns its own schedule only."""
        if step := self._steps.check():
            for watch in self._watched.values():
                watch.move_retry(step)
        for watch in self._active():
            if watch.next_slot is None or watch.next_slot > self._clock.now():
                continue
            try:
                await self._fire_due_slots(watch)
            except StoreError:
                raise
            except Exception:  # the error concerns this schedule only
                watch.next_slot, watch.is_retrying = self._record_failure(watch, None), True

    async def _fire_due_slots(self, watch: _WatchedSchedule) -> None:
        """Process the due slots in order, up to one that must be retried later."""
        now = self._clock.now()
        due = due_slots(watch.schedule, watch.cursor.last, now, alive_since=watch.alive_since)
        processed_until, dropped, retry_at = now, due.dropped, None
        for slot in due.slots:
            try:
                retry_at = await self._start_slot(watch, slot)
            except WorkflowPausedError:  # it was paused since the check: this slot gets no run
                dropped, retry_at = dropped + 1, None
            if retry_at is None:
                continue
            if watch.failures < START_ATTEMPT_LIMIT:
                processed_until = slot.astimezone(UTC) - timedelta.resolution
                break
            dropped, retry_at = dropped + 1, None
        await self._advance_cursor(watch, processed_until, dropped)
        watch.is_retrying = retry_at is not None
        watch.next_slot = retry_at or watch.schedule.next_after(watch.cursor.last)

    async def _start_slot(self, watch: _WatchedSchedule, slot: datetime) -> datetime | None:
        """Start the run of a slot; if that fails for another reason, return when to retry it."""
        try:
            request = StartRequest(
                tenant=watch.tenant,
                workflow=watch.workflow,
                params=_params_for_slot(watch.schedule, slot),
                origin=RunOrigin.SCHEDULE,
                key=watch.schedule.key,
                slot=slot,
                about=watch.schedule.key,
            )
            await self._starter.start(request)
        except (StoreError, WorkflowPausedError):
            raise
        except Exception:  # author code makes the params and validates them; the error concerns this slot only
            return self._record_failure(watch, slot)
        self._metrics.set_gauge("cron_lateness_seconds", (self._clock.now() - slot).total_seconds())
        return None

    def _record_failure(self, watch: _WatchedSchedule, slot: datetime | None) -> datetime:
        """Count and log a failure of a slot, or of the whole schedule; return when to retry."""
        watch.failures = watch.failures + 1 if watch.failing_slot == slot else 1
        watch.failing_slot = slot
        self._metrics.increment("schedule_errors_total")
        logger.exception(events.SCHEDULE_FAILED, extra={"workflow": watch.workflow.name, "slot": str(slot)})
        return self._clock.now() + timedelta(seconds=_SLOT_RETRY.delay(watch.failures))

    async def _advance_cursor(self, watch: _WatchedSchedule, until: datetime, dropped: int) -> None:
        """Store that every slot up to a time has its run, or gets none."""
        last = watch.cursor
        cursor = replace(last, last=max(until, last.last), dropped=last.dropped + dropped)
        is_loaded = self._is_loaded(watch.tenant, watch.workflow.name, watch.schedule)
        if cursor != last and is_loaded:  # else its row was deleted, or is about to be
            await self._store.schedules.advance_cursor(cursor)
            watch.cursor = cursor
        if dropped:
            self._metrics.increment("slots_dropped_total", dropped)
            logger.info(events.SCHEDULE_SLOTS_DROPPED, extra={"workflow": watch.workflow.name, "slots": dropped})


def _params_for_slot(schedule: Schedule, slot: datetime) -> dict[str, Any]:
    try:
        return schedule.params_for(slot)
    except AUTHOR_ERRORS as error:  # author code: it may also raise SystemExit and the like
        raise OperationError(f"the params of slot {slot} cannot be made: {describe(error)}") from error
