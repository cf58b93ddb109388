"""Runs as the API shows them."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict, replace

from tidemill.engine.workflows.client.values import ClearResult
from tidemill.server.views.plain_values import to_plain
from tidemill.workflows.params import decode_params
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, RunRecord, RunRow
from tidemill.workflows.result import RunResult, TaskResult
from tidemill.workflows.states import RunState, TaskState


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run without its tasks."""

    id: Annotated[str, msgspec.Meta(examples=["06fh2k8t3v9q"])]
    workflow: Annotated[str, msgspec.Meta(examples=["report"])]
    version: str
    """The workflow version that the run is pinned to."""
    state: RunState
    origin: Annotated[str, msgspec.Meta(examples=["manual"])]
    """What started it: manual, schedule, trigger, firing, backfill or task."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    slot: datetime | None
    """The slot of the schedule that it runs for."""
    backfill: str | None
    params: dict[str, Any] | None
    """By name; null if they cannot be read any more, or are omitted."""
    note: str | None
    reason: str
    """Why it ended, or what it waits for; empty if there is nothing to say."""
    omitted: dict[str, int]
    """The values that a list leaves out because they are large, with their bytes; `GET` of the run has them."""


class RunFailure(msgspec.Struct, frozen=True):
    """The first error of a run."""

    task: str
    type: str
    message: str


class RunDetails(RunSummary, frozen=True, kw_only=True):
    """A run with the results of its tasks: the fields of tm.RunResult, and those of the list."""

    tasks: dict[str, TaskResult]
    """By task, in topological order. Outputs and the elements of mapped tasks only if they were asked for."""
    task_states: dict[TaskState, int]
    """The number of task runs in each state; each element of a mapped task counts."""
    error: RunFailure | None


class RunEventView(msgspec.Struct, frozen=True, kw_only=True):
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


class RerunElements(msgspec.Struct, frozen=True):
    """How many elements of a mapped task rerun."""

    reruns: int
    total: int


class RerunView(msgspec.Struct, frozen=True, kw_only=True):
    """What a retry or clear does, or, for a preview, would do."""

    run: str
    preview: bool
    reruns: list[str]
    """The tasks that rerun, in topological order."""
    reused: list[str]
    """The tasks whose results are kept and used."""
    elements: dict[str, RerunElements]
    """Of mapped tasks that rerun in part."""
    version: str
    """The workflow version that the run continues with."""
    missing_tasks: list[str]
    """Tasks of the run that this version does not have."""
    note: str | None
    """Advice for a run that stays pinned to a version that is not the newest."""


def to_run_summary(row: RunRow, note: str | None, large_params: int | None = None) -> RunSummary:
    """Return a run as lists show it; `large_params` are the bytes of params that its row does not have."""
    return RunSummary(
        id=row.id,
        workflow=row.workflow,
        version=row.version,
        state=row.state,
        origin=row.origin,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        slot=row.slot,
        backfill=row.backfill,
        params=None if large_params else _read_params(row),
        note=note,
        reason=row.reason,
        omitted={"params": large_params} if large_params else {},
    )


def _read_params(row: RunRow) -> dict[str, Any] | None:
    try:
        params: dict[str, Any] = to_plain(decode_params(None, row.params))
    except msgspec.DecodeError:  # one damaged row must not hide all others
        return None
    return params


def to_run_details(record: RunRecord, result: RunResult, note: str | None, *, with_outputs: bool) -> RunDetails:
    """Return a run with its tasks."""
    summary = asdict(to_run_summary(record.run, note)) | {"reason": result.reason}
    return RunDetails(
        **summary,
        tasks={name: _to_task(task, with_outputs=with_outputs) for name, task in result.tasks.items()},
        task_states=dict(Counter(row.state for row in record.tasks)),
        error=_find_failure(result),
    )


def _to_task(task: TaskResult, *, with_outputs: bool) -> TaskResult:
    if not with_outputs:
        return replace(task, output=None, mapped=[])
    mapped = [_to_task(one, with_outputs=True) for one in task.mapped]
    return replace(task, output=to_plain(task.output), mapped=mapped)


def _find_failure(result: RunResult) -> RunFailure | None:
    for name, task in result.tasks.items():
        if task.state is TaskState.FAILED and task.error is not None:
            return RunFailure(name, task.error.type, task.error.message)
    return None


def to_run_events(events: Sequence[EventRow]) -> list[RunEventView]:
    """Return the events of a run, numbered in order."""
    return [to_run_event(number, event) for number, event in enumerate(events, 1)]


def to_run_event(number: int, event: EventRow) -> RunEventView:
    """Return an event of a run."""
    return RunEventView(
        number=number,
        at=event.at,
        actor=event.actor,
        task=event.task,
        index=None if event.index == UNMAPPED else event.index,
        attempt=event.attempt,
        before=event.before,
        after=event.after,
        reason=event.reason,
    )


def to_rerun(run: str, cleared: ClearResult, *, preview: bool) -> RerunView:
    """Return what reruns and what is reused."""
    return RerunView(
        run=run,
        preview=preview,
        reruns=cleared.names,
        reused=cleared.reused,
        elements={name: RerunElements(*counts) for name, counts in cleared.elements.items()},
        version=cleared.version,
        missing_tasks=cleared.missing_tasks,
        note=cleared.note,
    )
