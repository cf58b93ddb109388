"""Intervening in a run: what reruns if tasks are cleared, and the one change that clears or cancels. Pure.

To clear a task is to forget how it ended, so that the planner decides on it anew. Whatever comes after it was built on
that, and is cleared too; nothing else is touched. What is still active is cancelled first, as the table of moves wants
it, and the numbers of attempts go on: a late report of what was interrupted finds a number that is no longer asked for.

A run that has ended may go on with another version of its workflow (`Succession`). Then what is new begins too, and
what the version does not have is forgotten.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import RequestError
from tidemill.workflows.change import Change, TaskChange, run_event, task_event
from tidemill.workflows.lookup import unknown_task
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptRow, RunEvent, RunEventBatch, RunRecord, TaskRow, current_attempt_row
from tidemill.workflows.run_draft import new_task_row
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState


class VersionSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and the version that it is to go on with."""

    record: RunRecord
    version: str
    new_spec: WorkflowSpec
    """The structure that it is to have."""
    old_spec: WorkflowSpec | None = None
    """The structure that it had; None if that cannot be read."""
    attempt_counters: Mapping[str, tuple[int, int]] = {}
    """Of each task that was ever tried in the run: its highest attempt, and its highest try."""

    @property
    def removed_tasks(self) -> dict[str, list[TaskRow]]:
        """The task runs of tasks that the new version does not have."""
        return {name: rows for name, rows in self.record.by_task().items() if name not in self.new_spec.by_name}

    @property
    def restarted_tasks(self) -> set[str]:
        """The tasks that are new, those whose list is another one, and those on which nobody has decided yet."""
        rows = self.record.by_task()
        return {task.name for task in self.new_spec.tasks if self._restarts(task, rows.get(task.name, []))}

    def _restarts(self, task: TaskSpec, rows: list[TaskRow]) -> bool:
        if all(row.state is TaskState.NONE for row in rows):
            return True
        known = None if self.old_spec is None else self.old_spec.by_name.get(task.name)
        if known is not None:
            return _mapped_over(known) != _mapped_over(task)
        return (rows[0].index != UNMAPPED) != (task.each is not None)

    def new_row(self, task: TaskSpec) -> TaskRow:
        """Return a task run of a task that the run did not have; numbers go on if it had it once."""
        attempt, tries = self.attempt_counters.get(task.name, (0, 0))
        return replace(new_task_row(task, self._executor_of(task)), attempt=attempt, tries=tries)

    def with_placement(self, row: TaskRow) -> TaskRow:
        """Return a task run that is to run where the new version says."""
        task = self.new_spec.by_name[row.task]
        where = self._executor_of(task)
        return replace(row, pool=task.pool, priority=task.priority, queue=task.queue, executor=where)

    def _executor_of(self, task: TaskSpec) -> str:
        """Return the executor that a task names, or that at which those run that name none."""
        if task.executor is not None:
            return task.executor
        naming = (
            {one.name for one in self.old_spec.tasks if one.executor is not None}
            if self.old_spec is not None
            else set()
        )
        rows = self.record.tasks
        return next((row.executor for row in rows if row.task not in naming), rows[0].executor)


def _mapped_over(task: TaskSpec) -> tuple[str | None, tuple[str, ...] | None]:
    """Return what a task is mapped over, and which variants of that it takes."""
    return task.each, None if task.mapping_edge is None else task.mapping_edge.takes


class OperatorAction(msgspec.Struct, frozen=True, kw_only=True):
    """Who intervenes, when and why."""

    at: datetime
    actor: str
    reason: str = ""


def tasks_to_clear(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None = None, switch: VersionSwitch | None = None
) -> list[str]:
    """Return the tasks that would rerun, in order, for a preview.

    Without names: everything that failed, was cancelled or could not run; with names, these; and all that comes after.
    With another version, also what begins in it.
    """
    if switch is not None and not record.run.state.is_terminal:
        raise _run_active_error(record)
    reach = _clear_scope(record, spec, tasks, switch)
    begun = {row.task for row in record.tasks if row.state is not TaskState.NONE}
    begun |= switch.restarted_tasks if switch is not None else set()
    names = [task.name for task in spec.topological_order if task.name in reach and task.name in begun]
    if not names and not (switch is not None and switch.removed_tasks):
        what = "nothing of it has failed" if tasks is None else "none of these tasks has begun"
        message = f"run {record.run.id} of workflow '{spec.name}' is {record.run.state}, and {what}"
        raise RequestError(message, code="nothing_to_retry", status=409, run=record.run.id)
    return names


def _run_active_error(record: RunRecord) -> RequestError:
    run = record.run
    message = (
        f"run {run.id} of workflow '{run.workflow}' is {run.state}, and only one that has ended goes on with another "
        f"version: wait for its end, or cancel it first, `tidemill runs cancel {run.id}`"
    )
    return RequestError(message, code="run_active", status=409, run=run.id)


def count_cleared_elements(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None, switch: VersionSwitch | None = None
) -> dict[str, tuple[int, int]]:
    """Return of each mapped task that `clear` names how many of its elements would rerun, and how many it has.

    One whose list is made anew is not among them: nobody knows how many it will have.
    """
    reach, of_tasks, found = _clear_scope(record, spec, tasks, switch), record.by_task(), {}
    anew = switch.restarted_tasks if switch is not None else set()
    for name in tasks_to_clear(record, spec, tasks, switch):
        if name in anew:
            continue
        rows = of_tasks[name]
        if rows[0].index != UNMAPPED and spec.by_name[name].each not in reach:
            cleared = [row for row in rows if not reach[name] or row.state.has_failed]
            found[name] = len(cleared), len(rows)
    return found


