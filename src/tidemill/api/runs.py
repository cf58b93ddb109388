"""Runs: start them, list them, follow their events, cancel them, and run parts of them again."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Annotated, Any
from zlib import crc32

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from tidemill.access.audit import AuditRow
from tidemill.access.principal import Permission, Principal
from tidemill.api.etags import check_etag
from tidemill.api.fields import Header, Positional, WireName
from tidemill.api.operation import GET, POST, PUT, Message, RequestKey, StreamForm, StreamItem, operation
from tidemill.api.paging import Page, PageRequest, page_in_order
from tidemill.api.reruns import Rerun
from tidemill.api.run_filters import (
    Cause,
    Key,
    Since,
    StartedBy,
    States,
    Tag,
    Text,
    Unresolved,
    Until,
    WorkflowName,
    created_between,
    next_position,
    page_range,
)
from tidemill.api.services import Services
from tidemill.api.tasks import TaskInfo, TaskLogLine, read_tasks
from tidemill.kernel.errors import RequestError, after_change
from tidemill.storage.run_lists import RunPage
from tidemill.storage.tables.requests import FIRE_PREFIX
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, RunRecord, RunRow
from tidemill.workflows.result import RunResult, TaskResult, to_plain
from tidemill.workflows.states import RunState, TaskState

Outputs = Annotated[bool, Meta(description="Whether tasks have their outputs, and their elements.")]
Reason = Annotated[str, Meta(description="Why the run is cancelled."), Positional()]
From = Annotated[
    str | list[str] | None,
    Meta(description="The task, or tasks, to rerun from; null: everything that failed.", examples=["load"]),
    WireName("from"),
]
Tasks = Annotated[
    list[str],
    Meta(min_length=1, description="The tasks to clear, with all tasks after them.", examples=[["load"]]),
]
Latest = Annotated[bool, Meta(description="Whether the run continues with the newest version of its workflow.")]
Preview = Annotated[bool, Meta(description="Whether nothing is changed.")]
Params = Annotated[
    dict[str, Any] | None, Meta(description="The params by name.", examples=[{"day": "2026-01-05"}]), Positional()
]
Note = Annotated[str | None, Meta(description="A note on the run.", examples=["asked for by finance"])]
NoteText = Annotated[str, Meta(description="The note; an empty one removes it.")]
NotedTask = Annotated[str | None, Meta(description="The task that the note is on; null: the run itself.")]
WithEvents = Annotated[bool, Meta(description="Whether snapshots have the new events of the run.")]
Every = Annotated[float, Meta(ge=0, le=86400, description="The least number of seconds between two snapshots.")]
IfMatch = Annotated[
    str | None,
    Meta(description="The ETag of the run that was read: the change fails if the run has another one now."),
    Header("if-match"),
]


class RunInfo(Message, frozen=True, kw_only=True):
    """A run without its tasks."""

    id: Annotated[str, Meta(examples=["06fh2k8t3v9q"])]
    workflow: Annotated[str, Meta(examples=["report"])]
    version: str
    """The workflow version that the run is pinned to."""
    state: RunState
    origin: Annotated[str, Meta(examples=["manual"])]
    """What started it: manual, schedule, trigger, firing, backfill, task or handler."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    slot: datetime | None
    """The slot of the schedule that it runs for."""
    backfill: str | None
    cause: str | None = None
    """The name of what started it: of a trigger, a reactor, or the workflow of a task; null if it has none."""
    cause_key: str | None = None
    """Of a run that a keyed reactor started: the key of the firing, as `--key` takes it."""
    firing: str | None = None
    """The firing that started it."""
    parent: str | None = None
    """The run whose task started it, or whose end its tasks handle."""
    actor: str | None = None
    """Who started it by hand: "account:ada", "key:4f2a91c0", "local", or the id of the node of a program."""
    key: str | None = None
    """What it is about: the key of its schedule, or what `dedup` of `tm.on_output` says."""
    params: dict[str, Any] | None
    """By name; null if they can no longer be read, or are omitted."""
    note: str | None
    dismissed_at: datetime | None = None
    """When its failure was dismissed: then it does not need a person, until it fails once more."""
    reason: str
    """Why it ended, or what it waits for; empty if there is nothing to say."""
    omitted: dict[str, int]
    """The values that a list leaves out because they are large, with their bytes; `GET` of the run has them."""
    etag: str = ""
    """Changes with the run and its note; a change takes it as If-Match."""

    @classmethod
    def of_row(cls, row: RunRow, note: str | None, large_params: int | None = None) -> "RunInfo":
        """Return the message about a run; `large_params` are the bytes of params that its row does not have."""
        return cls(**_info_of(row, note, large_params))


_SHARED = tuple(name for name in RunInfo.__struct_fields__ if name in RunRow.__struct_fields__ and name != "params")
"""The fields that the message has of the row as they are."""


