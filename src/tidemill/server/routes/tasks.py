"""Tasks of a run: their states, attempts, outputs and logs, and why they have not run."""

from collections.abc import AsyncIterator, Collection
from typing import Annotated, NamedTuple

import msgspec
from litestar.params import FromPath, QueryParameter

from tidemill.access.principal import Caller
from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, decode_cursor, encode_cursor, page_in_order
from tidemill.engine.workflows.client.log_lines import LogFilter, LogPosition
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import MAX_INTEGER
from tidemill.server.event_stream import StreamEvent, event_stream, wants_stream
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit
from tidemill.server.requests import ApiRequest
from tidemill.server.views.plain_values import to_plain
from tidemill.server.views.tasks import (
    AttemptView,
    LogLineView,
    OutputView,
    TaskView,
    WaitingView,
    WhyView,
    to_attempt,
    to_log_line,
    to_task,
)
from tidemill.workflows.lookup import resolve_task, split_element
from tidemill.workflows.records import TaskKey, TaskRow
from tidemill.workflows.result import TaskResult
from tidemill.workflows.states import TaskState

RESUMABLE_ELEMENTS = 64
"""The number of elements up to which every line of a followed log has an id, which names a position of each."""
RESUME_INTERVAL = 100
"""With more elements, the number of lines between two ids: at most so many are repeated after a reconnect."""

_Index = Annotated[int | None, QueryParameter(ge=0, le=MAX_INTEGER, description="One element of a mapped task.")]
_Attempt = Annotated[int | None, QueryParameter(ge=1, le=MAX_INTEGER, description="The lines of one attempt.")]
_States = Annotated[list[TaskState] | None, QueryParameter(name="state", description="Repeat it for several states.")]
_LogText = Annotated[
    str, QueryParameter(name="q", description="A part of the message or of a field, in letters of either case.")
]
_Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
_Mapped = Annotated[str | None, QueryParameter(name="task", description="List the elements of this mapped task.")]


class _FoundTask(NamedTuple):
    """A task of a run, or one element of it."""

    rows: list[TaskRow]
    result: TaskResult
    element: int | None


