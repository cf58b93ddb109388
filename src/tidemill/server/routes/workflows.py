"""Workflows: what is declared, in which versions, and the start of their runs."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.engine.workflows.client.catalog import CatalogEntry
from tidemill.server.injection import InjectedCaller, InjectedContext, InjectedKeyed
from tidemill.server.paging import Cursor, Limit
from tidemill.server.responses import ApiResponse
from tidemill.server.routes.runs import decode_position, next_position, read_run
from tidemill.server.routing import BASE_PATH
from tidemill.server.views.grid import Grid, to_grid
from tidemill.server.views.runs import RunDetails
from tidemill.server.views.workflows import (
    VersionDetails,
    WorkflowDetails,
    WorkflowItem,
    to_version_details,
    to_workflow_details,
    to_workflow_item,
)
from tidemill.storage.request_ports import FIRE_PREFIX

_Text = Annotated[str, QueryParameter(name="q", description="A part of the name or of a tag, in letters of any case.")]

_Recent = Annotated[int, QueryParameter(ge=0, le=50, description="The number of newest runs that each workflow has.")]


class PauseState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether something is paused."""

    paused: bool


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The params of a new run, and a note on it."""

    params: Annotated[dict[str, Any], msgspec.Meta(examples=[{"day": "2026-01-05"}])] = {}
    note: Annotated[str | None, msgspec.Meta(examples=["asked for by finance"])] = None


_WITHOUT_PARAMS = StartRun()
"""The body of a request without one."""


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


async def start_run(
    context: InjectedContext,
    caller: InjectedCaller,
    keyed: InjectedKeyed,
    name: FromPath[str],
    data: JSONBody[StartRun] = _WITHOUT_PARAMS,
) -> Response[RunDetails]:
    """Start a run of a workflow."""
    client = context.node.workflow_client
    once = None if keyed is None else f"{FIRE_PREFIX}{keyed.effect}"
    run = await client.start(
        caller, name, data.params, once=once, is_repeated=keyed is not None and keyed.is_repetition
    )
    if data.note:
        await client.note(caller, run, data.note)
    location = f"{BASE_PATH}/runs/{run}"
    return ApiResponse(await read_run(client, caller, run), status_code=201, headers={"location": location})
