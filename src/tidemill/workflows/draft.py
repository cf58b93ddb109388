"""A run as it would be after some changes, and the change that makes it so.

Whoever has something to do with a run makes a draft of it: tells it how tries ended, lets the planner look, claims what
is ready. Nothing has happened until the draft's change is written. What comes of a draft depends on its input alone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from tidemill.workflows.change import Change, Fence, PoolLimit, TaskChange, run_event, task_event
from tidemill.workflows.endings import Budgets, Deferred, Ending, Failed, Lost, Skipped, Succeeded, conclude, outcome_of
from tidemill.workflows.plan import WHOLE, Command, Expand, Finish, Move, Run, follow, plan
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    Event,
    FireRow,
    History,
    RunRow,
    TaskRow,
    current_attempt,
)
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

Place = tuple[str, int]
"""A task run within its run: the task and the element."""


def fresh_row(task: TaskSpec, executor: str) -> TaskRow:
    """Return a task run on which nobody has decided yet, and which runs at this executor."""
    return TaskRow(
        task=task.name, index=WHOLE, pool=task.pool, priority=task.priority, queue=task.queue, executor=executor
    )


class Draft:
    """Changes to one run that are written together."""

    def __init__(
        self, run: RunRow, rows: Mapping[Place, TaskRow], spec: WorkflowSpec, *, now: datetime, actor: str
    ) -> None:
        self.run = run
        self.rows = dict(rows)
        self.scheduled: list[TaskRow] = []
        """What became ready in this draft."""
        self.put_off: list[TaskRow] = []
        """What is to be woken at some time."""
        self._found_run = run
        self._found: Mapping[Place, TaskRow] = rows
        self._spec = spec
        self._now = now
        self._actor = actor
        self._is_new = False
        self._fire: FireRow | None = None
        self._touched: dict[Place, None] = {}
        self._attempts: list[AttemptRow] = []
        self._outputs: dict[AttemptKey, bytes] = {}
        self._events: list[Event] = []
        self._removed: list[TaskRow] = []
        self._pools: set[str] = set()
        self._unrenewed: dict[Place, datetime] = {}

    @classmethod
    def of_new(
        cls,
        run: RunRow,
        spec: WorkflowSpec,
        *,
        executor_of: Callable[[TaskSpec], str],
        actor: str,
        fire: FireRow | None = None,
    ) -> "Draft":
        """Begin a draft of a run that does not exist yet."""
        draft = cls(run, {}, spec, now=run.created_at, actor=actor)
        draft.rows = {(task.name, WHOLE): fresh_row(task, executor_of(task)) for task in spec.tasks}
        draft._is_new = True
        draft._fire = fire
        return draft

    # -- what happens to the run

    def admit(self) -> None:
        """Let a queued run begin."""
        self._move_run(RunState.RUNNING, started_at=self.run.started_at or self._now)

    def fail(self, reason: str) -> None:
        """End a run that nothing else would end."""
        self._move_run(RunState.FAILED, reason=reason, ended_at=self._now)

    def plan(self, held: Collection[Place] = (), changed: Collection[str] | None = None) -> None:
        """Do what the planner says; task runs that are `held` are left asleep although their time has come.

        `changed` names the tasks to which something has happened since the run was last planned, if that is known.
        """
        for command in self._commands(changed):
            match command:
                case Move(task, index, before, after, reason):
                    if before is not TaskState.DEFERRED or (task, index) not in held:
                        self._plan_move(self.rows[task, index], after, reason)
                case Expand(task, size):
                    self._expand(task, size)
                case Finish(state):
                    self._move_run(state, ended_at=self._now)

    def _commands(self, changed: Collection[str] | None) -> list[Command]:
        if changed is not None and self.run.state is RunState.RUNNING:
            return follow(self._spec, self.rows, changed, self._now)
        return plan(Run(spec=self._spec, state=self.run.state, tasks=list(self.rows.values())), self._now)

    def _plan_move(self, row: TaskRow, after: TaskState, reason: str) -> None:
        times = {"ended_at": self._now} if after.is_terminal else {}
        moved = self._move(row, after, reason, wake_at=None, **times)
        if after is TaskState.SCHEDULED:
            self.scheduled.append(moved)

    def _expand(self, task: str, size: int) -> None:
        whole = self.rows.pop((task, WHOLE))
        if (found := self._found.get((task, WHOLE))) is not None:
            self._removed.append(found)
        for index in range(size):
            self.scheduled.append(self._move(replace(whole, index=index), TaskState.SCHEDULED))

    def _move_run(self, after: RunState, reason: str = "", **fields: Any) -> None:
        self._events.append(run_event(self.run, after, reason))
        self.run = replace(self.run, state=after, reason=reason, **fields)

    # -- what happens to its task runs

    def claim(self, place: Place, owner: str, *, begins: bool) -> TaskRow:
        """Give a scheduled task run to somebody, who begins at once or will say so."""
        found, now = self.rows[place], self._now
        row = replace(
            found,
            state=TaskState.RUNNING if begins else TaskState.QUEUED,
            since=now,
            attempt=found.attempt + 1,
            tries=found.tries + 1,
            claimed_by=owner,
            claimed_at=now,
            started_at=now if begins else None,
            ended_at=None,
            reason="",
        )
        self._note(row, found.state, TaskState.QUEUED)
        if begins:
            self._note(row, TaskState.QUEUED, TaskState.RUNNING)
        if row.pool is not None:
            self._pools.add(row.pool)
        return self._put(row)

    def begin(self, key: AttemptKey) -> bool:
        """Record that a try begins; False if that is no longer the one that was claimed."""
        row = self._current(key)
        if row is None or row.state is not TaskState.QUEUED or row.claimed_by != self._actor:
            return False
        self._begin(row)
        return True

    def _begin(self, row: TaskRow) -> TaskRow:
        return self._move(row, TaskState.RUNNING, started_at=self._now)

    def conclude(self, key: AttemptKey, ending: Ending, budgets: Budgets) -> bool:
        """Record how a try ended; False if that is no longer the one that was claimed: it came too late."""
        row = self._current(key)
        if row is None or self._is_refuted(ending, row):
            return False
        if isinstance(ending, Lost) and ending.unrenewed is not None:
            self._unrenewed[row.task, row.index] = ending.unrenewed  # the store looks again, when the change is written
        if row.state is TaskState.QUEUED and isinstance(ending, Succeeded | Skipped | Deferred):
            row = self._begin(row)  # only what has begun ends so, whoever was told of its beginning
        after = conclude(row, ending, self._now, budgets)
        failure = {"error": ending.error, "exit": ending.exit} if isinstance(ending, Failed) else {}
        attempt = current_attempt(self.run.id, row, ended_at=self._now, outcome=outcome_of(ending), **failure)
        self._attempts.append(attempt)
        if isinstance(ending, Succeeded):
            self._outputs[key] = ending.value
        self._note(row, row.state, after.state, after.reason)
        self._put(after)
        if after.state is TaskState.SCHEDULED:
            self.scheduled.append(after)
        if after.wake_at is not None:
            self.put_off.append(after)
        return True

    def _is_refuted(self, ending: Ending, row: TaskRow) -> bool:
        """Return whether it is not for us to say: only its owner reports on a try, until it is silent for too long."""
        if not isinstance(ending, Lost):
            return row.claimed_by != self._actor
        return ending.unrenewed is not None and row.lease_until != ending.unrenewed

    def has_open_element(self, task: str) -> bool:
        """Return whether some element of a mapped task has not ended; the last ones are asked first: they end last."""
        return any(row.task == task and not row.state.is_terminal for row in reversed(self.rows.values()))

    def wake(self, key: AttemptKey) -> None:
        """End the deferral of an attempt, because what it waited for is there."""
        row = self.rows.get((key.task, key.element))
        if row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt:
            woken = replace(row, deferrals=row.deferrals + 1)
            self.scheduled.append(self._move(woken, TaskState.SCHEDULED, wake_at=None))

    def _current(self, key: AttemptKey) -> TaskRow | None:
        row = self.rows.get((key.task, key.element))
        return row if row is not None and row.attempt == key.attempt and row.state.is_claimed else None

    def _move(self, row: TaskRow, after: TaskState, reason: str = "", **fields: Any) -> TaskRow:
        self._note(row, row.state, after, reason)
        return self._put(replace(row, state=after, since=self._now, reason=reason, **fields))

    def _note(self, row: TaskRow, before: TaskState, after: TaskState, reason: str = "") -> None:
        self._events.append(task_event(row, before, after, reason))

    def _put(self, row: TaskRow) -> TaskRow:
        place = row.task, row.index
        self.rows[place] = row
        self._touched[place] = None
        return row

    # -- the change

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (self._is_new or self._touched or self.run is not self._found_run)

    def change(
        self,
        *,
        fence: Fence | None = None,
        lease: float = 0.0,
        pools: Mapping[str, int] | None = None,
        is_guarded: bool = True,
    ) -> Change:
        """Return the change; `is_guarded` unless it holds whatever became of the run itself."""
        touched = [(place, self.rows[place]) for place in self._touched if place in self.rows]
        return Change(
            run=self.run.id,
            fence=fence,
            created=self.run if self._is_new else None,
            fire=self._fire,
            found=self._found_run if is_guarded and not self._is_new else None,
            row=self.run if not self._is_new and self.run is not self._found_run else None,
            tasks=[
                TaskChange(self._found[place], row, self._unrenewed.get(place))
                for place, row in touched
                if place in self._found
            ],
            removed=self._removed,
            added=self._added(touched),
            attempts=self._attempts,
            outputs=self._outputs,
            history=History(self._now, self._actor, self._events) if self._events else None,
            lease=lease,
            pools=[PoolLimit(self.run.tenant, name, pools[name]) for name in sorted(self._pools)] if pools else (),
        )

    def _added(self, touched: Iterable[tuple[Place, TaskRow]]) -> Sequence[TaskRow]:
        if self._is_new:
            return tuple(self.rows.values())
        return [row for place, row in touched if place not in self._found]
