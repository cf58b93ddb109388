"""The result of a run, as `run` and `wait` return it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import msgspec

from tidemill.annotations.declared import to_declared
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.plan import UNMAPPED, mapped_state
from tidemill.workflows.records import AttemptRow, RunRecord, TaskError, TaskKey, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

if TYPE_CHECKING:
    from tidemill.workflows.definition import Task

Output = TypeVar("Output")


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one task. Of a mapped task, of all its elements together; `mapped` has each, by number."""

    state: TaskState
    attempts: int = 0
    """The number of tries; of a mapped task, of the element that needed the most."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    output: Any = None
    """The return value; of a mapped task, the list of the readable values of its successful elements."""
    error: TaskError | None = None
    """The error of the last failed try; of a mapped task, of its first element that has one.

    A successful task has one if its stored value can no longer be read.
    """
    reason: str = ""
    mapped: list["TaskResult"] = []

    @property
    def has_output(self) -> bool:
        """Whether it succeeded and its value can be read."""
        return self.state is TaskState.SUCCESS and self.error is None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at one moment, usually after its end."""

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
        """Whether the run has succeeded."""
        return self.state is RunState.SUCCESS

    @property
    def outputs(self) -> dict[str, Any]:
        """The values of the successful tasks, by name; without values that can no longer be read."""
        return {name: task.output for name, task in self.tasks.items() if task.has_output}

    @overload
    def output(self, task: Callable[..., Awaitable[Output]], /) -> Output: ...
    @overload
    def output(self, task: Callable[..., Output], /) -> Output: ...
    @overload
    def output(self, task: "Task | str", /) -> Any: ...
    def output(self, task: Any, /) -> Any:
        """Return what a task returned. Name it by its function: the output has the type that this declares.

        A name, "publish", does as well; the output is a plain value then if it comes from a server. A mapped task has
        `tasks[...].mapped`.
        """
        name = task if isinstance(task, str) else getattr(task, "__name__", None) or task.name
        found = self.tasks.get(name)
        if found is None:
            message = f"run {self.id} has no task '{name}'{did_you_mean(name, self.tasks)}"
            raise NotFoundError("task", name, message, list(self.tasks))
        if found.mapped and not isinstance(task, str):
            message = f"task '{name}' is mapped, and each element has an output: read `outputs['{name}']`, a list"
            raise RequestError(message, code="no_output", status=409, run=self.id, task=name)
        if not found.has_output:
            message = f"task '{name}' of run {self.id} has no output: it is {found.state}"
            raise RequestError(message, code="no_output", status=409, run=self.id, task=name)
        is_call = getattr(task, "graph", None) is not None  # the outputs of a called graph, by node
        return found.output if is_call else to_declared(found.output, task)

    def raise_for_status(self) -> Self:
        """Raise an OperationError that names the failed tasks and their errors, unless the run has succeeded."""
        if self.ok:
            return self
        what = f"run {self.id} of workflow '{self.workflow}'"
        if not self.state.is_terminal:
            raise OperationError(f"{what} has not ended: it is {self.state}")
        ended = "was cancelled" if self.state is RunState.CANCELLED else "failed"
        cause = "; ".join(self._failure_clauses()) or ("" if self.reason == self.state else self.reason)
        raise OperationError(f"{what} {ended}: {cause}" if cause else f"{what} {ended}")

    def _failure_clauses(self) -> list[str]:
        """Return a clause for each task that failed itself; tasks that failed because of another have none."""
        clauses = []
        for name, task in self.tasks.items():
            number = next((number for number, one in enumerate(task.mapped) if one.error is not None), None)
            element = "" if number is None else f" (element {number})"
            if task.state is TaskState.FAILED:
                clauses.append(f"task '{name}' failed{element}: {task.error}")
        return clauses


def build_run_result(
    record: RunRecord, spec: WorkflowSpec, errors: Mapping[TaskKey, TaskError], outputs: Mapping[TaskKey, Any]
) -> RunResult:
    """Return the result of a run from its stored rows, its last errors and its decoded outputs, in topological order.

    A mapped task that succeeded without elements was mapped over an empty list.
    """
    run, rows, tasks = record.run, record.by_task(), dict[str, TaskResult]()
    for task in spec.topological_order:
        if task.name in rows:
            tasks[task.name] = _task_result(run.id, rows.pop(task.name), errors, outputs, task.each is not None)
    for name, unknown in rows.items():  # of a spec that cannot be read
        tasks[name] = _task_result(run.id, unknown, errors, outputs, is_mapped=False)
    return RunResult(
        id=run.id,
        workflow=run.workflow,
        state=run.state,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        tasks=tasks,
        reason=run.reason,
    )


def last_errors(attempts: Sequence[AttemptRow]) -> dict[TaskKey, TaskError]:
    """Return the errors by task run, from the newest ended attempt of each."""
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
    if rows[0].index == UNMAPPED:
        whole = _row_result(rows[0], TaskKey(run, rows[0].task, UNMAPPED), errors, outputs)
        is_empty = is_mapped and whole.state is TaskState.SUCCESS
        return msgspec.structs.replace(whole, output=[]) if is_empty else whole
    rows = sorted(rows, key=attrgetter("index"))
    results = [_row_result(row, TaskKey(run, row.task, row.index), errors, outputs) for row in rows]
    ends = [one.ended_at for one in results if one.ended_at is not None]
    return TaskResult(
        state=mapped_state(one.state for one in results),
        attempts=max(one.attempts for one in results),
        started_at=min((one.started_at for one in results if one.started_at is not None), default=None),
        ended_at=max(ends) if len(ends) == len(results) else None,
        output=[one.output for one in results if one.has_output],
        error=next((one.error for one in results if one.error is not None), None),
        reason=next((one.reason for one in results if one.reason), ""),
        mapped=results,
    )


def to_plain(value: Any) -> Any:
    """Return a value that every format can hold: keys become texts, unknown objects their description."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)


_STATES_WITH_ERROR = (TaskState.FAILED, TaskState.UP_FOR_RETRY, TaskState.SUCCESS)


def _row_result(
    row: TaskRow, key: TaskKey, errors: Mapping[TaskKey, TaskError], outputs: Mapping[TaskKey, Any]
) -> TaskResult:
    error = errors.get(key) if row.state in _STATES_WITH_ERROR else None
    if error is None and row.state is TaskState.FAILED:  # no worker survived to report an error
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
