"""A draft of a run: collects modifications in memory, and builds the change that writes them.

A component that wants to modify a run makes a draft of it: applies attempt results, lets the planner decide, claims
scheduled tasks. Nothing has happened until the draft's change is written. The result depends on the input alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tidemill.kernel.ids import new_sortable_id
from tidemill.workflows.attempt_results import (
    AttemptResult,
    Deferred,
    Failed,
    Lost,
    RetryBudgets,
    Skipped,
    Succeeded,
    apply_result,
)
from tidemill.workflows.change import Change, LeaderFence, PoolLimit, TaskChange
from tidemill.workflows.plan import (
    UNMAPPED,
    Command,
    Expand,
    Finish,
    PlannedRun,
    Transition,
    plan,
    plan_after,
    plan_first,
)
from tidemill.workflows.records import (
    MISSING_TIME,
    WAITING_FOR_ANSWER,
    AttemptKey,
    AttemptRow,
    FireRow,
    RunEvent,
    RunEventBatch,
    RunRow,
    TaskRow,
)
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState
from tidemill.workflows.waits import WaitDraft, open_wait

CAUSE_LIMIT = 300
"""Characters of a task's error in the reason of its run; the task has all of it."""

TaskRef = tuple[str, int]
"""A task run within its run: the task and the element."""


def new_task_row(task: TaskSpec, executor: str) -> TaskRow:
    """Return an undecided task run for this executor."""
    return TaskRow(
        task=task.name, index=UNMAPPED, pool=task.pool, priority=task.priority, queue=task.queue, executor=executor
    )


def new_task_rows(spec: WorkflowSpec, executor_of: Callable[[TaskSpec], str]) -> dict[TaskRef, TaskRow]:
    """Return the undecided task runs of a new run: the same for every run of a version."""
    return {(task.name, UNMAPPED): new_task_row(task, executor_of(task)) for task in spec.tasks}


def current_attempt_row(run: str, row: TaskRow, **result_fields: Any) -> AttemptRow:
    """Return the row of a claimed task run's current attempt, with the fields of its result if it has ended."""
    return AttemptRow(
        key=AttemptKey(run, row.task, row.index, row.attempt),
        number=row.tries,
        executor=row.executor,
        worker=row.claimed_by or "",
        claimed_at=row.claimed_at or MISSING_TIME,
        started_at=row.started_at,
        **result_fields,
    )


def task_event(row: TaskRow, before: TaskState, after: TaskState, reason: str = "") -> RunEvent:
    """Return the event of a task run's transition; raise IllegalTransitionError if the table does not allow it."""
    if (before, after) not in TASK_TRANSITIONS.allowed:
        TASK_TRANSITIONS.check(f"task '{row.task}'", before, after)
    return RunEvent(row.task, row.index, row.attempt, before, after, reason)


def claim_events(row: TaskRow, before: TaskState = TaskState.SCHEDULED) -> list[RunEvent]:
    """Return the events of a claim that left a task run queued, or running if it started with the claim."""
    queued = task_event(row, before, TaskState.QUEUED)
    has_started = row.state is TaskState.RUNNING
    return [queued, task_event(row, TaskState.QUEUED, TaskState.RUNNING)] if has_started else [queued]


def run_event(run: RunRow, after: RunState, reason: str = "") -> RunEvent:
    """Return the event of a run's transition; raise IllegalTransitionError if the table does not allow it."""
    if (run.state, after) not in RUN_TRANSITIONS.allowed:
        RUN_TRANSITIONS.check(f"run '{run.id}'", run.state, after)
    return RunEvent(None, UNMAPPED, 0, run.state, after, reason)