def _info_of(row: RunRow, note: str | None, large_params: int | None = None) -> dict[str, Any]:
    """Return the fields of the message about a run."""
    info: dict[str, Any] = {name: getattr(row, name) for name in _SHARED}
    info["params"] = None if large_params else _read_params(row)
    info["note"] = note
    info["omitted"] = {"params": large_params} if large_params else {}
    info["etag"] = etag_of(row, note)
    info["key"] = row.about
    info["firing"] = row.caused_by if row.origin == "firing" else None
    info["parent"] = row.caused_by if row.origin in ("task", "handler") else None
    info["actor"] = row.caused_by if row.origin == "manual" else None
    return info


class RunFailure(Message, frozen=True, kw_only=True):
    """The first error of a run."""

    task: str
    type: str
    message: str


class RunDetails(RunInfo, frozen=True, kw_only=True):
    """A run with the results of its tasks: the fields of tm.RunResult, and those of the list."""

    tasks: dict[str, TaskResult]
    """By task, in topological order. Outputs and the elements of mapped tasks only if they were asked for."""
    task_states: dict[TaskState, int]
    """The number of task runs in each state; each element of a mapped task counts."""
    error: RunFailure | None
    notes: dict[str, str] = {}
    """The notes on tasks, by task."""

    @classmethod
    def of_result(
        cls, record: RunRecord, result: RunResult, notes: dict[str | None, str], *, with_outputs: bool = False
    ) -> "RunDetails":
        """Return the message about a run with its tasks."""
        return cls(
            **_info_of(record.run, notes.get(None)) | {"reason": result.reason},
            tasks={name: _to_task(task, with_outputs=with_outputs) for name, task in result.tasks.items()},
            task_states=dict(Counter(row.state for row in record.tasks)),
            error=_find_failure(result),
            notes={task: text for task, text in notes.items() if task is not None},
        )

    def to_result(self) -> RunResult:
        """Return the state of the run and its tasks."""
        return RunResult(**{name: getattr(self, name) for name in RunResult.__struct_fields__})


class RunTransition(Message, frozen=True, kw_only=True):
    """An event of a run: a transition of the run, or of one of its tasks."""

    number: int
    """Its place in the history of the run, from 1 on."""
    at: datetime
    actor: str
    task: str | None
    """None: the run itself."""
    index: int | None
    """The element of a mapped task."""
    attempt: int
    before: str
    after: str
    reason: str

    @classmethod
    def of_event(cls, number: int, event: EventRow) -> "RunTransition":
        """Return the message about an event."""
        index = None if event.index == UNMAPPED else event.index
        fields = {name: value for name, value in asdict(event).items() if name not in ("run", "index")}
        return cls(number=number, index=index, **fields)


class RunSnapshot(Message, frozen=True, kw_only=True):
    """A run at one moment, and what is new since the last snapshot."""

    run: RunInfo
    tasks: list[TaskInfo]
    """In topological order; a mapped task is one of them, with the states of its elements."""
    lines: list[TaskLogLine]
    """The new log lines of all tasks."""
    events: list[RunTransition]
    """The new events, if they were asked for."""


def etag_of(run: RunRow, note: str | None) -> str:
    """Return the ETag of a run: it has another one after each of its changes, and after each change of its note."""
    return f'"{run.revision}-{crc32((note or "").encode()):x}"'


def _read_params(row: RunRow) -> dict[str, Any] | None:
    from tidemill.workflows.params import decode_params  # on use: it imports asyncio, which help does not need

    try:
        params: dict[str, Any] = to_plain(decode_params(None, row.params))
    except msgspec.DecodeError:  # one damaged row must not hide all others
        return None
    return params


def _to_task(task: TaskResult, *, with_outputs: bool) -> TaskResult:
    if not with_outputs:
        return replace(task, output=None, mapped=[]) if task.has_output or task.mapped else task
    mapped = [_to_task(one, with_outputs=True) for one in task.mapped]
    return replace(task, output=to_plain(task.output), mapped=mapped)


def _find_failure(result: RunResult) -> RunFailure | None:
    for name, task in result.tasks.items():
        if task.state is TaskState.FAILED and task.error is not None:
            return RunFailure(task=name, type=task.error.type, message=task.error.message)
    return None


async def read_etag(services: Services, caller: Principal, run: str) -> str:
    """Return the ETag of a run; its tasks, maybe many, are not read."""
    row = await services.workflows.runs.load_run(caller, run)
    return etag_of(row, (await services.workflows.runs.read_notes([row])).get(run))


