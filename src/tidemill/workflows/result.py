"""What comes back of a run: how it ended, and what became of each of its tasks."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from tidemill.kernel.errors import OperationError
from tidemill.workflows.plan import UNMAPPED, mapped_state
from tidemill.workflows.records import AttemptRow, RunRecord, TaskError, TaskKey, TaskRow
from tidemill.workflows.states import RunState, TaskState


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task. A mapped one is its elements taken together: `mapped` has them, by their numbers."""

    state: TaskState
    attempts: int = 0
    """How often it was tried; of a mapped task, how often the element that needed the most tries."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    output: Any = None
    """What it returned; of a mapped task the list of what its elements did, those that succeeded and can be read."""
    error: TaskError | None = None
    """Why it failed, or why it is tried again; of a mapped task the error of the first element that has one.

    A task that succeeded has one if what it returned cannot be read any more.
    """
    reason: str = ""
    mapped: list["TaskResult"] = []

    @property
    def has_output(self) -> bool:
        """Whether it succeeded, and what it returned can be read."""
        return self.state is TaskState.SUCCESS and self.error is None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, as a rule after its end."""

    id: str
    workflow: str
    state: RunState
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    tasks: dict[str, TaskResult] = {}
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the run has ended well."""
        return self.state is RunState.SUCCESS

    @property
    def outputs(self) -> dict[str, Any]:
        """What the tasks returned that succeeded, by name; without what cannot be read any more."""
        return {name: task.output for name, task in self.tasks.items() if task.has_output}

    def raise_for_status(self) -> Self:
        """Raise an OperationError that says which tasks failed and why, unless the run has ended well."""
        if self.ok:
            return self
        what = f"run {self.id} of workflow '{self.workflow}'"
        if not self.state.is_terminal:
            raise OperationError(f"{what} has not ended: it is {self.state}")
        ended = "was cancelled" if self.state is RunState.CANCELLED else "failed"
        said = "; ".join(self._failure_clauses()) or ("" if self.reason == self.state else self.reason)
        raise OperationError(f"{what} {ended}: {said}" if said else f"{what} {ended}")

    def _failure_clauses(self) -> list[str]:
        """Return a clause for each task that failed by itself; those behind it only follow."""
        said = []
        for name, task in self.tasks.items():
            number = next((number for number, one in enumerate(task.mapped) if one.error is not None), None)
            element = "" if number is None else f" (element {number})"
            if task.state is TaskState.FAILED:
                said.append(f"task '{name}' failed{element}: {task.error}")
        return said


def build_run_result(
    record: RunRecord,
    errors: Mapping[TaskKey, TaskError],
    outputs: Mapping[TaskKey, Any],
    mapped: Collection[str] = (),
) -> RunResult:
    """Return the result of a run from what is stored of it: its rows, its last errors, its outputs, decoded.

    `mapped` names the tasks that are mapped: one of them that had nothing to map over returned an empty list.
    """
    run = record.run
    return RunResult(
        id=run.id,
        workflow=run.workflow,
        state=run.state,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        tasks={
            name: _task_result(run.id, sorted(rows, key=lambda row: row.index), errors, outputs, name in mapped)
            for name, rows in record.by_task().items()
        },
        reason=run.reason,
    )


def last_errors(attempts: Sequence[AttemptRow]) -> dict[TaskKey, TaskError]:
    """Return the error of each task run whose newest try that has ended has one."""
    newest: dict[TaskKey, AttemptRow] = {}
    for one in sorted(attempts, key=lambda one: one.key.attempt):
        if one.outcome:
            newest[one.key.task_key] = one
    return {key: one.error for key, one in newest.items() if one.error is not None}


def _task_result(
    run: str,
    rows: Sequence[TaskRow],
    errors: Mapping[TaskKey, TaskError],
    outputs: Mapping[TaskKey, Any],
    is_mapped: bool,
) -> TaskResult:
    found = [_row_result(row, TaskKey(run, row.task, row.index), errors, outputs) for row in rows]
    if rows[0].index == UNMAPPED:
        is_empty = is_mapped and found[0].state is TaskState.SUCCESS
        return msgspec.structs.replace(found[0], output=[]) if is_empty else found[0]
    ends = [one.ended_at for one in found if one.ended_at is not None]
    return TaskResult(
        state=mapped_state(one.state for one in found),
        attempts=max(one.attempts for one in found),
        started_at=min((one.started_at for one in found if one.started_at is not None), default=None),
        ended_at=max(ends) if len(ends) == len(found) else None,
        output=[one.output for one in found if one.has_output],
        error=next((one.error for one in found if one.error is not None), None),
        reason=next((one.reason for one in found if one.reason), ""),
        mapped=found,
    )


_STATES_WITH_ERROR = (TaskState.FAILED, TaskState.UP_FOR_RETRY, TaskState.SUCCESS)


def _row_result(
    row: TaskRow, key: TaskKey, errors: Mapping[TaskKey, TaskError], outputs: Mapping[TaskKey, Any]
) -> TaskResult:
    error = errors.get(key) if row.state in _STATES_WITH_ERROR else None
    if error is None and row.state is TaskState.FAILED:  # nobody lived to report it
        error = TaskError("OperationError", row.reason)
    return TaskResult(
        state=row.state,
        attempts=row.tries,
        started_at=row.started_at,
        ended_at=row.ended_at,
        output=outputs.get(key) if row.state is TaskState.SUCCESS else None,
        error=error,
        reason=row.reason,
    )
