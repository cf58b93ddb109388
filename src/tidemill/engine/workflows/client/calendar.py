"""The calendar of a tenant's schedules: past slots with their runs, and those that are yet to come."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.catalog import WatchedSchedule, WorkflowCatalog
from tidemill.storage.run_lists import FiredSlot, ScheduleName
from tidemill.storage.workflow_ports import Runs
from tidemill.workflows.states import RunState

DENSE_LIMIT = 500
"""A schedule with more slots in the range is not listed slot by slot."""
SLOT_LIMIT = 5000
"""Slots of one answer, of all schedules together."""

SlotStatus = Literal["started", "late", "dropped", "coming"]
"""A slot has had a run, should have one, gets none on purpose, or is yet to come."""


class CalendarSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a schedule."""

    workflow: str
    key: str
    """The schedule."""
    slot: datetime
    local: datetime
    """The same instant, in the time zone of the schedule."""
    status: SlotStatus
    run: str | None = None
    run_state: RunState | None = None
    """Null also if the run was deleted since."""


class DenseSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with too many slots to list them."""

    workflow: str
    key: str
    rule: str
    slots: int
    """How many it has in the range."""


class Calendar(NamedTuple):
    """The slots of a range of time."""

    slots: list[CalendarSlot]
    """In order."""
    dense: list[DenseSchedule]
    has_more: bool
    """Whether there are more slots than are listed."""


async def read_calendar(
    catalog: WorkflowCatalog, runs: Runs, caller: Caller, start: datetime, end: datetime
) -> Calendar:
    """Return the slots of all schedules in [start, end]."""
    listed: dict[ScheduleName, WatchedSchedule] = {}
    dense: list[DenseSchedule] = []
    for watched in await catalog.schedules(caller):
        schedule = watched.schedule
        if (count := schedule.count(start, end)) > DENSE_LIMIT:
            dense.append(DenseSchedule(workflow=watched.workflow, key=schedule.key, rule=str(schedule), slots=count))
        else:
            listed[ScheduleName(watched.workflow, schedule.key)] = watched
    fired = await runs.list_fired_slots(caller.tenant, listed, start, end, DENSE_LIMIT)
    slots = [slot for name, one in listed.items() for slot in _slots_of(one, fired[name], catalog.now(), start, end)]
    slots.sort(key=lambda one: (one.slot, one.workflow, one.key))
    return Calendar(slots[:SLOT_LIMIT], dense, len(slots) > SLOT_LIMIT)


def _slots_of(
    watched: WatchedSchedule, fired: Sequence[FiredSlot], now: datetime, start: datetime, end: datetime
) -> Iterator[CalendarSlot]:
    """Yield the slots of one schedule: those with a run, and those that the schedule has besides."""
    schedule, known = watched.schedule, {one.slot for one in fired}
    for one in fired:
        yield _to_slot(watched, one.slot, "started", one.run, one.state)
    first = fired[0].slot if fired else now
    for slot in islice(schedule.slots(start, end), DENSE_LIMIT):
        if slot not in known and (status := _status_of(watched, slot, first, now)) is not None:
            yield _to_slot(watched, slot, status)


def _status_of(watched: WatchedSchedule, slot: datetime, first: datetime, now: datetime) -> SlotStatus | None:
    """Return what became of a slot without a run; None before the first run: the schedule may not have existed."""
    if slot > now:
        return "dropped" if watched.is_paused else "coming"
    if watched.cursor is not None and slot > watched.cursor.last and not watched.is_paused:
        return "late"
    return "dropped" if slot > first else None


def _to_slot(
    watched: WatchedSchedule, slot: datetime, status: SlotStatus, run: str | None = None, state: RunState | None = None
) -> CalendarSlot:
    return CalendarSlot(
        workflow=watched.workflow,
        key=watched.schedule.key,
        slot=slot,
        local=watched.schedule.in_zone(slot),
        status=status,
        run=run,
        run_state=state,
    )
