"""Runs: lists, one run, its events, and the commands on it."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Annotated
from zlib import crc32

import msgspec
from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from tidemill.access.principal import Caller
from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, decode_cursor, encode_cursor, page_in_order
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.server.event_stream import StreamEvent, event_stream, last_event_number, wants_stream
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.preconditions import check_etag, has_etag
from tidemill.server.requests import ApiRequest, require_offset
from tidemill.server.responses import ApiResponse
from tidemill.server.views.runs import (
    RerunView,
    RunDetails,
    RunEventView,
    RunSummary,
    to_rerun,
    to_run_details,
    to_run_event,
    to_run_events,
    to_run_summary,
)
from tidemill.storage.run_lists import EARLIEST, LATEST, RunPage, RunPosition
from tidemill.workflows.records import RunRecord, RunRow
from tidemill.workflows.states import RunState

_From = Annotated[datetime | None, QueryParameter(name="from", description="Runs created at this time or later.")]
_To = Annotated[datetime | None, QueryParameter(name="to", description="Runs created at this time or earlier.")]
_States = Annotated[list[RunState] | None, QueryParameter(name="state", description="Repeat it for several states.")]
_Text = Annotated[
    str, QueryParameter(name="q", description="A part of the id, the workflow or the note, or of a text in the params.")
]
_WithOutputs = Annotated[bool, QueryParameter(description="Whether tasks have their outputs, and their elements.")]


class CancelRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = "cancelled"


class RetryRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to rerun of a run."""

    from_: Annotated[str | list[str] | None, msgspec.Meta(examples=["load"])] = msgspec.field(name="from", default=None)
    """The task, or tasks, from which on it reruns; null for everything that failed."""
    latest: bool = False
    """Whether it continues with the newest version of its workflow."""
    preview: bool = False
    """Whether nothing is changed."""


class ClearTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which tasks to clear, with all tasks after them."""

    tasks: Annotated[list[str], msgspec.Meta(min_length=1, examples=[["load"]])]
    latest: bool = False
    """Whether the run continues with the newest version of its workflow."""
    preview: bool = False
    """Whether nothing is changed."""


_CANCELLED, _ALL_FAILED = CancelRun(), RetryRun()
"""The bodies of requests without one."""


class RunNoteText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The note on a run; an empty one removes it."""

    text: str


# -- reading


