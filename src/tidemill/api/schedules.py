"""Schedules: when the clock starts workflows."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.errors import FieldProblem, InvalidRequestError, require_offset
from tidemill.api.fields import NameOf, WireName
from tidemill.api.operation import GET, CommandForm, Message, operation
from tidemill.api.paging import MAX_LIMIT, Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.workflows.slots import SlotStatus
from tidemill.workflows.states import RunState

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.calendar import CalendarEntry, DenseEntry
    from tidemill.engine.workflows.client.catalog import WatchedSchedule
    from tidemill.workflows.schedule import Schedule

SHOWN_SLOTS = 5
"""The number of next slots that a schedule shows."""
DAY, WEEK, MAX_RANGE = timedelta(days=1), timedelta(days=7), timedelta(days=31)
YEARS = range(1971, 9999)
"""The years in which a calendar may begin: no time zone and no range leads out of what times can be."""

WorkflowName = Annotated[str, Meta(description="The name of a workflow."), NameOf("workflow")]
Count = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="The number of slots.")]
Start = Annotated[
    datetime | None, Meta(description="The beginning of the range; 24 hours ago by default."), WireName("from")
]
End = Annotated[
    datetime | None, Meta(description="The end of the range; a week after `from` by default."), WireName("to")
]


class ScheduleInfo(Message, frozen=True, kw_only=True):
    """A schedule of a workflow."""

    workflow: str
    key: str
    rule: str
    """The rule in words: an expression and its time zone, or an interval."""
    expression: str | None
    """Of a cron schedule."""
    timezone: str
    catchup: str
    start: datetime | None
    end: datetime | None
    paused: bool
    """Whether the workflow is paused."""
    last: datetime | None
    """Until when its slots were processed."""
    dropped: int
    """The number of slots that were dropped on purpose."""
    next: list[datetime]
    """The next slots, in the time zone of the schedule."""

    @classmethod
    def of_watched(cls, watched: "WatchedSchedule", now: datetime) -> "ScheduleInfo":
        """Return the message about a schedule."""
        from tidemill.workflows.schedule import Cron  # on use: it reads the database of time zones

        schedule, cursor = watched.schedule, watched.cursor
        return cls(
            workflow=watched.workflow,
            key=schedule.key,
            rule=str(schedule),
            expression=schedule.expression if isinstance(schedule, Cron) else None,
            timezone=schedule.timezone if isinstance(schedule, Cron) else "UTC",
            catchup=schedule.catchup,
            start=schedule.start,
            end=schedule.end,
            paused=watched.is_paused,
            last=None if cursor is None else cursor.last,
            dropped=0 if cursor is None else cursor.dropped,
            next=[schedule.in_zone(slot) for slot in watched.next_slots(now, SHOWN_SLOTS)],
        )


class UpcomingSlot(Message, frozen=True, kw_only=True):
    """A slot of a schedule that is yet to come."""

    key: str
    """The schedule."""
    slot: datetime
    local: datetime
    """The same instant, in the time zone of the schedule."""

    @classmethod
    def of_slot(cls, schedule: "Schedule", slot: datetime) -> "UpcomingSlot":
        """Return the message about a slot."""
        return cls(key=schedule.key, slot=slot, local=schedule.in_zone(slot))


class CalendarSlot(Message, frozen=True, kw_only=True):
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

    @classmethod
    def of_entry(cls, entry: "CalendarEntry") -> "CalendarSlot":
        """Return the message about a slot."""
        schedule, fired = entry.watched.schedule, entry.fired
        return cls(
            workflow=entry.watched.workflow,
            key=schedule.key,
            slot=entry.slot,
            local=schedule.in_zone(entry.slot),
            status=entry.status,
            run=None if fired is None else fired.run,
            run_state=None if fired is None else fired.state,
        )


class DenseSchedule(Message, frozen=True, kw_only=True):
    """A schedule with too many slots to list them."""

    workflow: str
    key: str
    rule: str
    slots: int
    """How many it has in the range."""

    @classmethod
    def of_entry(cls, entry: "DenseEntry") -> "DenseSchedule":
        """Return the message about a schedule."""
        watched, slots = entry
        return cls(workflow=watched.workflow, key=watched.schedule.key, rule=str(watched.schedule), slots=slots)


class Calendar(Message, frozen=True, kw_only=True):
    """The slots of all schedules in a range of time."""

    start: datetime
    end: datetime
    slots: list[CalendarSlot]
    """In order."""
    dense: list[DenseSchedule]
    """The schedules that have more than 500 slots in the range: these are not listed."""
    more: bool
    """Whether there are more slots than are listed, 5,000: choose a shorter range."""


@operation(
    GET("/schedules"),
    Permission.READ,
    command=CommandForm(
        "schedule list", columns=("workflow", "rule", "next", "paused", "catchup"), empty="no schedules"
    ),
)
async def list_schedules(services: Services, caller: Principal, page: PageRequest) -> Page[ScheduleInfo]:
    """List the schedules of the loaded workflows, with their next slots."""
    catalog = services.catalog
    return page_of(
        await catalog.schedules(caller),
        page,
        key=lambda one: f"{one.workflow}\n{one.schedule.key}",
        view=lambda one: ScheduleInfo.of_watched(one, catalog.now()),
    )


@operation(GET("/schedules/calendar"), Permission.READ)
async def get_calendar(services: Services, caller: Principal, start: Start = None, end: End = None) -> Calendar:
    """Return the slots of all schedules in a range of at most 31 days: with their runs, and those to come."""
    first, last = _range(start, end, services.catalog.now())
    found = await services.workflows.calendar(caller, first, last)
    return Calendar(
        start=first,
        end=last,
        slots=[CalendarSlot.of_entry(one) for one in found.slots],
        dense=[DenseSchedule.of_entry(one) for one in found.dense],
        more=found.has_more,
    )


def _range(start: datetime | None, end: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """Return the range of a calendar; InvalidRequestError names the end that it cannot have."""
    require_offset("from", start)
    require_offset("to", end)
    first = start or now - DAY
    if first.year not in YEARS:
        raise _invalid("from", f"a time from {YEARS.start} to {YEARS.stop - 1}")
    last = end or first + WEEK
    if not first < last <= first + MAX_RANGE:
        raise _invalid("to", "a time after `from`, and at most 31 days later")
    return first, last


def _invalid(name: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"`{name}`: {message}", [FieldProblem(name, message)])


@operation(
    GET("/workflows/{name}/schedule/preview"),
    Permission.READ,
    command=CommandForm(
        "schedule preview",
        columns=("slot", "local", "key"),
        zoned=("local",),
        empty="workflow '{name}' has no schedule",
    ),
)
async def preview_schedule(
    services: Services, caller: Principal, name: WorkflowName, count: Count = 10
) -> Page[UpcomingSlot]:
    """List the next slots of a workflow, of all its schedules; none if it has no schedule."""
    now, facts = services.catalog.now(), await services.catalog.describe(caller, name)
    slots = [UpcomingSlot.of_slot(one.schedule, slot) for one in facts.schedules for slot in one.next_slots(now, count)]
    shown = sorted(slots, key=lambda one: (one.slot, one.key))[:count]
    return Page(items=shown, total=len(shown), next=None)
