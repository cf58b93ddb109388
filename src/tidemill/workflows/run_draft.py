"""A run as it would be after some changes, and the change that makes it so.

Whoever has something to do with a run makes a draft of it: tells it how tries ended, lets the planner look, claims what
is ready. Nothing has happened until the draft's change is written. What comes of a draft depends on its input alone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tidemill.workflows.attempt_results import (
    AttemptResult,
    Deferred,
    Failed,
    Lost,
    RetryBudgets,
    Skipped,
    Succeeded,
    apply_result,
    outcome_word,
)
from tidemill.workflows.change import Change, LeaderFence, PoolLimit, TaskChange, run_event, task_event
from tidemill.workflows.plan import UNMAPPED, Command, Expand, Finish, Run, Transition, plan, plan_after
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    FireRow,
    RunEvent,
    RunEventBatch,
    RunRow,
    TaskRow,
    current_attempt_row,
)
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

TaskRef = tuple[str, int]
"""A task run within its run: the task and the element."""


def new_task_row(task: TaskSpec, executor: str) -> TaskRow:
    """Return a task run on which nobody has decided yet, and which runs at this executor."""
    return TaskRow(
        task=task.name, index=UNMAPPED, pool=task.pool, priority=task.priority, queue=task.queue, executor=executor
    )


class RunDraft:
    """Changes to one run that are written together."""

    def __init__(
        self, run: RunRow, rows: Mapping[TaskRef, TaskRow], spec: WorkflowSpec, *, now: datetime, actor: str
    ) -> None:
        self.run = run
        self.rows = dict(rows)
        self.scheduled: list[TaskRow] = []
        """What became ready in this draft."""
        self.sleeping: list[TaskRow] = []
        """What is to be woken at some time."""
        self._original_run = run
        self._original_rows: Mapping[TaskRef, TaskRow] = rows
        self._spec = spec
        self._now = now
        self._actor = actor
        self._is_new = False
        self._fire: FireRow | None = None
        self._changed: dict[TaskRef, None] = {}
        self._attempts: list[AttemptRow] = []
        self._outputs: dict[AttemptKey, bytes] = {}
        self._events: list[RunEvent] = []
        self._removed: list[TaskRow] = []
        self._pools: set[str] = set()
        self._expired_leases: dict[TaskRef, datetime] = {}

    @classmethod
    def for_new_run(
        cls,
        run: RunRow,
        spec: WorkflowSpec,
        *,
        executor_of: Callable[[TaskSpec], str],
        actor: str,
        fire: FireRow | None = None,
    ) -> "RunDraft":
        """Begin a draft of a run that does not exist yet."""
        draft = cls(run, {}, spec, now=run.created_at, actor=actor)
        draft.rows = {(task.name, UNMAPPED): new_task_row(task, executor_of(task)) for task in spec.tasks}
        draft._is_new = True
        draft._fire = fire
        return draft

    # -- what happens to the run

    def admit(self) -> None:
        """Let a queued run begin."""
        self._transition_run(RunState.RUNNING, started_at=self.run.started_at or self._now)

    def fail(self, reason: str) -> None:
        """End a run that nothing else would end."""
        self._transition_run(RunState.FAILED, reason=reason, ended_at=self._now)

    def plan(self, kept_deferred: Collection[TaskRef] = (), changed: Collection[str] | None = None) -> None:
        """Do what the planner says; task runs that are `held` are left asleep although their time has come.

        `changed` names the tasks to which something has happened since the run was last planned, if that is known.
        """
        for command in self._plan_commands(changed):
            match command:
                case Transition(task, index, before, after, reason):
                    if before is not TaskState.DEFERRED or (task, index) not in kept_deferred:
                        self._apply_transition(self.rows[task, index], after, reason)
                case Expand(task, size):
                    self._expand(task, size)
                case Finish(state):
                    self._transition_run(state, ended_at=self._now)

    def _plan_commands(self, changed: Collection[str] | None) -> list[Command]:
        if changed is not None and self.run.state is RunState.RUNNING:
            return plan_after(self._spec, self.rows, changed, self._now)
        return plan(Run(spec=self._spec, state=self.run.state, tasks=list(self.rows.values())), self._now)

    def _apply_transition(self, row: TaskRow, after: TaskState, reason: str) -> None:
        times = {"ended_at": self._now} if after.is_terminal else {}
        moved = self._transition(row, after, reason, wake_at=None, **times)
        if after is TaskState.SCHEDULED:
            self.scheduled.append(moved)

    def _expand(self, task: str, size: int) -> None:
        whole = self.rows.pop((task, UNMAPPED))
        if (found := self._original_rows.get((task, UNMAPPED))) is not None:
            self._removed.append(found)
        for index in range(size):
            self.scheduled.append(self._transition(replace(whole, index=index), TaskState.SCHEDULED))

    def _transition_run(self, after: RunState, reason: str = "", **fields: Any) -> None:
        self._events.append(run_event(self.run, after, reason))
        self.run = replace(self.run, state=after, reason=reason, **fields)

    # -- what happens to its task runs

    def claim(self, ref: TaskRef, owner: str, *, starts_now: bool) -> TaskRow:
        """Give a scheduled task run to somebody, who begins at once or will say so."""
        found, now = self.rows[ref], self._now
        row = replace(
            found,
            state=TaskState.RUNNING if starts_now else TaskState.QUEUED,
            since=now,
            attempt=found.attempt + 1,
            tries=found.tries + 1,
            claimed_by=owner,
            claimed_at=now,
            started_at=now if starts_now else None,
            ended_at=None,
            reason="",
        )
        self._add_event(row, found.state, TaskState.QUEUED)
        if starts_now:
            self._add_event(row, TaskState.QUEUED, TaskState.RUNNING)
        if row.pool is not None:
            self._pools.add(row.pool)
        return self._set_row(row)

    def mark_started(self, key: AttemptKey) -> bool:
        """Record that a try begins; False if that is no longer the one that was claimed."""
        row = self._claimed_row(key)
        if row is None or row.state is not TaskState.QUEUED or row.claimed_by != self._actor:
            return False
        self._start(row)
        return True

    def _start(self, row: TaskRow) -> TaskRow:
        return self._transition(row, TaskState.RUNNING, started_at=self._now)

    def apply_result(self, key: AttemptKey, result: AttemptResult, budgets: RetryBudgets) -> bool:
        """Record how a try ended; False if that is no longer the one that was claimed: it came too late."""
        row = self._claimed_row(key)
        if row is None or self._is_invalid_report(result, row):
            return False
        if isinstance(result, Lost) and result.expired_lease is not None:
            self._expired_leases[row.task, row.index] = (
                result.expired_lease
            )  # the store looks again, when the change is written
        if row.state is TaskState.QUEUED and isinstance(result, Succeeded | Skipped | Deferred):
            row = self._start(row)  # only what has begun ends so, whoever was told of its beginning
        after = apply_result(row, result, self._now, budgets)
        failure = {"error": result.error, "exit": result.exit} if isinstance(result, Failed) else {}
        attempt = current_attempt_row(self.run.id, row, ended_at=self._now, outcome=outcome_word(result), **failure)
        self._attempts.append(attempt)
        if isinstance(result, Succeeded):
            self._outputs[key] = result.value
        self._add_event(row, row.state, after.state, after.reason)
        self._set_row(after)
        if after.state is TaskState.SCHEDULED:
            self.scheduled.append(after)
        if after.wake_at is not None:
            self.sleeping.append(after)
        return True

    def _is_invalid_report(self, result: AttemptResult, row: TaskRow) -> bool:
        """Return whether it is not for us to say: only its owner reports on a try, until it is silent for too long."""
        if not isinstance(result, Lost):
            return row.claimed_by != self._actor
        return result.expired_lease is not None and row.lease_until != result.expired_lease

    def has_unfinished_element(self, task: str) -> bool:
        """Return whether some element of a mapped task has not ended; the last ones are asked first: they end last."""
        return any(row.task == task and not row.state.is_terminal for row in reversed(self.rows.values()))

    def end_deferral(self, key: AttemptKey) -> None:
        """End the deferral of an attempt, because what it waited for is there."""
        row = self.rows.get((key.task, key.element))
        if row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt:
            woken = replace(row, deferrals=row.deferrals + 1)
            self.scheduled.append(self._transition(woken, TaskState.SCHEDULED, wake_at=None))

    def _claimed_row(self, key: AttemptKey) -> TaskRow | None:
        row = self.rows.get((key.task, key.element))
        return row if row is not None and row.attempt == key.attempt and row.state.is_claimed else None

    def _transition(self, row: TaskRow, after: TaskState, reason: str = "", **fields: Any) -> TaskRow:
        self._add_event(row, row.state, after, reason)
        return self._set_row(replace(row, state=after, since=self._now, reason=reason, **fields))

    def _add_event(self, row: TaskRow, before: TaskState, after: TaskState, reason: str = "") -> None:
        self._events.append(task_event(row, before, after, reason))

    def _set_row(self, row: TaskRow) -> TaskRow:
        place = row.task, row.index
        self.rows[place] = row
        self._changed[place] = None
        return row

    # -- the change

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (self._is_new or self._changed or self.run is not self._original_run)

    def build_change(
        self,
        *,
        fence: LeaderFence | None = None,
        lease: float = 0.0,
        pools: Mapping[str, int] | None = None,
        is_guarded: bool = True,
    ) -> Change:
        """Return the change; `is_guarded` unless it holds whatever became of the run itself."""
        touched = [(place, self.rows[place]) for place in self._changed if place in self.rows]
        return Change(
            run=self.run.id,
            fence=fence,
            new_run=self.run if self._is_new else None,
            fire=self._fire,
            expected_run=self._original_run if is_guarded and not self._is_new else None,
            updated_run=self.run if not self._is_new and self.run is not self._original_run else None,
            tasks=[
                TaskChange(self._original_rows[place], row, self._expired_leases.get(place))
                for place, row in touched
                if place in self._original_rows
            ],
            removed=self._removed,
            added=self._added_rows(touched),
            attempts=self._attempts,
            outputs=self._outputs,
            history=RunEventBatch(self._now, self._actor, self._events) if self._events else None,
            lease=lease,
            pools=[PoolLimit(self.run.tenant, name, pools[name]) for name in sorted(self._pools)] if pools else (),
        )

    def _added_rows(self, touched: Iterable[tuple[TaskRef, TaskRow]]) -> Sequence[TaskRow]:
        if self._is_new:
            return tuple(self.rows.values())
        return [row for place, row in touched if place not in self._original_rows]
