"""Intervening in a run: what reruns if tasks are cleared, and the one change that clears or cancels. Pure.

To clear a task is to forget how it ended, so that the planner decides on it anew. Whatever comes after it was built on
that, and is cleared too; nothing else is touched. What is still active is cancelled first, as the table of moves wants
it, and the numbers of attempts go on: a late report of what was interrupted finds a number that is no longer asked for.

A run that has ended may go on with another version of its workflow (`Succession`). Then what is new begins too, and
what the version does not have is forgotten.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import RequestError
from tidemill.workflows.change import Change, TaskChange, run_event, task_event
from tidemill.workflows.naming import unknown_task
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptRow, Event, History, RunRecord, TaskRow, current_attempt
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.succession import Succession


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """Who intervenes, when and why."""

    at: datetime
    actor: str
    reason: str = ""


def clear(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None = None, succession: Succession | None = None
) -> list[str]:
    """Return the tasks that would rerun, in order, for a preview.

    Without names: everything that failed, was cancelled or could not run; with names, these; and all that comes after.
    With another version, also what begins in it.
    """
    if succession is not None and not record.run.state.is_terminal:
        raise _not_ended(record)
    reach = _reach(record, spec, tasks, succession)
    begun = {row.task for row in record.tasks if row.state is not TaskState.NONE}
    begun |= succession.begun_anew if succession is not None else set()
    names = [task.name for task in spec.in_order if task.name in reach and task.name in begun]
    if not names and not (succession is not None and succession.gone):
        what = "nothing of it has failed" if tasks is None else "none of these tasks has begun"
        message = f"run {record.run.id} of workflow '{spec.name}' is {record.run.state}, and {what}"
        raise RequestError(message, code="nothing_to_retry", status=409, run=record.run.id)
    return names


def _not_ended(record: RunRecord) -> RequestError:
    run = record.run
    message = (
        f"run {run.id} of workflow '{run.workflow}' is {run.state}, and only one that has ended goes on with another "
        f"version: wait for its end, or cancel it first, `tidemill runs cancel {run.id}`"
    )
    return RequestError(message, code="run_active", status=409, run=run.id)


def elements_cleared(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None, succession: Succession | None = None
) -> dict[str, tuple[int, int]]:
    """Return of each mapped task that `clear` names how many of its elements would rerun, and how many it has.

    One whose list is made anew is not among them: nobody knows how many it will have.
    """
    reach, of_tasks, found = _reach(record, spec, tasks, succession), record.by_task(), {}
    anew = succession.begun_anew if succession is not None else set()
    for name in clear(record, spec, tasks, succession):
        if name in anew:
            continue
        rows = of_tasks[name]
        if rows[0].index != WHOLE and spec.by_name[name].each not in reach:
            cleared = [row for row in rows if not reach[name] or row.state.has_failed]
            found[name] = len(cleared), len(rows)
    return found


def clearing(
    record: RunRecord,
    spec: WorkflowSpec,
    tasks: Collection[str] | None,
    intervention: Intervention,
    succession: Succession | None = None,
) -> Change:
    """Return the change that clears what `clear` names, and queues the run again if it had ended."""
    clear(record, spec, tasks, succession)  # refuses what cannot be cleared
    reach, of_tasks = _reach(record, spec, tasks, succession), record.by_task()
    work = _Clearing(record, intervention, succession)
    anew = work.begin_succession() if succession is not None else set()
    for task in spec.in_order:
        if task.name not in reach or task.name in anew:
            continue
        rows = of_tasks[task.name]
        is_mapped = rows[0].index != WHOLE
        if is_mapped and task.each in reach:
            work.make_whole(rows)
        elif is_mapped and reach[task.name]:
            work.reset([row for row in rows if row.state.has_failed])
        else:
            work.reset(rows)
            work.forgotten.append(task.name)
    return work.change()


def cancel(record: RunRecord, intervention: Intervention) -> Change:
    """Return the change that cancels a run, and everything of it that has not ended."""
    if record.run.state.is_terminal:
        message = f"run {record.run.id} of workflow '{record.run.workflow}' has ended already: {record.run.state}"
        raise RequestError(message, code="run_ended", status=409, run=record.run.id)
    at, reason = intervention.at, intervention.reason
    open_rows = [row for row in record.tasks if not row.state.is_terminal]
    events = [task_event(row, row.state, TaskState.CANCELLED, reason) for row in open_rows]
    events.append(run_event(record.run, RunState.CANCELLED, reason))
    ended = replace(record.run, state=RunState.CANCELLED, ended_at=at, reason=reason)
    return Change(
        run=record.run.id,
        found=record.run,
        row=ended,
        tasks=[TaskChange(row, _cancelled(row, at, reason)) for row in open_rows],
        attempts=_ended(record, open_rows, intervention),
        history=History(at, intervention.actor, events),
        intervenes=True,
    )


def _reach(
    record: RunRecord, spec: WorkflowSpec, tasks: Collection[str] | None, succession: Succession | None
) -> dict[str, bool]:
    """Return the tasks that are cleared, each with whether only those of its elements are that failed."""
    if tasks is None:
        seeds = {row.task for row in record.tasks if row.state.has_failed and row.task in spec.by_name}
    elif unknown := [name for name in tasks if name not in spec.by_name]:
        raise unknown_task(spec.name, unknown, spec.by_name)
    else:
        seeds = set(tasks)
    if succession is not None:
        seeds |= succession.begun_anew
    after = {name for seed in seeds for name in spec.after(seed)}
    return {name: tasks is None and name not in after for name in seeds | after}


class _Clearing:
    """The parts of a change that clears, as they come together."""

    def __init__(self, record: RunRecord, intervention: Intervention, succession: Succession | None) -> None:
        self.forgotten: list[str] = []
        self._record = record
        self._intervention = intervention
        self._succession = succession
        self._tasks: list[TaskChange] = []
        self._removed: list[TaskRow] = []
        self._added: list[TaskRow] = []
        self._events: list[Event] = []

    def reset(self, rows: Sequence[TaskRow]) -> None:
        """Let the planner decide on task runs anew."""
        begun = [row for row in rows if row.state is not TaskState.NONE]
        self._tasks += [TaskChange(row, self._fresh(row)) for row in begun]
        self._tell(begun)

    def make_whole(self, rows: Sequence[TaskRow]) -> None:
        """Put one task run in the place of elements whose list is about to be made anew.

        It takes over their highest numbers, so that no attempt of the elements to come has the key of an old one.
        """
        attempt, tries = max(row.attempt for row in rows), max(row.tries for row in rows)
        self._added.append(self._fresh(replace(rows[0], index=WHOLE, attempt=attempt, tries=tries)))
        self.remove(rows)

    def remove(self, rows: Sequence[TaskRow]) -> None:
        """Let task runs be no more, nor what they returned."""
        self._removed += rows
        self.forgotten.append(rows[0].task)
        self._tell([row for row in rows if row.state is not TaskState.NONE])

    def begin_succession(self) -> set[str]:
        """Remove what the new version does not have, and add what begins in it; return the names of that."""
        succession, of_tasks = self._succession, self._record.by_task()
        assert succession is not None, "only asked for with one"
        for rows in succession.gone.values():
            self.remove(rows)
        anew = succession.begun_anew
        for task in succession.spec.in_order:
            if task.name in anew and task.name in of_tasks:
                self.make_whole(of_tasks[task.name])
            elif task.name in anew:
                self._added.append(self._fresh(succession.first_row(task)))
        return anew

    def _fresh(self, row: TaskRow) -> TaskRow:
        fresh = _fresh(row, self._intervention.at)
        return fresh if self._succession is None else self._succession.placed(fresh)

    def _tell(self, rows: Sequence[TaskRow]) -> None:
        for row in rows:
            self._events += _events_of_clearing(row, self._intervention.reason)

    def change(self) -> Change:
        run, by = self._record.run, self._intervention
        again = None
        if run.state.is_terminal:
            version = run.version if self._succession is None else self._succession.version
            again = replace(run, version=version, state=RunState.QUEUED, started_at=None, ended_at=None, reason="")
            self._events.append(run_event(run, RunState.QUEUED, by.reason))
        found = [*(one.found for one in self._tasks), *self._removed]
        return Change(
            run=run.id,
            found=run,
            row=again,
            tasks=self._tasks,
            removed=self._removed,
            added=self._added,
            attempts=_ended(self._record, found, by),
            forgotten=self.forgotten,
            history=History(by.at, by.actor, self._events) if self._events else None,
            intervenes=True,
        )


def _events_of_clearing(row: TaskRow, reason: str) -> Iterator[Event]:
    before = row.state
    if before.is_active:
        yield task_event(row, before, TaskState.CANCELLED, reason)
        before = TaskState.CANCELLED
    yield task_event(row, before, TaskState.NONE, reason)


def _ended(record: RunRecord, rows: Sequence[TaskRow], by: Intervention) -> list[AttemptRow]:
    """Return the tries that end because task runs were taken from whoever runs them."""
    held = [row for row in rows if row.state.is_claimed]
    return [current_attempt(record.run.id, row, ended_at=by.at, outcome="cancelled") for row in held]


def _fresh(row: TaskRow, at: datetime) -> TaskRow:
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


def _cancelled(row: TaskRow, at: datetime, reason: str) -> TaskRow:
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
