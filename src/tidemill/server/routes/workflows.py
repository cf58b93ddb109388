"""Workflows: what is declared, and in which versions."""

from typing import Annotated

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.api.runs import decode_position, next_position
from tidemill.engine.workflows.client.catalog import CatalogEntry
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.views.grid import Grid, to_grid
from tidemill.server.views.workflows import (
    VersionDetails,
    WorkflowDetails,
    WorkflowItem,
    to_version_details,
    to_workflow_details,
    to_workflow_item,
)

_Text = Annotated[str, QueryParameter(name="q", description="A part of the name or of a tag, in letters of any case.")]

_Recent = Annotated[int, QueryParameter(ge=0, le=50, description="The number of newest runs that each workflow has.")]


class PauseState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether something is paused."""

    paused: bool


async def list_workflows(
    context: InjectedContext,
    caller: InjectedCaller,
    text: _Text = "",
    tag: FromQuery[str | None] = None,
    paused: FromQuery[bool | None] = None,
    recent: _Recent = 0,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[WorkflowItem]:
    """List workflows by name."""
    catalog = context.node.workflow_client.catalog
    entries = [one for one in await catalog.entries(caller) if _is_listed(one, text, tag, paused)]
    page = page_of(entries, PageRequest(limit, cursor), key=lambda one: one.name, view=lambda one: one)
    activity = await catalog.read_activity(caller, [entry.name for entry in page.items], recent=max(1, recent))
    items = [to_workflow_item(entry, activity[entry.name], recent=recent) for entry in page.items]
    return Page(items=items, total=page.total, next=page.next)


def _is_listed(entry: CatalogEntry, text: str, tag: str | None, paused: bool | None) -> bool:
    tags = () if entry.workflow is None else entry.workflow.tags
    has_text = any(text.casefold() in word.casefold() for word in (entry.name, *tags))
    return has_text and (tag is None or tag in tags) and paused in (None, entry.is_paused)


async def get_workflow(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> WorkflowDetails:
    """Return a workflow: tasks, edges, schedules, triggers, the JSON Schema of its params, and its versions."""
    catalog = context.node.workflow_client.catalog
    return to_workflow_details(await catalog.describe(caller, name), catalog.now())


async def get_workflow_version(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], version: FromPath[str]
) -> VersionDetails:
    """Return a version of a workflow: its structure, and the source that declares it."""
    return to_version_details(await context.node.workflow_client.catalog.get_version(caller, name, version))


async def get_workflow_grid(
    context: InjectedContext,
    caller: InjectedCaller,
    name: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Grid:
    """Return the runs of a workflow, newest first, with the state of every task; a mapped task is one cell."""
    client = context.node.workflow_client
    spec = await client.catalog.read_spec(caller, name)
    page = await client.list_runs(caller, workflow=name, after=decode_position(cursor), limit=limit + 1)
    counts = await client.count_task_states(page.runs[:limit])
    return to_grid(spec, page, limit, counts, next_position(page, limit))


async def patch_workflow(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], data: JSONBody[PauseState]
) -> WorkflowDetails:
    """Pause or resume a workflow: while it is paused, none of its runs begins, and none of its tasks starts."""
    client = context.node.workflow_client
    await (client.pause if data.paused else client.resume)(caller, name)
    return to_workflow_details(await client.catalog.describe(caller, name), client.catalog.now())
