"""Tasks of a run: their states, attempts, outputs and logs, and why they have not run."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import WireName
from tidemill.api.operation import GET, CommandForm, Message, StreamForm, StreamItem, operation
from tidemill.api.paging import Page, PageRequest, decode_cursor, encode_cursor, page_in_order
from tidemill.api.services import Services
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import MAX_INTEGER
from tidemill.workflows.lookup import resolve_task, split_element
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptOutcome, AttemptRow, RunRecord, TaskError, TaskKey, TaskRow
from tidemill.workflows.result import TaskResult, to_plain
from tidemill.workflows.states import TaskState
from tidemill.workflows.step_records import StepKind, StepState, decode_key

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.log_lines import LogLine, LogPosition
    from tidemill.storage.tables.steps import StepRow

RESUMABLE_ELEMENTS = 64
"""The number of elements up to which every line of a followed log has an id, which names a position of each."""
RESUME_INTERVAL = 100
"""With more elements, the number of lines between two ids: at most that many are repeated after a reconnect."""

Index = Annotated[int, Meta(ge=0, le=MAX_INTEGER, description="One element of a mapped task.")] | None
AttemptNumber = Annotated[int, Meta(ge=1, le=MAX_INTEGER, description="The lines of one attempt.")] | None
LogText = Annotated[
    str, Meta(description="A part of the message or of a field, in letters of either case."), WireName("q")
]
Mapped = Annotated[str | None, Meta(description="List the elements of this mapped task."), WireName("task")]
States = Annotated[list[TaskState] | None, Meta(description="Repeat it for several states.")]
_Position = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]


class TaskInfo(Message, frozen=True, kw_only=True):
    """A task of a run: one task run, or all elements of a mapped task together."""

    task: str
    index: int | None
    """The element of a mapped task."""
    state: TaskState
    attempts: int
    """The number of tries; of a mapped task, of the element that needed the most."""
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    """When it is retried, or its deferral ends."""
    reason: str
    error: TaskError | None
    elements: dict[TaskState, int] | None
    """The number of elements in each state; null unless this is a mapped task as a whole."""
    executor: str
    queue: str
    pool: str | None
    priority: int
    worker: str | None
    """The node that has claimed it."""

    @classmethod
    def of_rows(cls, rows: Sequence[TaskRow], result: TaskResult) -> "TaskInfo":
        """Return the message about a task from its task runs: one, or all elements of a mapped task."""
        first = rows[0]
        is_whole = len(rows) > 1 or (first.index != UNMAPPED and bool(result.mapped))
        return cls(
            task=first.task,
            index=None if is_whole else _to_index(first.index),
            state=result.state,
            attempts=result.attempts,
            started_at=result.started_at,
            ended_at=result.ended_at,
            wake_at=min((row.wake_at for row in rows if row.wake_at is not None), default=None),
            reason=result.reason,
            error=result.error,
            elements=dict(Counter(row.state for row in rows)) if is_whole else None,
            executor=first.executor,
            queue=first.queue,
            pool=first.pool,
            priority=first.priority,
            worker=None if is_whole else first.claimed_by,
        )


class AttemptInfo(Message, frozen=True, kw_only=True):
    """An attempt of a task run."""

    task: str
    index: int | None
    """The element of a mapped task."""
    attempt: int
    try_number: int
    """The try that it belongs to: a deferral and the call after it are one try."""
    outcome: AttemptOutcome | None
    """How it ended; null while it is active."""
    executor: str
    worker: str
    claimed_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit: int | None
    """The exit code of its process; negative if a signal ended it."""
    error: TaskError | None

    @classmethod
    def of_row(cls, row: AttemptRow) -> "AttemptInfo":
        """Return the message about a stored attempt."""
        return cls(
            task=row.key.task,
            index=_to_index(row.key.element),
            attempt=row.key.attempt,
            try_number=row.number,
            outcome=row.outcome or None,
            executor=row.executor,
            worker=row.worker,
            claimed_at=row.claimed_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            exit=row.exit,
            error=row.error,
        )


class StepInfo(Message, frozen=True, kw_only=True):
    """Something that a task has done under a name, and does not do again when it is called again."""

    task: str
    index: int | None
    """The element of a mapped task."""
    kind: StepKind
    """What was done: `step` called a function."""
    name: str
    key: Any
    """The key of the call; null if it has none."""
    number: int | None
    """The number of the call under this name, from 1; null with a key."""
    state: StepState
    try_number: int
    """The try of the task that has recorded it."""
    started_at: datetime
    ended_at: datetime | None
    error: TaskError | None
    run: str | None
    """The run that was called."""

    @classmethod
    def of_row(cls, row: "StepRow") -> "StepInfo":
        """Return the message about a stored step."""
        return cls(
            task=row.task,
            index=_to_index(row.element),
            kind=row.kind,
            name=row.name,
            key=decode_key(row.key),
            number=row.call or None,
            state=row.state,
            try_number=row.try_number,
            started_at=row.started_at,
            ended_at=row.ended_at,
            error=row.error,
            run=None,
        )


class TaskOutput(Message, frozen=True, kw_only=True):
    """The return value of a task; of a mapped task, the list of the values of its successful elements."""

    task: str
    index: int | None
    output: Any


class Reasons(Message, frozen=True, kw_only=True):
    """Why a task has not run, or how it ended."""

    reasons: list[str]


class WaitingReasons(Message, frozen=True, kw_only=True):
    """Why the tasks of a run that have not ended have not."""

    reasons: dict[str, list[str]]
    """By task, one sentence each."""


class TaskLogLine(Message, frozen=True, kw_only=True):
    """A line of the log of a task."""

    at: datetime
    level: str
    message: str
    fields: dict[str, Any]
    stream: str
    """Where it comes from: log, stdout or stderr."""
    attempt: int
    task: str = ""
    index: int | None
    """The element of a mapped task."""
    logger: str = ""
    """The name of the logger; empty for `ctx.log`, and for what is printed."""

    @classmethod
    def of_line(cls, line: "LogLine") -> "TaskLogLine":
        """Return the message about a line of a log."""
        record = line.record
        return cls(
            at=record.at,
            level=record.level,
            message=record.message,
            fields=to_plain(record.fields),
            stream=record.stream,
            attempt=line.attempt,
            task=line.key.task,
            index=_to_index(line.key.element),
            logger=record.logger,
        )


class _FoundTask(NamedTuple):
    """A task of a run, or one element of it."""

    rows: list[TaskRow]
    result: TaskResult
    element: int | None


def _to_index(element: int) -> int | None:
    return None if element == UNMAPPED else element


def _label(task: str, index: int | None) -> str:
    """Return a task or element as runs name it: "clean", or "clean[7]"."""
    return task if index is None else f"{task}[{index}]"


async def _read_task(
    services: Services, caller: Principal, run: str, label: str, *, with_output: bool = False
) -> _FoundTask:
    """Return the rows and the result of a task, or of one element; RequestError if the run has none of that name."""
    record = await services.workflows.runs.load_task(caller, run, label)
    result = await services.workflows.runs.load_plain_result(record, with_outputs=with_output)
    (whole,) = result.tasks.values()
    is_element = split_element(label)[1] is not None
    one = whole.mapped[0] if is_element else whole
    return _FoundTask(record.tasks, one, record.tasks[0].index if is_element else None)


@operation(GET("/runs/{run}/tasks"), Permission.READ)
async def list_tasks(
    services: Services, caller: Principal, page: PageRequest, run: str, mapped: Mapped = None, state: States = None
) -> Page[TaskInfo]:
    """List the tasks of a run in topological order, or the elements of a mapped task."""
    if mapped is not None:
        return await _list_elements(services, caller, page, TaskKey(run, mapped, 0), state or [])
    tasks = await read_tasks(services, await services.workflows.runs.load_record(caller, run))
    return page_in_order(tasks, page, is_listed=lambda task: not state or task.state in state)


async def read_tasks(services: Services, record: RunRecord) -> list[TaskInfo]:
    """Return the tasks of a loaded run in topological order; a mapped task is one of them."""
    rows, result = record.by_task(), await services.workflows.runs.load_plain_result(record)
    return [TaskInfo.of_rows(rows[name], task) for name, task in result.tasks.items()]


async def _list_elements(
    services: Services, caller: Principal, page: PageRequest, whole: TaskKey, states: Sequence[TaskState]
) -> Page[TaskInfo]:
    """Return a page of the elements of a mapped task; its cursor is the element that the next page begins with."""
    first = whole._replace(element=decode_cursor(page.cursor, _Position) or 0)
    record, total = await services.workflows.runs.load_elements(caller, first, states, page.limit + 1)
    rows = record.tasks[: page.limit]
    result = await services.workflows.runs.load_plain_result(record._replace(tasks=rows))
    elements = result.tasks[first.task].mapped if rows else ()
    items = [TaskInfo.of_rows([row], one) for row, one in zip(rows, elements, strict=True)]
    following = encode_cursor(rows[-1].index + 1) if len(record.tasks) > page.limit else None
    return Page(items=items, total=total, next=following)


@operation(GET("/runs/{run}/why"), Permission.READ)
async def explain_run(services: Services, caller: Principal, run: str) -> WaitingReasons:
    """Say why each task of a run that has not ended has not: what it waits for, or where it runs."""
    return WaitingReasons(reasons=await services.workflows.explainer.why_waiting(caller, run))


@operation(GET("/runs/{run}/tasks/{task}"), Permission.READ)
async def get_task(services: Services, caller: Principal, run: str, task: str, index: Index = None) -> TaskInfo:
    """Return a task of a run, or one element of a mapped task."""
    found = await _read_task(services, caller, run, _label(task, index))
    return TaskInfo.of_rows(found.rows, found.result)


@operation(GET("/runs/{run}/tasks/{task}/why"), Permission.READ)
async def explain_task(services: Services, caller: Principal, run: str, task: str, index: Index = None) -> Reasons:
    """Say why a task has not run, or how it ended."""
    return Reasons(reasons=await services.workflows.explainer.why(caller, run, _label(task, index)))


@operation(GET("/runs/{run}/tasks/{task}/attempts"), Permission.READ)
async def list_attempts(
    services: Services, caller: Principal, page: PageRequest, run: str, task: str, index: Index = None
) -> Page[AttemptInfo]:
    """List the attempts of a task, by element, oldest first."""
    name, element = resolve_task(await services.workflows.runs.load_record(caller, run), _label(task, index))
    attempts = [
        row
        for row in await services.workflows.runs.load_attempts(caller, run)
        if row.key.task == name and element in (None, row.key.element)
    ]
    return page_in_order([AttemptInfo.of_row(row) for row in sorted(attempts, key=lambda row: row.key)], page)


@operation(
    GET("/runs/{run}/tasks/{task}/steps"),
    Permission.READ,
    command=CommandForm(
        "runs steps",
        columns=("index", "kind", "name", "key", "number", "state", "started_at", "ended_at", "error.message"),
        rare=("index", "key", "number", "error.message"),
        empty="task '{task}' has no steps",
    ),
)
async def list_steps(
    services: Services, caller: Principal, page: PageRequest, run: str, task: str, index: Index = None
) -> Page[StepInfo]:
    """List what a task has done under a name, oldest first: the steps of `ctx.step`."""
    rows = (await services.workflows.runs.load_task(caller, run, _label(task, index))).tasks
    element = None if len(rows) != 1 else rows[0].index
    found = await services.store.steps.list_of(run, rows[0].task, element)
    return page_in_order([StepInfo.of_row(row) for row in found], page)


@operation(GET("/runs/{run}/tasks/{task}/output", errors=(409,)), Permission.READ)
async def get_output(services: Services, caller: Principal, run: str, task: str, index: Index = None) -> TaskOutput:
    """Return the output of a task that has succeeded, as plain values."""
    found = await _read_task(services, caller, run, _label(task, index), with_output=True)
    if not found.result.has_output:
        message = f"task '{_label(task, index)}' of run {run} has no output: it is {found.result.state}"
        raise RequestError(message, code="no_output", status=409, run=run, task=task)
    return TaskOutput(task=found.rows[0].task, index=found.element, output=to_plain(found.result.output))


async def _follow_logs(
    services: Services,
    caller: Principal,
    after: str | None,
    run: str,
    task: str,
    index: int | None,
    attempt: int | None,
    text: str,
) -> AsyncGenerator[StreamItem[TaskLogLine], None]:
    label = _label(task, index)
    await services.workflows.runs.load_task(caller, run, label)  # an unknown one is an error, not a stream
    return _lines_after(services, caller, _decode_positions(after), run, label, attempt, text)


async def _lines_after(
    services: Services,
    caller: Principal,
    after: "dict[int, LogPosition]",
    run: str,
    label: str,
    attempt: int | None,
    text: str,
) -> AsyncGenerator[StreamItem[TaskLogLine], None]:
    """Yield log lines; the id of each has the position of the last line of every element."""
    from tidemill.engine.workflows.client.log_lines import LogFilter  # on use: commands that show help need no engine

    positions, number, wanted = dict(after), 0, LogFilter(attempt, text)
    async for line in services.workflows.watcher.logs(caller, run, label, after=after):
        number += 1
        positions[line.key.element] = line.position
        if wanted.takes(line):
            yield StreamItem(TaskLogLine.of_line(line), _encode_positions(positions, number))


def _encode_positions(positions: "dict[int, LogPosition]", number: int) -> str | None:
    has_id = len(positions) <= RESUMABLE_ELEMENTS or number % RESUME_INTERVAL == 0
    return encode_cursor(list(positions.items())) if has_id else None


def _decode_positions(event_id: str | None) -> "dict[int, LogPosition]":
    """Return the positions after which a log is followed, from the id of the last line that a client has."""
    from tidemill.engine.workflows.client.log_lines import LogPosition  # on use: commands that show help need no engine

    try:
        positions = dict(decode_cursor(event_id or None, list[tuple[int, LogPosition]]) or ())
    except RequestError as error:
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id") from error
    if not all(abs(number) <= MAX_INTEGER for position in positions.values() for number in position):
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id")
    return positions


@operation(GET("/runs/{run}/tasks/{task}/logs"), Permission.READ, stream=StreamForm("log", TaskLogLine, _follow_logs))
async def list_logs(
    services: Services,
    caller: Principal,
    page: PageRequest,
    run: str,
    task: str,
    index: Index = None,
    attempt: AttemptNumber = None,
    text: LogText = "",
) -> Page[TaskLogLine]:
    """List the log lines of a task, by element; as server-sent events, follow them until the task has ended."""
    from tidemill.engine.workflows.client.log_lines import (  # on use: commands that show help need no engine
        LogFilter,
        LogPosition,
    )

    after = decode_cursor(page.cursor, tuple[int, LogPosition])
    wanted = LogFilter(attempt, text)
    found = await services.workflows.watcher.list_logs(
        caller, run, _label(task, index), wanted, after=after, limit=page.limit + 1
    )
    shown = found.lines[: page.limit]
    following = encode_cursor((shown[-1].key.element, shown[-1].position)) if len(found.lines) > page.limit else None
    return Page(items=[TaskLogLine.of_line(line) for line in shown], total=found.total, next=following)
