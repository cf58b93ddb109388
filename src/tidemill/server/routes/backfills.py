"""Backfills: runs for past slots of a schedule."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody

from tidemill.api.paging import DEFAULT_LIMIT, Page, decode_cursor, encode_cursor
from tidemill.server.injection import InjectedCaller, InjectedContext, InjectedKeyed
from tidemill.server.paging import Cursor, Limit
from tidemill.server.responses import ApiResponse
from tidemill.server.routing import BASE_PATH
from tidemill.server.views.backfills import BackfillView, to_backfill
from tidemill.workflows.slots import BackfillPlan

_Time = Annotated[datetime, msgspec.Meta(tz=True, examples=["2026-01-01T00:00:00Z"])]


class StartBackfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The slots that get a run."""

    workflow: Annotated[str, msgspec.Meta(examples=["report"])]
    from_: _Time = msgspec.field(name="from")
    """The first slot is at this time or later."""
    to: _Time
    """The last slot is at this time or earlier."""
    preview: bool = False
    """Whether nothing is started."""
    only_missing: bool = True
    """Whether slots that have had a run get none."""
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1
    """The maximum number of its runs that run at a time."""
    key: str | None = None
    """The schedule, if the workflow has several."""


async def start_backfill(
    context: InjectedContext, caller: InjectedCaller, keyed: InjectedKeyed, data: JSONBody[StartBackfill]
) -> Response[BackfillPlan]:
    """Start a run for every past slot of a schedule in a range; a preview says which slots these are.

    The answer has no id if nothing was started.
    """
    plan = await context.node.workflow_client.backfill(
        caller,
        data.workflow,
        data.from_,
        data.to,
        preview=data.preview,
        only_missing=data.only_missing,
        limit=data.limit,
        key=data.key,
        id=None if keyed is None else keyed.effect,
    )
    if plan.id is None:
        return ApiResponse(plan, status_code=200)
    return ApiResponse(plan, status_code=201, headers={"location": f"{BASE_PATH}/backfills/{plan.id}"})


async def list_backfills(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[BackfillView]:
    """List backfills, newest first, with the states of their runs."""
    after = decode_cursor(cursor)
    client = context.node.workflow_client
    page = await client.list_backfills(caller, after=after, limit=limit + 1)
    shown = page.backfills[:limit]
    states = await client.count_backfill_runs(shown)
    return Page(
        items=[to_backfill(one, states.get(one.id, {})) for one in shown],
        total=page.total,
        next=encode_cursor(shown[-1].id) if len(page.backfills) > limit else None,
    )


async def get_backfill(context: InjectedContext, caller: InjectedCaller, id: FromPath[str]) -> BackfillView:
    """Return a backfill with the states of its runs."""
    client = context.node.workflow_client
    backfill = await client.get_backfill(caller, id)
    return to_backfill(backfill, (await client.count_backfill_runs([backfill])).get(id, {}))


async def cancel_backfill(context: InjectedContext, caller: InjectedCaller, id: FromPath[str]) -> BackfillView:
    """Start no more runs of a backfill, and cancel its active ones."""
    await context.node.workflow_client.cancel_backfill(caller, id)
    return await get_backfill(context, caller, id)