class RunDraft:
    """Modifications of one run that are written together."""

    def __init__(
        self, run: RunRow, rows: Mapping[TaskRef, TaskRow], spec: WorkflowSpec, *, now: datetime, actor: str
    ) -> None:
        self.run = run
        self.rows = dict(rows)
        self.scheduled: list[TaskRow] = []
        """Task runs that became ready in this draft."""
        self.sleeping: list[TaskRow] = []
        """Task runs that have to be woken at some time."""
        self.decided: list[TaskRow] = []
        """Task runs that the planner ended without a try, such as skipped ones."""
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
        self._waits: WaitDraft | None = None
        self._expired_leases: dict[TaskRef, datetime] = {}

    @classmethod
    def for_new_run(
        cls,
        run: RunRow,
        rows: Mapping[TaskRef, TaskRow],
        spec: WorkflowSpec,
        *,
        actor: str,
        fire: FireRow | None = None,
    ) -> "RunDraft":
        """Start a draft of a run that does not exist yet, from its `new_task_rows`."""
        draft = cls(run, rows, spec, now=run.created_at, actor=actor)
        draft._original_rows, draft._changed = {}, dict.fromkeys(rows)
        draft._is_new = True
        draft._fire = fire
        return draft

    # -- the run

    def admit(self) -> None:
        """Start a queued run."""
        self._transition_run(RunState.RUNNING, started_at=self.run.started_at or self._now)

    def take_version(self, version: str, rows: Mapping[TaskRef, TaskRow], spec: WorkflowSpec) -> None:
        """Pin a run that has not started to another version of its workflow, with its `new_task_rows`."""
        self.run, self._spec = replace(self.run, version=version), spec
        self._removed, self._original_rows = list(self._original_rows.values()), {}
        self.rows = dict(rows)
        self._changed = dict.fromkeys(self.rows)

    def fail(self, reason: str) -> None:
        """Fail the run."""
        self._transition_run(RunState.FAILED, reason=reason, ended_at=self._now)

    def plan(self, kept_deferred: Collection[TaskRef] = (), changed: Collection[str] | None = None) -> None:
        """Apply the planner's commands; the task runs in `kept_deferred` stay deferred even if they are due.

        `changed` names the tasks that changed since the run was last planned, if that is known.
        """
        for command in self._plan_commands(changed):
            match command:
                case Transition(task, index, before, after, reason):
                    if before is not TaskState.DEFERRED or (task, index) not in kept_deferred:
                        self._apply_transition(self.rows[task, index], after, reason)
                case Expand(task, size):
                    self._expand(task, size)
                case Finish(RunState.FAILED):
                    self.fail(self._describe_failure())
                case Finish(state):
                    self._transition_run(state, ended_at=self._now)

    def _describe_failure(self) -> str:
        """Return which task failed first, and why, in a line that lists of runs have room for."""
        failed = [row for row in self.rows.values() if row.state is TaskState.FAILED]
        if not failed:
            return ""
        first = min(failed, key=lambda row: row.ended_at or self._now)
        element = "" if first.index == UNMAPPED else f" (element {first.index})"
        cause = first.reason.partition("\n")[0]
        if len(cause) > CAUSE_LIMIT:
            cause = cause[:CAUSE_LIMIT] + "…"
        return f"task '{first.task}' failed{element}: {cause}"

    def _plan_commands(self, changed: Collection[str] | None) -> list[Command]:
        if self.run.state is not RunState.RUNNING:
            return []
        if self._is_new:
            return plan_first(self._spec)
        if changed is not None:
            return plan_after(self._spec, self.rows, changed, self._now)
        return plan(PlannedRun(spec=self._spec, state=self.run.state, tasks=list(self.rows.values())), self._now)

    def _apply_transition(self, row: TaskRow, after: TaskState, reason: str) -> None:
        times = {"ended_at": self._now} if after.is_terminal else {}
        if row.reason == WAITING_FOR_ANSWER:
            self._draft_waits().expired.append((row.task, row.index))
        moved = self._transition(row, after, reason, wake_at=None, **times)
        if after is TaskState.SCHEDULED:
            self.scheduled.append(moved)
        elif after.is_terminal:
            self.decided.append(moved)

    def _expand(self, task: str, size: int) -> None:
        unmapped = self.rows.pop((task, UNMAPPED))
        if (original := self._original_rows.get((task, UNMAPPED))) is not None:
            self._removed.append(original)
        for index in range(size):
            self.scheduled.append(self._transition(replace(unmapped, index=index), TaskState.SCHEDULED))

    def _transition_run(self, after: RunState, reason: str = "", **fields: Any) -> None:
        self._events.append(run_event(self.run, after, reason))
        self.run = replace(self.run, state=after, reason=reason, **fields)

    # -- its task runs

    def claim(self, ref: TaskRef, owner: str, *, starts_now: bool) -> TaskRow:
        """Assign a scheduled task run to an owner, which starts it now or reports the start later."""
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
        self._events += claim_events(row, found.state)
        if row.pool is not None:
            self._pools.add(row.pool)
        return self._set_row(row)

    def mark_started(self, key: AttemptKey) -> bool:
        """Record that an attempt starts; return False if it is no longer the claimed one."""
        row = self._claimed_row(key)
        if row is None or row.state is not TaskState.QUEUED or row.claimed_by != self._actor:
            return False
        self._start(row)
        return True

    def mark_remote_started(self, key: AttemptKey) -> bool:
        """Record that a remote attempt starts, unless that is recorded; return False if it is not the claimed one."""
        row = self._claimed_row(key)
        if row is not None and row.state is TaskState.QUEUED:
            self._start(row)
        return row is not None

    def adopt(self, key: AttemptKey, previous: str) -> TaskRow | None:
        """Take over a claimed attempt from its previous owner; return its row, or None if it is not claimed by that."""
        row = self._claimed_row(key)
        if row is None or row.claimed_by != previous:
            return None
        return self._set_row(replace(row, claimed_by=self._actor))

    def _start(self, row: TaskRow) -> TaskRow:
        return self._transition(row, TaskState.RUNNING, started_at=self._now)

    def apply_result(
        self, key: AttemptKey, result: AttemptResult, budgets: RetryBudgets, *, is_remote: bool = False
    ) -> bool:
        """Record the result of an attempt; return False if it is no longer the claimed one: the report is late.

        A remote attempt reports for itself, whichever node has claimed it.
        """
        row = self._claimed_row(key)
        if row is None or (not is_remote and self._is_invalid_report(result, row)):
            return False
        if isinstance(result, Lost) and result.expired_lease is not None:
            # The store compares this again when the change is written.
            self._expired_leases[row.task, row.index] = result.expired_lease
        if row.state is TaskState.QUEUED and isinstance(result, Succeeded | Skipped | Deferred):
            row = self._start(row)  # only a started attempt can end like this; the report of its start may be missing
        after = apply_result(row, result, self._now, budgets)
        failure = {"error": result.error, "exit": result.exit} if isinstance(result, Failed) else {}
        attempt = current_attempt_row(self.run.id, row, ended_at=self._now, outcome=result.outcome, **failure)
        self._attempts.append(attempt)
        if isinstance(result, Succeeded):
            self._outputs[key] = result.value
        if isinstance(result, Deferred) and result.waits:
            self._open_waits(key, row, result)
        elif after.state.is_terminal and key.attempt > 1:  # the first attempt has opened none that are left
            self._draft_waits().cancelled.append((row.task, row.index))
        self._events.append(task_event(row, row.state, after.state, after.reason))
        self._set_row(after)
        if after.state is TaskState.SCHEDULED:
            self.scheduled.append(after)
        if after.wake_at is not None:
            self.sleeping.append(after)
        return True

    def _draft_waits(self) -> WaitDraft:
        if self._waits is None:
            self._waits = WaitDraft()
        return self._waits

    def _open_waits(self, key: AttemptKey, row: TaskRow, result: Deferred) -> None:
        drafted, run = self._draft_waits(), self.run
        drafted.seen[key.task, key.element] = result.ended_waits
        for one in result.waits:
            if not one.is_open:
                wait = new_sortable_id(self._now)
                drafted.opened.append(open_wait(wait, run.tenant, run.workflow, key, row.tries, one, self._now))

    def _is_invalid_report(self, result: AttemptResult, row: TaskRow) -> bool:
        """Return whether the reporter has no right to report: only the owner has, until its lease expires."""
        if not isinstance(result, Lost):
            return row.claimed_by != self._actor
        return result.expired_lease is not None and row.lease_until != result.expired_lease

    def has_unfinished_element(self, task: str) -> bool:
        """Return whether an element of a mapped task has not ended; checks the last ones first: they end last."""
        return any(row.task == task and not row.state.is_terminal for row in reversed(self.rows.values()))

    def end_deferral(self, key: AttemptKey) -> None:
        """End the deferral of an attempt."""
        row = self.rows.get((key.task, key.element))
        if row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt:
            woken = replace(row, deferrals=row.deferrals + 1)
            self.scheduled.append(self._transition(woken, TaskState.SCHEDULED, wake_at=None))

    def set_wake_times(self, times: Mapping[AttemptKey, datetime], step: timedelta) -> None:
        """Set when attempts that wait for seconds to pass are woken, because the wall clock was stepped."""
        if any(row.reason == WAITING_FOR_ANSWER for row in self.rows.values()):
            self._draft_waits().moved = step
        for key, wake_at in times.items():
            row = self.rows.get((key.task, key.element))
            if row is not None and row.attempt == key.attempt and row.is_counting_down:
                self.sleeping.append(self._set_row(replace(row, wake_at=wake_at)))

    def _claimed_row(self, key: AttemptKey) -> TaskRow | None:
        row = self.rows.get((key.task, key.element))
        return row if row is not None and row.attempt == key.attempt and row.state.is_claimed else None

    def _transition(self, row: TaskRow, after: TaskState, reason: str = "", **fields: Any) -> TaskRow:
        self._events.append(task_event(row, row.state, after, reason))
        return self._set_row(replace(row, state=after, since=self._now, reason=reason, **fields))

    def _set_row(self, row: TaskRow) -> TaskRow:
        ref = row.task, row.index
        self.rows[ref] = row
        self._changed[ref] = None
        return row

    # -- the change

    @property
    def ended_attempts(self) -> Sequence[AttemptRow]:
        """The attempts whose results were applied."""
        return self._attempts

    @property
    def is_empty(self) -> bool:
        """Whether the draft modifies nothing."""
        return not (self._is_new or self._changed or self.run is not self._original_run)

    def build_change(
        self,
        *,
        fence: LeaderFence | None = None,
        lease: float = 0.0,
        pools: Mapping[str, int] | None = None,
        passes_over: Collection[str] | None = None,
        is_guarded: bool = True,
    ) -> Change:
        """Return the change. Without `is_guarded` it is written even if the run itself has changed.

        With `passes_over` the run begins only if no older run of its workflow is queued, other than these.
        """
        tasks: list[TaskChange] = []
        added: list[TaskRow] = []
        for ref in self._changed:
            if (row := self.rows.get(ref)) is None:
                continue
            if (original := self._original_rows.get(ref)) is None:
                added.append(row)
            else:
                tasks.append(TaskChange(original, row, self._expired_leases.get(ref)))
        return Change(
            run=self.run.id,
            fence=fence,
            new_run=self.run if self._is_new else None,
            fire=self._fire,
            expected_run=self._original_run if is_guarded and not self._is_new else None,
            updated_run=self.run if not self._is_new and self.run is not self._original_run else None,
            tasks=tasks,
            removed=self._removed,
            added=added,
            attempts=self._attempts,
            outputs=self._outputs,
            waits=None if self._waits is None else self._waits.build(self._now),
            history=RunEventBatch(self._now, self._actor, self._events) if self._events else None,
            lease=lease,
            pools=[PoolLimit(self.run.tenant, name, pools[name]) for name in sorted(self._pools)] if pools else (),
            passes_over=passes_over,
        )