async def _make_check(
    services: Services, caller: Principal, run: str, if_match: str | None
) -> Callable[[RunRecord], None] | None:
    """Return the check that If-Match asks for, once it has passed; it is repeated with the change itself."""
    if if_match is None:
        return None
    row = await services.workflows.runs.load_run(caller, run)
    note = (await services.workflows.runs.read_notes([row])).get(run)
    check_etag(if_match, etag_of(row, note))
    return lambda current: check_etag(if_match, etag_of(current.run, note))


@operation(
    POST("/workflows/{name}/runs", location="/runs/{id}"),
    Permission.WRITE,
    audit="run.start",
    is_audited_by_service=True,
)
async def start_run(
    services: Services,
    caller: Principal,
    name: str,
    params: Params = None,
    note: Note = None,
    request: RequestKey | None = None,
) -> RunDetails:
    """Start a run of a workflow."""
    once = None if request is None else f"{FIRE_PREFIX}{request.effect}"
    is_repeated = request is not None and request.is_repetition

    def audit(run: str) -> AuditRow:
        return services.access.audit.make_entry(caller, "run.start", name, {"run": run})

    run = await services.workflows.changes.start(
        caller, name, params or {}, once=once, is_repeated=is_repeated, audit=audit
    )
    text = await services.workflows.changes.note(caller, run, note) if note else None
    if is_repeated:
        return await read_run(services, caller, run)
    record = await services.workflows.runs.load_started(caller, run)
    result = await services.workflows.runs.load_plain_result(record)
    return RunDetails.of_result(record, result, {None: text} if text else {})


@operation(GET("/runs"), Permission.READ, default_limit=50)
async def list_runs(
    services: Services,
    caller: Principal,
    page: PageRequest,
    workflow: WorkflowName = None,
    state: States = None,
    since: Since = None,
    until: Until = None,
    text: Text = "",
    tag: Tag = "",
    cause: Cause = "",
    key: Key = "",
    started_by: StartedBy = "",
    unresolved: Unresolved = False,
) -> Page[RunInfo]:
    """List runs, newest first; `omitted` names params that are too large for a list."""
    found = await services.workflows.runs.list_page(
        caller,
        workflow=workflow,
        tag=tag,
        cause=cause,
        key=key,
        started_by=started_by,
        unresolved=unresolved,
        text=text,
        states=state or (),
        **created_between(since, until),
        **page_range(page),
    )
    items = await _read_infos(services, found, page.limit)
    return Page(items=items, total=found.total, next=next_position(found, page.limit))


async def _read_infos(services: Services, found: RunPage, limit: int) -> list[RunInfo]:
    notes = await services.workflows.runs.read_notes(found.runs[:limit])
    return [RunInfo.of_row(row, notes.get(row.id), found.large_params.get(row.id)) for row in found.runs[:limit]]


@operation(GET("/runs/{run}"), Permission.READ)
async def get_run(services: Services, caller: Principal, run: str, outputs: Outputs = False) -> RunDetails:
    """Return a run with the states of its tasks.

    With `outputs` the tasks have their return values, and mapped tasks their elements: then the answer has
    everything of tm.RunResult. The ETag changes with the run.
    """
    return await read_run(services, caller, run, with_outputs=outputs)


async def read_run(services: Services, caller: Principal, run: str, *, with_outputs: bool = False) -> RunDetails:
    """Return a run with its tasks."""
    record = await services.workflows.runs.load_record(caller, run)
    result = await services.workflows.runs.load_plain_result(record, with_outputs=with_outputs)
    return RunDetails.of_result(record, result, await services.workflows.runs.notes_of(run), with_outputs=with_outputs)


async def _follow_events(
    services: Services, caller: Principal, after: str | None, run: str
) -> AsyncGenerator[StreamItem[RunTransition], None]:
    await services.workflows.runs.load_run(caller, run)  # an unknown run is an error, not a stream
    return _events_after(services, caller, _event_number(after), run)


def _event_number(event_id: str | None) -> int:
    if event_id is not None and not (event_id.isascii() and event_id.isdecimal()):
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id")
    return int(event_id or 0)


async def _events_after(
    services: Services, caller: Principal, after: int, run: str
) -> AsyncGenerator[StreamItem[RunTransition], None]:
    number = 0
    async for snapshot in services.workflows.watcher.watch(caller, run, tasks=(), events=True):
        for event in snapshot.events:
            number += 1
            if number > after:
                yield StreamItem(RunTransition.of_event(number, event), str(number))


@operation(GET("/runs/{run}/events"), Permission.READ, stream=StreamForm("event", RunTransition, _follow_events))
async def list_run_events(services: Services, caller: Principal, page: PageRequest, run: str) -> Page[RunTransition]:
    """List the events of a run, oldest first; as server-sent events, follow them until the run has ended."""
    events = await services.workflows.runs.load_events(caller, run)
    return page_in_order([RunTransition.of_event(number, event) for number, event in enumerate(events, 1)], page)


