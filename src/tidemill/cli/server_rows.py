"""Turns what a server answers about runs into the rows that a store has: commands show both alike."""

from collections.abc import Iterator, Mapping

import msgspec

from tidemill.cli.workflow_service import NumberedLine, WorkflowLine
from tidemill.client.values import AttemptInfo, RunInfo, RunTransition, TaskLogLine, WorkflowInfo
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, AttemptRow, EventRow, RunRow, TaskRow
from tidemill.workflows.result import TaskResult


def to_run_row(info: RunInfo) -> RunRow:
    """Return a run without its tasks."""
    fields = {name: getattr(info, name) for name in RunInfo.__struct_fields__ if name not in ("params", "note")}
    return RunRow(**fields, tenant="", params=msgspec.msgpack.encode(info.params))


def to_task_rows(tasks: Mapping[str, TaskResult]) -> Iterator[TaskRow]:
    """Yield the task runs: one of each task, or all elements of a mapped task."""
    for name, task in tasks.items():
        elements = enumerate(task.mapped) if task.mapped else [(UNMAPPED, task)]
        for index, one in elements:
            yield TaskRow(
                task=name,
                index=index,
                state=one.state,
                tries=one.attempts,
                started_at=one.started_at,
                ended_at=one.ended_at,
                reason=one.reason,
            )


def to_attempt_row(run: str, info: AttemptInfo) -> AttemptRow:
    """Return an attempt."""
    index = UNMAPPED if info.index is None else info.index
    return AttemptRow(
        key=AttemptKey(run, info.task, index, info.attempt),
        number=info.try_number,
        executor=info.executor,
        worker=info.worker,
        claimed_at=info.claimed_at,
        started_at=info.started_at,
        ended_at=info.ended_at,
        outcome=info.outcome or "",
        exit=info.exit,
        error=info.error,
    )


def to_event_row(run: str, transition: RunTransition) -> EventRow:
    """Return an event of a run."""
    return EventRow(
        run=run,
        task=transition.task,
        index=UNMAPPED if transition.index is None else transition.index,
        attempt=transition.attempt,
        before=transition.before,
        after=transition.after,
        at=transition.at,
        actor=transition.actor,
        reason=transition.reason,
    )


def to_numbered_line(line: TaskLogLine, number: int) -> NumberedLine:
    """Return a line of the log of a task."""
    return NumberedLine(
        element=line.index,
        number=number,
        at=line.at,
        message=line.message,
        level=line.level,
        stream=line.stream,
        fields=line.fields,
    )


def to_workflow_line(info: WorkflowInfo) -> WorkflowLine:
    """Return a workflow as lists show it."""
    last = info.last_run
    return WorkflowLine(
        workflow=info.name,
        versions=None,
        paused=info.paused,
        active=info.active_runs,
        last_run=None if last is None else last.created_at,
        state=None if last is None else last.state,
    )
