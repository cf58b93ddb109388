"""The calendar of a tenant's schedules: past slots with their runs, and those that are yet to come."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.catalog import WatchedSchedule, WorkflowCatalog
from tidemill.storage.run_lists import FiredSlot, ScheduleName
from tidemill.storage.workflow_ports import Runs
from tidemill.workflows.slots import SlotStatus

DENSE_LIMIT = 500
"""A schedule with more slots in the range is not listed slot by slot."""
SLOT_LIMIT = 5000
"""Slots of one answer, of all schedules together."""


class CalendarEntry(NamedTuple):
    """One slot of a schedule."""

    watched: WatchedSchedule
    slot: datetime
    status: SlotStatus
    fired: FiredSlot | None = None
    """Its run, if it has had one."""


class DenseEntry(NamedTuple):
    """A schedule with too many slots to list them."""

    watched: WatchedSchedule
    slots: int
    """How many it has in the range."""


class CalendarEntries(NamedTuple):
    """The slots of a range of time."""

    slots: list[CalendarEntry]
    """In order."""
    dense: list[DenseEntry]
    has_more: bool
    """Whether there are more slots than are listed."""


async def read_calendar(
    catalog: WorkflowCatalog, runs: Runs, caller: Caller, start: datetime, end: datetime
) -> CalendarEntries:
    """Return the slots of all schedules in [start, end]."""
    listed: dict[ScheduleName, WatchedSchedule] = {}
    dense: list[DenseEntry] = []
    for watched in await catalog.schedules(caller):
        schedule = watched.schedule
        if (count := schedule.count(start, end)) > DENSE_LIMIT:
            dense.append(DenseEntry(watched, count))
        else:
            listed[ScheduleName(watched.workflow, schedule.key)] = watched
    fired = await runs.list_fired_slots(caller.tenant, listed, start, end, DENSE_LIMIT)
    slots = [slot for name, one in listed.items() for slot in _slots_of(one, fired[name], catalog.now(), start, end)]
    slots.sort(key=lambda one: (one.slot, one.watched.workflow, one.watched.schedule.key))
    return CalendarEntries(slots[:SLOT_LIMIT], dense, len(slots) > SLOT_LIMIT)


def _slots_of(
    watched: WatchedSchedule, fired: Sequence[FiredSlot], now: datetime, start: datetime, end: datetime
) -> Iterator[CalendarEntry]:
    """Yield the slots of one schedule: those with a run, and those that the schedule has besides."""
    schedule, known = watched.schedule, {one.slot for one in fired}
    for one in fired:
        yield CalendarEntry(watched, one.slot, "started", one)
    first = fired[0].slot if fired else now
    for slot in islice(schedule.slots(start, end), DENSE_LIMIT):
        if slot not in known and (status := _status_of(watched, slot, first, now)) is not None:
            yield CalendarEntry(watched, slot, status)


def _status_of(watched: WatchedSchedule, slot: datetime, first: datetime, now: datetime) -> SlotStatus | None:
    """Return what became of a slot without a run; None before the first run: the schedule may not have existed."""
    if slot > now:
        return "dropped" if watched.is_paused else "coming"
    if watched.cursor is not None and slot > watched.cursor.last and not watched.is_paused:
        return "late"
    return "dropped" if slot > first else None
