"""Operator actions on a run: which tasks rerun when some are cleared, and the one change that clears or cancels. Pure.

Clearing a task discards its outcome, so that the planner decides on it again. Its downstream tasks were built on that
outcome and are cleared too; nothing else is touched. Active tasks are cancelled first, as the transition table demands,
and attempt numbers keep counting: a late report of an interrupted attempt names a number that is no longer current.

A run of which nothing is running may continue with another version of its workflow (`VersionSwitch`). Then tasks that
are new in that version begin too, tasks that it does not have are removed, and tasks that wait for a slot or a retry
are decided on again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import RequestError
from tidemill.workflows.change import Change, TaskChange
from tidemill.workflows.lookup import unknown_task
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptRow, RunEvent, RunEventBatch, RunRecord, TaskRow
from tidemill.workflows.run_draft import current_attempt_row, new_task_row, run_event, task_event
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.waits import WaitChanges


class VersionSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and the workflow version that it continues with."""

    record: RunRecord
    version: str
    new_spec: WorkflowSpec
    """The structure of the new version."""
    old_spec: WorkflowSpec | None = None
    """The structure of the old version; None if it cannot be read."""
    attempt_counters: Mapping[str, tuple[int, int]] = {}
    """The highest attempt and try number of each task that was ever tried in the run."""

    @property
    def removed_tasks(self) -> dict[str, list[TaskRow]]:
        """The task runs of tasks that the new version does not have."""
        return {name: rows for name, rows in self.record.by_task().items() if name not in self.new_spec.by_name}

    @property
    def restarted_tasks(self) -> set[str]:
        """The tasks that are new, those mapped over a different list, and those that are still undecided."""
        rows = self.record.by_task()
        return {task.name for task in self.new_spec.tasks if self._restarts(task, rows.get(task.name, []))}

    def _restarts(self, task: TaskSpec, rows: list[TaskRow]) -> bool:
        if all(row.state is TaskState.NONE for row in rows):
            return True
        old_task = None if self.old_spec is None else self.old_spec.by_name.get(task.name)
        if old_task is not None:
            return _mapped_over(old_task) != _mapped_over(task)
        return (rows[0].index != UNMAPPED) != (task.each is not None)

    def new_row(self, task: TaskSpec) -> TaskRow:
        """Return a task run for a task that the run lacks; numbers continue if the run had that task before."""
        attempt, tries = self.attempt_counters.get(task.name, (0, 0))
        return replace(new_task_row(task, self._executor_of(task)), attempt=attempt, tries=tries)

    def with_placement(self, row: TaskRow) -> TaskRow:
        """Return a task run with the pool, priority, queue and executor of the new version."""
        task = self.new_spec.by_name[row.task]
        executor = self._executor_of(task)
        return replace(row, pool=task.pool, priority=task.priority, queue=task.queue, executor=executor)

    def _executor_of(self, task: TaskSpec) -> str:
        """Return the executor that a task names, or else the one of the run's tasks that name none."""
        if task.executor is not None:
            return task.executor
        old_tasks = self.old_spec.tasks if self.old_spec is not None else ()
        with_own_executor = {one.name for one in old_tasks if one.executor is not None}
        rows = self.record.tasks
        return next((row.executor for row in rows if row.task not in with_own_executor), rows[0].executor)


def _mapped_over(task: TaskSpec) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the source that a task is mapped over, and the variants that it takes of it."""
    return task.each, None if task.mapping_edge is None else task.mapping_edge.takes


class OperatorAction(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts on a run, when and why."""

    at: datetime
    actor: str
    reason: str = ""


class ClearPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of clearing tasks of a run: what would rerun, and the change that does it."""

    record: RunRecord
    spec: WorkflowSpec
    """The structure that the run continues with."""
    switch: VersionSwitch | None
    names: list[str]
    """The tasks that rerun, in topological order."""
    scope: Mapping[str, bool]
    """Every task that is cleared, started or not; True if only its failed and waiting elements are."""

    @property
    def reused(self) -> list[str]:
        """The tasks that succeeded and are not cleared, in topological order: their values are used as they are."""
        rows = self.record.by_task()
        kept = [task.name for task in self.spec.topological_order if task.name not in self.scope]
        return [name for name in kept if any(row.state is TaskState.SUCCESS for row in rows.get(name, ()))]

    @property
    def elements(self) -> dict[str, tuple[int, int]]:
        """For each mapped task in `names`: how many of its elements rerun, and how many it has.

        A task whose list is recomputed is left out: the number of its elements is not known yet.
        """
        rows_by_task, restarted, counts = self.record.by_task(), self._restarted, {}
        for name in self.names:
            if name in restarted:
                continue
            rows = rows_by_task[name]
            if rows[0].index != UNMAPPED and self.spec.by_name[name].each not in self.scope:
                cleared = [row for row in rows if not self.scope[name] or self._reruns_alone(row)]
                counts[name] = len(cleared), len(rows)
        return counts

    def build_change(self, action: OperatorAction) -> Change:
        """Return the change that clears the tasks, and queues the run again if it had ended."""
        builder = _ClearBuilder(self.record, action, self.switch)
        rows_by_task, restarted = self.record.by_task(), self._restarted
        if self.switch is not None:
            builder.switch_version(self.switch)
        for task in self.spec.topological_order:
            if task.name not in self.scope or task.name in restarted:
                continue
            rows = rows_by_task[task.name]
            is_mapped = rows[0].index != UNMAPPED
            if is_mapped and task.each in self.scope:
                builder.collapse_elements(rows)
            elif is_mapped and self.scope[task.name]:
                builder.reset_rows([row for row in rows if self._reruns_alone(row)])
            else:
                builder.reset_rows(rows)
                builder.cleared_outputs.append(task.name)
                builder.forgotten_steps += [] if self.scope[task.name] else [task.name]
        return builder.build_change()

    def _reruns_alone(self, row: TaskRow) -> bool:
        """Return whether an element of a mapped task reruns, though not all of them do."""
        return row.state.has_failed or (self.switch is not None and row.state in _WAITING_STATES)

    @property
    def _restarted(self) -> Collection[str]:
        return self.switch.restarted_tasks if self.switch is not None else ()


def plan_clear(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None = None, switch: VersionSwitch | None = None
) -> ClearPlan:
    """Return the plan that clears the named tasks and everything downstream; raise RequestError if nothing can be.

    Without names, every task that failed, was cancelled or could not run is cleared. With a version switch, so is every
    task that waits, or begins in the new version; `spec` is then the structure of that version.
    """
    if switch is not None and any(row.state.is_claimed for row in record.tasks):
        raise _run_active_error(record)
    scope = _clear_scope(record, spec, tasks, switch)
    started = {row.task for row in record.tasks if row.state is not TaskState.NONE}
    started |= switch.restarted_tasks if switch is not None else set()
    names = [task.name for task in spec.topological_order if task.name in scope and task.name in started]
    is_upgraded = switch is not None and (switch.removed_tasks or not record.run.state.is_terminal)
    if not names and not is_upgraded:
        cause = "none of its tasks has failed" if tasks is None else "none of these tasks has started"
        message = f"run {record.run.id} of workflow '{spec.name}' is {record.run.state}, and {cause}"
        raise RequestError(message, code="nothing_to_retry", status=409, run=record.run.id)
    return ClearPlan(record=record, spec=spec, switch=switch, names=names, scope=scope)


def _clear_scope(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None, switch: VersionSwitch | None
) -> dict[str, bool]:
    """Return the tasks to clear, each with whether only its failed and waiting elements are cleared."""
    if tasks is None:
        seeds = {row.task for row in record.tasks if row.state.has_failed and row.task in spec.by_name}
    elif unknown := [name for name in tasks if name not in spec.by_name]:
        raise unknown_task(spec.name, unknown, spec.by_name)
    else:
        seeds = set(tasks)
    waiting: set[str] = set()
    if switch is not None:
        waiting = {
            row.task for row in record.tasks if row.state in _WAITING_STATES and row.task in spec.by_name
        } - seeds
        seeds |= switch.restarted_tasks | waiting
    downstream = {name for seed in seeds for name in spec.all_downstream(seed)}
    return {name: (tasks is None or name in waiting) and name not in downstream for name in seeds | downstream}


def _run_active_error(record: RunRecord) -> RequestError:
    run = record.run
    message = (
        f"run {run.id} of workflow '{run.workflow}' has running tasks, and only a run without any can continue with "
        f"another version: wait for their end, or cancel it first, `tidemill runs cancel {run.id}`"
    )
    return RequestError(message, code="run_active", status=409, run=run.id)


def build_cancel_change(record: RunRecord, action: OperatorAction) -> Change:
    """Return the change that cancels a run and all of its task runs that have not ended."""
    if record.run.state.is_terminal:
        message = f"run {record.run.id} of workflow '{record.run.workflow}' has ended already: {record.run.state}"
        raise RequestError(message, code="run_ended", status=409, run=record.run.id)
    at, reason = action.at, action.reason
    open_rows = [row for row in record.tasks if not row.state.is_terminal]
    events = [task_event(row, row.state, TaskState.CANCELLED, reason) for row in open_rows]
    events.append(run_event(record.run, RunState.CANCELLED, reason))
    ended = replace(record.run, state=RunState.CANCELLED, ended_at=at, reason=reason)
    return Change(
        run=record.run.id,
        expected_run=record.run,
        updated_run=ended,
        tasks=[TaskChange(row, _cancelled_row(row, at, reason)) for row in open_rows],
        attempts=_cancelled_attempts(record, open_rows, action),
        waits=WaitChanges(cancelled=None, at=at),
        history=RunEventBatch(at, action.actor, events),
        is_operator_action=True,
    )


class _ClearBuilder:
    """Collects the parts of a change that clears tasks."""

    def __init__(self, record: RunRecord, action: OperatorAction, switch: VersionSwitch | None) -> None:
        self.cleared_outputs: list[str] = []
        self.forgotten_steps: list[str] = []
        self._record = record
        self._action = action
        self._switch = switch
        self._tasks: list[TaskChange] = []
        self._removed: list[TaskRow] = []
        self._added: list[TaskRow] = []
        self._events: list[RunEvent] = []

    def reset_rows(self, rows: Sequence[TaskRow]) -> None:
        """Reset task runs, so that the planner decides on them again."""
        started = [row for row in rows if row.state is not TaskState.NONE]
        self._tasks += [TaskChange(row, self._reset_row(row)) for row in started]
        self._add_clear_events(started)

    def collapse_elements(self, rows: Sequence[TaskRow]) -> None:
        """Replace the elements of a mapped task by one task run, because their list is recomputed.

        It takes over their highest numbers, so that no attempt of a new element has the key of an old one.
        """
        attempt, tries = max(row.attempt for row in rows), max(row.tries for row in rows)
        self._added.append(self._reset_row(replace(rows[0], index=UNMAPPED, attempt=attempt, tries=tries)))
        self.remove_rows(rows)

    def remove_rows(self, rows: Sequence[TaskRow]) -> None:
        """Remove task runs and their outputs."""
        self._removed += rows
        self.cleared_outputs.append(rows[0].task)
        self.forgotten_steps.append(rows[0].task)
        self._add_clear_events([row for row in rows if row.state is not TaskState.NONE])

    def switch_version(self, switch: VersionSwitch) -> None:
        """Remove the tasks that the new version does not have, and add those that begin in it."""
        rows_by_task, restarted = self._record.by_task(), switch.restarted_tasks
        for rows in switch.removed_tasks.values():
            self.remove_rows(rows)
        for task in switch.new_spec.topological_order:
            if task.name in restarted and task.name in rows_by_task:
                self.collapse_elements(rows_by_task[task.name])
            elif task.name in restarted:
                self._added.append(self._reset_row(switch.new_row(task)))

    def _reset_row(self, row: TaskRow) -> TaskRow:
        reset = _reset_row(row, self._action.at)
        return reset if self._switch is None else self._switch.with_placement(reset)

    def _add_clear_events(self, rows: Sequence[TaskRow]) -> None:
        for row in rows:
            self._events += _clear_events(row, self._action.reason)

    def build_change(self) -> Change:
        run, action = self._record.run, self._action
        updated = run if self._switch is None else replace(run, version=self._switch.version)
        if run.state.is_terminal:
            updated = replace(updated, state=RunState.QUEUED, started_at=None, ended_at=None, reason="")
            self._events.append(run_event(run, RunState.QUEUED, action.reason))
        cleared_rows = [*(one.expected for one in self._tasks), *self._removed]
        return Change(
            run=run.id,
            expected_run=run,
            updated_run=None if updated is run else updated,
            tasks=self._tasks,
            removed=self._removed,
            added=self._added,
            attempts=_cancelled_attempts(self._record, cleared_rows, action),
            cleared_outputs=self.cleared_outputs,
            forgotten_steps=self.forgotten_steps,
            waits=WaitChanges(cancelled=[(row.task, row.index) for row in cleared_rows], at=action.at),
            history=RunEventBatch(action.at, action.actor, self._events) if self._events else None,
            is_operator_action=True,
        )


_WAITING_STATES = (TaskState.SCHEDULED, TaskState.UP_FOR_RETRY)
"""Tasks in these states run with the code of the version that their run has by then."""


def _clear_events(row: TaskRow, reason: str) -> Iterator[RunEvent]:
    before = row.state
    if before.is_active:
        yield task_event(row, before, TaskState.CANCELLED, reason)
        before = TaskState.CANCELLED
    yield task_event(row, before, TaskState.NONE, reason)


def _cancelled_attempts(record: RunRecord, rows: Sequence[TaskRow], action: OperatorAction) -> list[AttemptRow]:
    """Return the attempts that end because their task runs were taken from their workers."""
    claimed = [row for row in rows if row.state.is_claimed]
    return [current_attempt_row(record.run.id, row, ended_at=action.at, outcome="cancelled") for row in claimed]


def _reset_row(row: TaskRow, at: datetime) -> TaskRow:
    return replace(
        row,
        state=TaskState.NONE,
        since=at,
        variant=None,
        size=None,
        wake_at=None,
        failures=0,
        recoveries=0,
        deferrals=0,
        claimed_by=None,
        claimed_at=None,
        lease_until=None,
        started_at=None,
        ended_at=None,
        reason="",
    )


def _cancelled_row(row: TaskRow, at: datetime, reason: str) -> TaskRow:
    return replace(
        row,
        state=TaskState.CANCELLED,
        since=at,
        ended_at=at,
        wake_at=None,
        claimed_by=None,
        lease_until=None,
        reason=reason,
    )
