"""Schedules: the leader sleeps to the next slot, and makes its run.

That a slot has at most one run is the store's business (a fire is unique by workflow, key and slot), so nothing here
has to be remembered for it. How far a schedule was looked at is stored after its runs are made: if that is lost, slots
are looked at again, and found to have their runs.

A slot whose run cannot be made, because the author's params raise or the workflow refuses them, is tried again a few
times, and those after it wait so long. Then it is dropped and the schedule goes on: it cannot block itself for ever.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.admissions import Admissions
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.starting import Starter, Wish
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.storage.run_ports import Cursor
from tidemill.telemetry import events
from tidemill.workflows.catchup import due
from tidemill.workflows.naming import PausedError
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
TRIES = 5  # at making the run of a slot
_AGAIN = Backoff(1.0, 60.0)


def first_cursor(tenant: str, workflow: str, schedule: Schedule, now: datetime, *, armed: bool = True) -> Cursor:
    """Return the cursor of a schedule that nobody has looked at: slots count from now on, or since its `start`."""
    start = now if schedule.start is None else schedule.start - timedelta.resolution
    return Cursor(
        tenant=tenant, workflow=workflow, key=schedule.key, rule=str(schedule), last=min(start, now), armed=armed
    )


class _Watch:
    """One schedule that is looked at."""

    def __init__(self, tenant: str, workflow: Workflow, schedule: Schedule, cursor: Cursor, since: datetime) -> None:
        self.tenant = tenant
        self.workflow = workflow
        self.schedule = schedule
        self.cursor = cursor
        self.since = since
        self.is_paused = False
        """Whether its workflow was paused when that was last looked at."""
        self.failing: datetime | None = None
        """The slot whose run could not be made so far."""
        self.failures = 0
        """How often that failed."""
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
        asleep = self._admissions.paused | self._library.held
        awake = [one for one in self._watched.values() if (one.tenant, one.workflow.name) not in asleep]
        return [one for one in awake if not one.is_paused]  # else what fell due in a pause is not told apart yet

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
            if (tenant, workflow.name) in self._library.held:
                continue
            watch = self._watched.get(key)
            if watch is not None and watch.schedule is schedule:
                watch.workflow = workflow
            elif (watch := await self._rewatch(key, workflow, schedule)) is not None:
                self._watched[key] = watch
            else:
                self._watched.pop(key, None)
            if watch is not None:
                await self._heed_pause(watch)

    async def _heed_pause(self, watch: _Watch) -> None:
        """Drop what fell due in a pause when that is over: in the store, the schedule was looked at until then."""
        is_paused = (watch.tenant, watch.workflow.name) in self._admissions.paused
        if watch.is_paused and not is_paused:
            before, watch.since = watch.cursor, self._clock.now()
            stored = await self._store.schedules.cursor(*before.schedule)
            if stored is not None:
                watch.cursor, watch.since = stored, stored.last
                await self._settle(watch, stored.last, watch.schedule.count(before.last, stored.last))
            watch.next = watch.schedule.next_after(watch.cursor.last)
        watch.is_paused = is_paused

    async def _rewatch(self, key: Key, workflow: Workflow, schedule: Schedule) -> _Watch | None:
        """Return a schedule that is to be looked at, as its older version has been until now if it had this rule."""
        older = self._watched.get(key)
        watch = await self._watch(key[0], workflow, schedule)
        if watch is not None and older is not None and str(older.schedule) == str(schedule):
            watch.since, watch.is_paused = older.since, older.is_paused
        return watch

    async def _watch(self, tenant: str, workflow: Workflow, schedule: Schedule) -> _Watch | None:
        """Return a schedule that is to be looked at; None while it is not armed, or no longer loaded."""
        now = self._clock.now()
        cursor = await self._store.schedules.cursor(tenant, workflow.name, schedule.key)
        if (cursor is not None and not cursor.armed) or not self._is_loaded(tenant, workflow.name, schedule):
            return None  # what was unloaded while the store was asked must not have a row again
        if cursor is None:
            cursor = first_cursor(tenant, workflow.name, schedule, now)
            await self._store.schedules.move(cursor)
        elif cursor.rule != str(schedule):
            cursor = replace(cursor, rule=str(schedule), last=now)
            await self._store.schedules.move(cursor)
        return _Watch(tenant, workflow, schedule, cursor, now)

    def _is_loaded(self, tenant: str, name: str, schedule: Schedule) -> bool:
        """Return whether a workflow has a schedule of this key and rule at this moment, and is to keep it."""
        version = None if (tenant, name) in self._library.held else self._library.current(tenant, name)
        workflow = None if version is None else self._library.workflow(version)
        return workflow is not None and any(
            (one.key, str(one)) == (schedule.key, str(schedule)) for one in workflow.schedules
        )

    async def fire_due(self) -> None:
        """Make the runs of all slots that are due; trouble with one schedule does not keep the others."""
        for watch in self._awake():
            if watch.next is None or watch.next > self._clock.now():
                continue
            try:
                await self._fire(watch)
            except StoreError:
                raise
            except Exception:  # whatever is wrong with one schedule concerns this one alone
                watch.next = self._failed(watch, None)

    async def _fire(self, watch: _Watch) -> None:
        """Settle the slots that are due one after the other, up to one that is to be tried again later."""
        now = self._clock.now()
        found = due(watch.schedule, watch.cursor.last, now, alive_since=watch.since)
        settled, dropped, again = now, found.dropped, None
        for slot in found.slots:
            try:
                again = await self._start(watch, slot)
            except PausedError:  # it was paused a moment ago: this slot gets no run
                dropped, again = dropped + 1, None
            if again is None:
                continue
            if watch.failures < TRIES:
                settled = slot.astimezone(UTC) - timedelta.resolution
                break
            dropped, again = dropped + 1, None
        await self._settle(watch, settled, dropped)
        watch.next = again or watch.schedule.next_after(watch.cursor.last)

    async def _start(self, watch: _Watch, slot: datetime) -> datetime | None:
        """Make the run of a slot; if that fails for a reason of its own, return when it is to be tried again."""
        try:
            wish = Wish(
                tenant=watch.tenant,
                workflow=watch.workflow,
                params=_params(watch.schedule, slot),
                origin="schedule",
                key=watch.schedule.key,
                slot=slot,
            )
            await self._starter.start(wish)
        except (StoreError, PausedError):
            raise
        except Exception:  # what makes the params, and what refuses them, is author code; it concerns this slot alone
            return self._failed(watch, slot)
        self._figures.read("cron_lateness_seconds", (self._clock.now() - slot).total_seconds())
        return None

    def _failed(self, watch: _Watch, slot: datetime | None) -> datetime:
        """Say that a slot, or a schedule as a whole, failed; return when it is to be tried again."""
        watch.failures = watch.failures + 1 if watch.failing == slot else 1
        watch.failing = slot
        self._figures.count("schedule_errors_total")
        logger.exception(events.SCHEDULE_FAILED, extra={"workflow": watch.workflow.name, "slot": str(slot)})
        return self._clock.now() + timedelta(seconds=_AGAIN.delay(watch.failures))

    async def _settle(self, watch: _Watch, until: datetime, dropped: int) -> None:
        """Remember that every slot up to a moment has its run, or gets none."""
        last = watch.cursor
        cursor = replace(last, last=max(until, last.last), dropped=last.dropped + dropped)
        is_loaded = self._is_loaded(watch.tenant, watch.workflow.name, watch.schedule)
        if cursor != last and is_loaded:  # else its row has gone, or is about to
            await self._store.schedules.move(cursor)
            watch.cursor = cursor
        if dropped:
            self._figures.count("slots_dropped_total", dropped)
            logger.warning(events.SLOTS_DROPPED, extra={"workflow": watch.workflow.name, "slots": dropped})


def _params(schedule: Schedule, slot: datetime) -> dict[str, Any]:
    try:
        return schedule.params_for(slot)
    except AUTHOR_ERRORS as error:  # author code: also what would end more than this slot, such as SystemExit
        raise OperationError(f"the params of slot {slot} cannot be made: {describe(error)}") from error
