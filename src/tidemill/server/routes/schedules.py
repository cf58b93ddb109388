"""Schedules: when the clock starts workflows."""

from datetime import datetime, timedelta
from typing import Annotated

from litestar.params import FromPath, QueryParameter

from tidemill.api.errors import FieldProblem, InvalidRequestError, require_offset
from tidemill.api.paging import DEFAULT_LIMIT, MAX_LIMIT, Page, PageRequest, page_of
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.views.schedules import CalendarView, ScheduleView, SlotView, next_slots, to_schedule

DEFAULT_COUNT = 10
DAY, WEEK, MAX_RANGE = timedelta(days=1), timedelta(days=7), timedelta(days=31)
YEARS = range(1971, 9999)
"""The years in which a calendar may begin: no time zone and no range leads out of what times can be."""

_Start = Annotated[
    datetime | None, QueryParameter(name="from", description="The beginning of the range; 24 hours ago by default.")
]
_End = Annotated[
    datetime | None,
    QueryParameter(name="to", description="The end of the range; a week after `from` by default."),
]
_Count = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="The number of slots.")]


async def list_schedules(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[ScheduleView]:
    """List the schedules of the loaded workflows, with their next slots."""
    catalog = context.node.workflow_client.catalog
    return page_of(
        await catalog.schedules(caller),
        PageRequest(limit, cursor),
        key=lambda one: f"{one.workflow}\n{one.schedule.key}",
        view=lambda one: to_schedule(one, catalog.now()),
    )


async def get_calendar(
    context: InjectedContext, caller: InjectedCaller, start: _Start = None, end: _End = None
) -> CalendarView:
    """Return the slots of all schedules from a time to another, at most 31 days: with their runs, and those to come."""
    client = context.node.workflow_client
    require_offset("from", start)
    require_offset("to", end)
    first = start or client.catalog.now() - DAY
    if first.year not in YEARS:
        raise _invalid("from", f"a time from {YEARS.start} to {YEARS.stop - 1}")
    last = end or first + WEEK
    if not first < last <= first + MAX_RANGE:
        raise _invalid("to", "a time after `from`, and at most 31 days later")
    found = await client.calendar(caller, first, last)
    return CalendarView(start=first, end=last, slots=found.slots, dense=found.dense, more=found.has_more)


def _invalid(name: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"`{name}`: {message}", [FieldProblem(name, message)])


async def preview_schedule(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], count: _Count = DEFAULT_COUNT
) -> Page[SlotView]:
    """List the next slots of a workflow, of all its schedules; none if it has no schedule."""
    catalog = context.node.workflow_client.catalog
    facts = await catalog.describe(caller, name)
    slots = [slot for one in facts.schedules for slot in next_slots(one.schedule, catalog.now(), count)]
    shown = sorted(slots, key=lambda one: (one.slot, one.key))[:count]
    return Page(items=shown, total=len(shown), next=None)