async def list_tasks(
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    mapped: _Mapped = None,
    states: _States = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[TaskView]:
    """List the tasks of a run in topological order, or the elements of a mapped task."""
    client = context.node.workflow_client
    if mapped is not None:
        first = TaskKey(run, mapped, decode_cursor(cursor, _Position) or 0)
        return await _list_elements(client, caller, first, states or (), limit)
    record = await client.load_record(caller, run)
    rows, result = record.by_task(), await client.load_plain_result(record)
    views = [to_task(rows[name], task) for name, task in result.tasks.items()]
    return page_in_order(views, PageRequest(limit, cursor), is_listed=lambda task: not states or task.state in states)


async def _list_elements(
    client: WorkflowClient, caller: Caller, first: TaskKey, states: Collection[TaskState], limit: int
) -> Page[TaskView]:
    """Return a page of the elements of a mapped task; its cursor is the element that the next page begins with."""
    record, total = await client.load_elements(caller, first, states, limit + 1)
    rows = record.tasks[:limit]
    result = await client.load_plain_result(record._replace(tasks=rows))
    elements = result.tasks[first.task].mapped if rows else ()
    views = [to_task([row], one) for row, one in zip(rows, elements, strict=True)]
    return Page(items=views, total=total, next=encode_cursor(rows[-1].index + 1) if len(record.tasks) > limit else None)


async def get_task(
    context: InjectedContext, caller: InjectedCaller, run: FromPath[str], task: FromPath[str], index: _Index = None
) -> TaskView:
    """Return a task of a run, or one element of a mapped task."""
    client = context.node.workflow_client
    found = await _read_task(client, caller, run, _label(task, index))
    return to_task(found.rows, found.result)


async def explain_task(
    context: InjectedContext, caller: InjectedCaller, run: FromPath[str], task: FromPath[str], index: _Index = None
) -> WhyView:
    """Say why a task has not run, or how it ended."""
    return WhyView(await context.node.workflow_client.why(caller, run, _label(task, index)))


async def explain_run(context: InjectedContext, caller: InjectedCaller, run: FromPath[str]) -> WaitingView:
    """Say why each task of a run that has not ended has not: what it waits for, or where it runs."""
    return WaitingView(await context.node.workflow_client.why_waiting(caller, run))


async def list_attempts(
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    task: FromPath[str],
    index: _Index = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[AttemptView]:
    """List the attempts of a task, by element, oldest first."""
    client = context.node.workflow_client
    name, element = resolve_task(await client.load_record(caller, run), _label(task, index))
    attempts = [
        row
        for row in await client.load_attempts(caller, run)
        if row.key.task == name and element in (None, row.key.element)
    ]
    views = [to_attempt(row) for row in sorted(attempts, key=lambda row: row.key)]
    return page_in_order(
        views,
        PageRequest(limit, cursor),
    )


async def get_output(
    context: InjectedContext, caller: InjectedCaller, run: FromPath[str], task: FromPath[str], index: _Index = None
) -> OutputView:
    """Return the output of a task that has succeeded, as plain values."""
    client = context.node.workflow_client
    found = await _read_task(client, caller, run, _label(task, index), with_output=True)
    if not found.result.has_output:
        message = f"task '{_label(task, index)}' of run {run} has no output: it is {found.result.state}"
        raise RequestError(message, code="no_output", status=409, run=run, task=task)
    return OutputView(task=found.rows[0].task, index=found.element, output=to_plain(found.result.output))


async def list_logs(
    request: ApiRequest,
    context: InjectedContext,
    caller: InjectedCaller,
    run: FromPath[str],
    task: FromPath[str],
    index: _Index = None,
    attempt: _Attempt = None,
    text: _LogText = "",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[LogLineView]:
    """List the log lines of a task, by element; as server-sent events, follow them until the task has ended."""
    client, label = context.node.workflow_client, _label(task, index)
    if wants_stream(request):
        await client.load_task(caller, run, label)  # an unknown one is an error, not a stream
        after = _decode_positions(request.headers.get("last-event-id"))
        wanted = LogFilter(attempt, text)
        return event_stream(_follow_logs(client, caller, run, label, wanted, after))  # type: ignore[return-value]
    position = decode_cursor(cursor, tuple[int, LogPosition])
    page = await client.list_logs(caller, run, label, LogFilter(attempt, text), after=position, limit=limit + 1)
    shown = page.lines[:limit]
    following = encode_cursor((shown[-1].key.element, shown[-1].position)) if len(page.lines) > limit else None
    return Page(items=[to_log_line(line) for line in shown], total=page.total, next=following)


async def _follow_logs(
    client: WorkflowClient,
    caller: Caller,
    run: str,
    label: str,
    wanted: LogFilter,
    after: dict[int, LogPosition],
) -> AsyncIterator[StreamEvent]:
    """Yield log lines; the id of each has the position of the last line of every element."""
    positions, number = dict(after), 0
    async for line in client.logs(caller, run, label, after=after):
        number += 1
        positions[line.key.element] = line.position
        if wanted.takes(line):
            yield StreamEvent(_encode_positions(positions, number), "log", to_log_line(line))


def _encode_positions(positions: dict[int, LogPosition], number: int) -> str | None:
    has_id = len(positions) <= RESUMABLE_ELEMENTS or number % RESUME_INTERVAL == 0
    return encode_cursor(list(positions.items())) if has_id else None


def _decode_positions(event_id: str | None) -> dict[int, LogPosition]:
    """Return the positions after which a log is followed, from the id of the last line that a client has."""
    try:
        positions = dict(decode_cursor(event_id or None, list[tuple[int, LogPosition]]) or ())
    except RequestError as error:
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id") from error
    if not all(abs(number) <= MAX_INTEGER for position in positions.values() for number in position):
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id")
    return positions


async def _read_task(
    client: WorkflowClient, caller: Caller, run: str, label: str, *, with_output: bool = False
) -> _FoundTask:
    """Return the rows and the result of a task, or of one element; RequestError if the run has none of that name."""
    record = await client.load_task(caller, run, label)
    result = await client.load_plain_result(record, with_outputs=with_output)
    (whole,) = result.tasks.values()
    is_element = split_element(label)[1] is not None
    one = whole.mapped[0] if is_element else whole
    return _FoundTask(record.tasks, one, record.tasks[0].index if is_element else None)


def _label(task: str, index: int | None) -> str:
    """Return a task or element as runs name it: "clean", or "clean[7]"."""
    return task if index is None else f"{task}[{index}]"