async def _follow_snapshots(
    services: Services, caller: Principal, after: str | None, run: str, events: bool, every: float
) -> AsyncGenerator[StreamItem[RunSnapshot], None]:
    await services.workflows.runs.load_run(caller, run)  # an unknown run is an error, not a stream
    return _snapshots(services, caller, _event_number(after), run, events, every)


async def _snapshots(
    services: Services, caller: Principal, after: int, run: str, events: bool, every: float
) -> AsyncGenerator[StreamItem[RunSnapshot], None]:
    """Yield snapshots; the id of each is the number of events before the next one."""
    number = 0
    async for watched in services.workflows.watcher.watch(caller, run, events=events, every=every):
        first, number = number + 1, number + len(watched.events)
        new = [RunTransition.of_event(one, event) for one, event in enumerate(watched.events, first) if one > after]
        lines = [TaskLogLine.of_line(line) for line in watched.log_lines]
        yield StreamItem(await _snapshot(services, watched.record, lines, new), str(number))


async def _snapshot(
    services: Services, record: RunRecord, lines: list[TaskLogLine], events: list[RunTransition]
) -> RunSnapshot:
    tasks = await read_tasks(services, record)
    return RunSnapshot(run=RunInfo.of_row(record.run, None), tasks=tasks, lines=lines, events=events)


@operation(GET("/runs/{run}/watch"), Permission.READ, stream=StreamForm("snapshot", RunSnapshot, _follow_snapshots))
async def watch_run(
    services: Services,
    caller: Principal,
    page: PageRequest,
    run: str,
    events: WithEvents = False,
    every: Every = 0.1,  # noqa: ARG001, of the stream alone
) -> Page[RunSnapshot]:
    """List the present snapshot of a run; as server-sent events, one whenever it changes, until it has ended."""
    record = await services.workflows.runs.load_record(caller, run)
    history = await services.workflows.runs.load_events(caller, run) if events else []
    new = [RunTransition.of_event(number, event) for number, event in enumerate(history, 1)]
    return page_in_order([await _snapshot(services, record, [], new)], page)


@operation(POST("/runs/{run}/cancel", errors=(412,)), Permission.WRITE, audit="run.cancel")
async def cancel_run(
    services: Services, caller: Principal, run: str, reason: Reason = "cancelled", if_match: IfMatch = None
) -> RunDetails:
    """Cancel a run and its active tasks; running code is stopped."""
    check = await _make_check(services, caller, run, if_match)
    await services.workflows.changes.cancel(caller, run, reason, check=check)
    with after_change(f"run '{run}' was cancelled"):
        return await read_run(services, caller, run)


@operation(POST("/runs/{run}/retry", errors=(412,)), Permission.WRITE, audit="run.retry")
async def retry_run(
    services: Services,
    caller: Principal,
    run: str,
    from_: From = None,
    latest: Latest = False,
    preview: Preview = False,
    if_match: IfMatch = None,
) -> Rerun:
    """Rerun what failed in a run, or from some tasks on; a preview says what reruns and what is reused."""
    check = await _make_check(services, caller, run, if_match)
    tasks = [from_] if isinstance(from_, str) else from_
    cleared = await services.workflows.changes.clear(caller, run, tasks, preview=preview, latest=latest, check=check)
    return Rerun.of_cleared(run, cleared, preview=preview)


@operation(POST("/runs/{run}/clear", errors=(412,)), Permission.WRITE, audit="run.clear")
async def clear_run(
    services: Services,
    caller: Principal,
    run: str,
    tasks: Tasks,
    latest: Latest = False,
    preview: Preview = False,
    if_match: IfMatch = None,
) -> Rerun:
    """Clear tasks of a run, and all tasks after them, so that they rerun; a preview changes nothing."""
    check = await _make_check(services, caller, run, if_match)
    cleared = await services.workflows.changes.clear(caller, run, tasks, preview=preview, latest=latest, check=check)
    return Rerun.of_cleared(run, cleared, preview=preview)


@operation(PUT("/runs/{run}/note", errors=(412,)), Permission.WRITE, audit="run.note")
async def note_run(
    services: Services, caller: Principal, run: str, text: NoteText, task: NotedTask = None, if_match: IfMatch = None
) -> RunInfo:
    """Write the note on a run, or on one of its tasks, in place of the previous one."""
    await _make_check(services, caller, run, if_match)
    await services.workflows.changes.note(caller, run, text, task)
    return await read_info(services, caller, run)


async def read_info(services: Services, caller: Principal, run: str) -> RunInfo:
    """Return a run without its tasks, with its note."""
    row = await services.workflows.runs.load_run(caller, run)
    return RunInfo.of_row(row, (await services.workflows.runs.read_notes([row])).get(run))