async def list_runs(
    context: InjectedContext,
    caller: InjectedCaller,
    workflow: FromQuery[str | None] = None,
    states: _States = None,
    since: _From = None,
    until: _To = None,
    text: _Text = "",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[RunSummary]:
    """List runs, newest first; `omitted` names params that are too large for a list."""
    require_offset("from", since)
    require_offset("to", until)
    client = context.node.workflow_client
    page = await client.list_runs(
        caller,
        workflow=workflow,
        states=states or (),
        since=since or EARLIEST,
        until=until or LATEST,
        text=text,
        after=decode_position(cursor),
        limit=limit + 1,
    )
    shown = page.runs[:limit]
    notes = await client.read_notes(shown)
    items = [to_run_summary(row, notes.get(row.id), page.large_params.get(row.id)) for row in shown]
    return Page(items=items, total=page.total, next=next_position(page, limit))


def next_position(page: RunPage, limit: int) -> str | None:
    """Return the cursor after the first `limit` runs of a page; None if it has no more."""
    last = page.runs[limit - 1] if len(page.runs) > limit else None
    return None if last is None else encode_cursor((last.created_at, last.id))


def decode_position(cursor: str | None) -> RunPosition | None:
    """Return the position of a cursor of a list of runs; None without one."""
    if cursor is None:
        return None
    created_at, run = decode_cursor(cursor, tuple[Annotated[datetime, msgspec.Meta(tz=True)], str])
    return RunPosition(created_at, run)


async def get_run(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    outputs: _WithOutputs = False,
) -> Response[RunDetails]:
    """Return a run with the states of its tasks.

    With `outputs` the tasks have their return values, and mapped tasks their elements: then the answer has everything
    of tm.RunResult. The ETag changes with the run.
    """
    client = context.node.workflow_client
    if "if-none-match" in request.headers:  # mostly nothing has changed: the tasks, maybe many, are not read
        row = await client.load_run(caller, run)
        if has_etag(request, etag := _etag_of(row, await read_note(client, row))):
            return ApiResponse(None, status_code=304, headers={"etag": etag})
    record = await client.load_record(caller, run)
    note = await read_note(client, record.run)
    etag = _etag_of(record.run, note)
    result = await client.load_plain_result(record, with_outputs=outputs)
    return ApiResponse(to_run_details(record, result, note, with_outputs=outputs), headers={"etag": etag})


async def read_run(client: WorkflowClient, caller: Caller, run: str) -> RunDetails:
    """Return a run with its tasks, without their outputs."""
    record = await client.load_record(caller, run)
    result = await client.load_plain_result(record)
    return to_run_details(record, result, await read_note(client, record.run), with_outputs=False)


async def read_note(client: WorkflowClient, run: RunRow) -> str | None:
    """Return the note on a run."""
    return (await client.read_notes([run])).get(run.id)


def _etag_of(run: RunRow, note: str | None) -> str:
    """Return the ETag of a run: it has another one after each of its changes, and after each change of its note."""
    return f'"{run.revision}-{crc32((note or "").encode()):x}"'


async def list_run_events(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[RunEventView]:
    """List the events of a run, oldest first; as server-sent events, follow them until the run has ended."""
    client = context.node.workflow_client
    if wants_stream(request):
        await client.load_record(caller, run)  # an unknown run is an error, not a stream
        after = last_event_number(request) or 0
        return event_stream(_follow_events(client, caller, run, after))  # type: ignore[return-value]
    return page_in_order(
        to_run_events(await client.load_events(caller, run)),
        PageRequest(limit, cursor),
    )


async def _follow_events(client: WorkflowClient, caller: Caller, run: str, after: int) -> AsyncIterator[StreamEvent]:
    number = 0
    async for snapshot in client.watch(caller, run, tasks=(), events=True):
        for event in snapshot.events:
            number += 1
            if number > after:
                yield StreamEvent(number, "event", to_run_event(number, event))


# -- commands


async def cancel_run(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    data: JSONBody[CancelRun] = _CANCELLED,
) -> RunDetails:
    """Cancel a run and its active tasks; running code is stopped."""
    client = context.node.workflow_client
    check = await _make_check(request, client, caller, run)
    await client.cancel(caller, run, data.reason, check=check)
    return await read_run(client, caller, run)


async def retry_run(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    data: JSONBody[RetryRun] = _ALL_FAILED,
) -> RerunView:
    """Rerun what failed in a run, or from some tasks on; a preview says what reruns and what is reused."""
    client = context.node.workflow_client
    check = await _make_check(request, client, caller, run)
    tasks = [data.from_] if isinstance(data.from_, str) else data.from_
    cleared = await client.clear(caller, run, tasks, preview=data.preview, latest=data.latest, check=check)
    return to_rerun(run, cleared, preview=data.preview)


async def clear_run(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    data: JSONBody[ClearTasks],
) -> RerunView:
    """Clear tasks of a run, and all tasks after them, so that they rerun; a preview changes nothing."""
    client = context.node.workflow_client
    check = await _make_check(request, client, caller, run)
    cleared = await client.clear(caller, run, data.tasks, preview=data.preview, latest=data.latest, check=check)
    return to_rerun(run, cleared, preview=data.preview)


async def put_run_note(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    data: JSONBody[RunNoteText],
) -> RunSummary:
    """Write the note on a run in place of the previous one."""
    client = context.node.workflow_client
    await _make_check(request, client, caller, run)
    await client.note(caller, run, data.text)
    row = await client.load_run(caller, run)
    return to_run_summary(row, await read_note(client, row))


async def _make_check(
    request: ApiRequest, client: WorkflowClient, caller: Caller, run: str
) -> Callable[[RunRecord], None] | None:
    """Return the check that If-Match asks for, once it has passed; it is repeated with the change itself."""
    if "if-match" not in request.headers:
        return None
    record = await client.load_record(caller, run)
    note = await read_note(client, record.run)

    def check(current: RunRecord) -> None:
        check_etag(request, _etag_of(current.run, note))

    check(record)
    return check
