"""Schedules: when the clock starts workflows."""

from typing import Annotated

from litestar.params import FromPath, QueryParameter

from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import DEFAULT_LIMIT, MAX_LIMIT, Cursor, Limit, Page, page_of
from tidemill.server.views.schedules import ScheduleView, SlotView, next_slots, to_schedule

DEFAULT_COUNT = 10

_Count = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="The number of slots.")]


async def list_schedules(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[ScheduleView]:
    """List the schedules of the loaded workflows, with their next slots."""
    catalog = context.node.workflow_client.catalog
    return page_of(
        await catalog.schedules(caller),
        limit=limit,
        cursor=cursor,
        key=lambda one: f"{one.workflow}\0{one.schedule.key}",
        view=lambda one: to_schedule(one, catalog.now()),
    )


async def preview_schedule(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], count: _Count = DEFAULT_COUNT
) -> Page[SlotView]:
    """List the next slots of a workflow, of all its schedules; none if it has no schedule."""
    catalog = context.node.workflow_client.catalog
    facts = await catalog.describe(caller, name)
    slots = [slot for one in facts.schedules for slot in next_slots(one.schedule, catalog.now(), count)]
    shown = sorted(slots, key=lambda one: (one.slot, one.key))[:count]
    return Page(items=shown, total=len(shown), next=None)
