"""Schedules: the leader sleeps to the next slot, and makes its run.

That a slot has at most one run is the store's business (a fire is unique by workflow, key and slot), so nothing here
has to be remembered for it. How far a schedule was looked at is stored after its runs are made: if that is lost, slots
are looked at again, and found to have their runs.
"""

import logging
from datetime import datetime, timedelta

from tidemill.engine.workflows.admissions import Admissions
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.starting import Starter, Wish
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import Cursor
from tidemill.telemetry import events
from tidemill.workflows.catchup import due
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
_AGAIN = Backoff(1.0, 60.0)


class _Watch:
    """One schedule that is looked at."""

    def __init__(self, tenant: str, workflow: Workflow, schedule: Schedule, cursor: Cursor, since: datetime) -> None:
        self.tenant = tenant
        self.workflow = workflow
        self.schedule = schedule
        self.cursor = cursor
        self.since = since
        self.failures = 0
        self.next = schedule.next_after(cursor.last)


class Schedules:
    """The schedules of all loaded workflows."""

    def __init__(self, environment: Environment, library: Library, starter: Starter, admissions: Admissions) -> None:
        self._store = environment.store
        self._library = library
        self._starter = starter
        self._admissions = admissions
        self._clock = environment.clock
        self._figures = environment.figures
        self._watched: dict[Key, _Watch] = {}

    @property
    def next_time(self) -> datetime | None:
        """When the next slot is due, of those that may have a run."""
        return min((watch.next for watch in self._awake() if watch.next is not None), default=None)

    def _awake(self) -> list[_Watch]:
        paused = self._admissions.paused
        return [one for one in self._watched.values() if (one.tenant, one.workflow.name) not in paused]

    async def sync(self) -> None:
        """Watch the schedules of what is loaded now, and no others."""
        wanted = {
            (version.tenant, workflow.name, schedule.key): (version.tenant, workflow, schedule)
            for version, workflow in self._library.currents()
            for schedule in workflow.schedules
        }
        for key in self._watched.keys() - wanted.keys():
            del self._watched[key]
        for key, (tenant, workflow, schedule) in wanted.items():
            watch = self._watched.get(key)
            if watch is None or watch.schedule is not schedule:
                self._watched[key] = await self._watch(tenant, workflow, schedule)
            else:
                watch.workflow = workflow
            if (tenant, workflow.name) in self._admissions.paused:  # what falls due in a pause is nobody's to watch
                self._watched[key].since = self._clock.now()

    async def _watch(self, tenant: str, workflow: Workflow, schedule: Schedule) -> _Watch:
        now, rule = self._clock.now(), str(schedule)
        cursor = await self._store.schedules.cursor(tenant, workflow.name, schedule.key)
        if cursor is None or cursor.rule != rule:
            start = schedule.start - timedelta.resolution if cursor is None and schedule.start is not None else now
            dropped = 0 if cursor is None else cursor.dropped
            cursor = Cursor(
                tenant=tenant,
                workflow=workflow.name,
                key=schedule.key,
                rule=rule,
                last=min(start, now),
                dropped=dropped,
            )
            await self._store.schedules.move(cursor)
        return _Watch(tenant, workflow, schedule, cursor, now)

    async def fire_due(self) -> None:
        """Make the runs of all slots that are due; trouble with one schedule does not keep the others."""
        for watch in self._awake():
            if watch.next is None or watch.next > self._clock.now():
                continue
            try:
                await self._fire(watch)
                watch.failures = 0
            except StoreError:
                raise
            except Exception:  # author code makes the params; what it raises concerns this schedule alone
                watch.failures += 1
                watch.next = self._clock.now() + timedelta(seconds=_AGAIN.delay(watch.failures))
                self._figures.count("schedule_errors_total")
                logger.exception(events.SCHEDULE_FAILED, extra={"workflow": watch.workflow.name})

    async def _fire(self, watch: _Watch) -> None:
        now = self._clock.now()
        found = due(watch.schedule, watch.cursor.last, now, alive_since=watch.since)
        for slot in found.slots:
            await self._starter.start(
                Wish(
                    tenant=watch.tenant,
                    workflow=watch.workflow,
                    params=watch.schedule.params_for(slot),
                    origin="schedule",
                    key=watch.schedule.key,
                    slot=slot,
                )
            )
        if found.slots:
            self._figures.read("cron_lateness_seconds", (self._clock.now() - found.slots[-1]).total_seconds())
        if found.dropped:
            self._figures.count("slots_dropped_total", found.dropped)
            facts = {"workflow": watch.workflow.name, "slots": found.dropped}
            logger.warning(events.SLOTS_DROPPED, extra=facts)
        last = watch.cursor
        watch.cursor = Cursor(
            tenant=last.tenant,
            workflow=last.workflow,
            key=last.key,
            rule=last.rule,
            last=max(now, last.last),
            dropped=last.dropped + found.dropped,
        )
        watch.next = watch.schedule.next_after(watch.cursor.last)
        await self._store.schedules.move(watch.cursor)
