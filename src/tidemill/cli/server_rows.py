"""Turns what a server answers about runs into the rows that a store has: commands show both alike."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tidemill.api.runs import RunInfo, RunTransition
from tidemill.api.tasks import AttemptInfo, TaskLogLine
from tidemill.cli.workflow_service import NumberedLine
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, AttemptRow, EventRow, RunRecord, RunRow, TaskRow
from tidemill.workflows.states import RunState, TaskState


def to_run_row(info: RunInfo) -> RunRow:
    """Return a run without its tasks."""
    left_out = ("params", "note", "omitted", "etag")
    fields = {name: getattr(info, name) for name in RunInfo.__struct_fields__ if name not in left_out}
    return RunRow(**fields, tenant="", params=msgspec.msgpack.encode(info.params))


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


class RunReplay:
    """A run as it was after each of its transitions, from the first one on."""

    def __init__(self, row: RunRow, tasks: Iterable[str]) -> None:
        self._run = replace(row, state=RunState.QUEUED, started_at=None, ended_at=None, reason="")
        self._tasks = {(name, UNMAPPED): TaskRow(task=name) for name in tasks}

    @property
    def record(self) -> RunRecord:
        """The run and its task runs."""
        return RunRecord(self._run, list(self._tasks.values()))

    def apply(self, transition: RunTransition) -> None:
        """Apply the next transition; events that are none, such as notes, change nothing."""
        if transition.task is None:
            if transition.after in set(RunState):
                self._run = _moved(self._run, RunState(transition.after), transition)
        elif transition.after in set(TaskState):
            self._apply_to_task(transition.task, transition)

    def _apply_to_task(self, task: str, transition: RunTransition) -> None:
        index = UNMAPPED if transition.index is None else transition.index
        if index != UNMAPPED:
            self._tasks.pop((task, UNMAPPED), None)  # it is known as its elements from now on
        row = self._tasks.get((task, index)) or TaskRow(task=task, index=index)
        state, tries = TaskState(transition.after), row.tries
        if transition.attempt > row.attempt:
            tries += 1
        if state is TaskState.DEFERRED or (state is TaskState.SCHEDULED and row.state is TaskState.QUEUED):
            tries -= 1  # the attempt goes on later, or was handed back
        row = replace(row, attempt=transition.attempt, tries=tries)
        self._tasks[task, index] = _moved(row, state, transition)


Row = TypeVar("Row", RunRow, TaskRow)


def _moved(row: Row, state: RunState | TaskState, transition: RunTransition) -> Row:
    """Return a row in its next state, with the times that follow from it."""
    is_running = state in (RunState.RUNNING, TaskState.RUNNING)
    started_at = (row.started_at or transition.at) if is_running else row.started_at
    ended_at = transition.at if state.is_terminal else None
    return replace(row, state=state, reason=transition.reason, started_at=started_at, ended_at=ended_at)