def build_clear_change(
    record: RunRecord,
    spec: WorkflowSpec,
    tasks: Collection[str] | None,
    action: OperatorAction,
    switch: VersionSwitch | None = None,
) -> Change:
    """Return the change that clears what `clear` names, and queues the run again if it had ended."""
    tasks_to_clear(record, spec, tasks, switch)  # refuses what cannot be cleared
    reach, of_tasks = _clear_scope(record, spec, tasks, switch), record.by_task()
    work = _ClearBuilder(record, action, switch)
    anew = work.switch_version() if switch is not None else set()
    for task in spec.topological_order:
        if task.name not in reach or task.name in anew:
            continue
        rows = of_tasks[task.name]
        is_mapped = rows[0].index != UNMAPPED
        if is_mapped and task.each in reach:
            work.collapse_elements(rows)
        elif is_mapped and reach[task.name]:
            work.reset_rows([row for row in rows if row.state.has_failed])
        else:
            work.reset_rows(rows)
            work.cleared_outputs.append(task.name)
    return work.build_change()


def build_cancel_change(record: RunRecord, action: OperatorAction) -> Change:
    """Return the change that cancels a run, and everything of it that has not ended."""
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
        history=RunEventBatch(at, action.actor, events),
        is_operator_action=True,
    )


def _clear_scope(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None, switch: VersionSwitch | None
) -> dict[str, bool]:
    """Return the tasks that are cleared, each with whether only those of its elements are that failed."""
    if tasks is None:
        seeds = {row.task for row in record.tasks if row.state.has_failed and row.task in spec.by_name}
    elif unknown := [name for name in tasks if name not in spec.by_name]:
        raise unknown_task(spec.name, unknown, spec.by_name)
    else:
        seeds = set(tasks)
    if switch is not None:
        seeds |= switch.restarted_tasks
    after = {name for seed in seeds for name in spec.all_downstream(seed)}
    return {name: tasks is None and name not in after for name in seeds | after}


class _ClearBuilder:
    """The parts of a change that clears, as they come together."""

    def __init__(self, record: RunRecord, action: OperatorAction, switch: VersionSwitch | None) -> None:
        self.cleared_outputs: list[str] = []
        self._record = record
        self._action = action
        self._switch = switch
        self._tasks: list[TaskChange] = []
        self._removed: list[TaskRow] = []
        self._added: list[TaskRow] = []
        self._events: list[RunEvent] = []

    def reset_rows(self, rows: Sequence[TaskRow]) -> None:
        """Let the planner decide on task runs anew."""
        begun = [row for row in rows if row.state is not TaskState.NONE]
        self._tasks += [TaskChange(row, self._reset_row(row)) for row in begun]
        self._add_clear_events(begun)

    def collapse_elements(self, rows: Sequence[TaskRow]) -> None:
        """Put one task run in the place of elements whose list is about to be made anew.

        It takes over their highest numbers, so that no attempt of the elements to come has the key of an old one.
        """
        attempt, tries = max(row.attempt for row in rows), max(row.tries for row in rows)
        self._added.append(self._reset_row(replace(rows[0], index=UNMAPPED, attempt=attempt, tries=tries)))
        self.remove_rows(rows)

    def remove_rows(self, rows: Sequence[TaskRow]) -> None:
        """Let task runs be no more, nor what they returned."""
        self._removed += rows
        self.cleared_outputs.append(rows[0].task)
        self._add_clear_events([row for row in rows if row.state is not TaskState.NONE])

    def switch_version(self) -> set[str]:
        """Remove what the new version does not have, and add what begins in it; return the names of that."""
        succession, of_tasks = self._switch, self._record.by_task()
        assert succession is not None, "only asked for with one"
        for rows in succession.removed_tasks.values():
            self.remove_rows(rows)
        anew = succession.restarted_tasks
        for task in succession.new_spec.topological_order:
            if task.name in anew and task.name in of_tasks:
                self.collapse_elements(of_tasks[task.name])
            elif task.name in anew:
                self._added.append(self._reset_row(succession.new_row(task)))
        return anew

    def _reset_row(self, row: TaskRow) -> TaskRow:
        fresh = _reset_row(row, self._action.at)
        return fresh if self._switch is None else self._switch.with_placement(fresh)

    def _add_clear_events(self, rows: Sequence[TaskRow]) -> None:
        for row in rows:
            self._events += _clear_events(row, self._action.reason)

    def build_change(self) -> Change:
        run, by = self._record.run, self._action
        again = None
        if run.state.is_terminal:
            version = run.version if self._switch is None else self._switch.version
            again = replace(run, version=version, state=RunState.QUEUED, started_at=None, ended_at=None, reason="")
            self._events.append(run_event(run, RunState.QUEUED, by.reason))
        found = [*(one.expected for one in self._tasks), *self._removed]
        return Change(
            run=run.id,
            expected_run=run,
            updated_run=again,
            tasks=self._tasks,
            removed=self._removed,
            added=self._added,
            attempts=_cancelled_attempts(self._record, found, by),
            cleared_outputs=self.cleared_outputs,
            history=RunEventBatch(by.at, by.actor, self._events) if self._events else None,
            is_operator_action=True,
        )


def _clear_events(row: TaskRow, reason: str) -> Iterator[RunEvent]:
    before = row.state
    if before.is_active:
        yield task_event(row, before, TaskState.CANCELLED, reason)
        before = TaskState.CANCELLED
    yield task_event(row, before, TaskState.NONE, reason)


def _cancelled_attempts(record: RunRecord, rows: Sequence[TaskRow], action: OperatorAction) -> list[AttemptRow]:
    """Return the tries that end because task runs were taken from whoever runs them."""
    held = [row for row in rows if row.state.is_claimed]
    return [current_attempt_row(record.run.id, row, ended_at=action.at, outcome="cancelled") for row in held]


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
