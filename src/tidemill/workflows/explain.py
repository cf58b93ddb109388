"""Explains why a task has not run, or how it ended: one sentence per reason.

It calls the planner for what would happen next, so that the explanation and the behaviour cannot differ.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from tidemill.kernel.durations import format_duration
from tidemill.workflows.answerers import DEFAULT_ROLE
from tidemill.workflows.definition import WORKER_EXECUTOR
from tidemill.workflows.lookup import resolve_task
from tidemill.workflows.plan import (
    UNMAPPED,
    Expand,
    PlannedRun,
    Transition,
    mapped_state,
    plan,
    took_branch,
    upstream_view,
)
from tidemill.workflows.records import WAITING_FOR_ANSWER, RunRecord, TaskRow
from tidemill.workflows.rules import ALL_SUCCESS, Verdict
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.waits import WaitRow


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that lives, as far as it matters for one run."""

    labels: Collection[str]
    has_code: bool
    """Whether it has loaded the run's version."""
    free_slots: int


class ExplainContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from outside the run that an explanation needs."""

    now: datetime
    paused: bool = False
    """Whether the workflow is paused."""
    active_runs: int = 0
    """The number of other running runs of the workflow."""
    pool_usage: Mapping[str, tuple[int, int]] | None = None
    """By pool, the number of used slots and of all slots; None if unknown here."""
    capacity: int | None = None
    """The number of free slots of the task's executor; None if there is no executor of that name."""
    workers: Sequence[WorkerView] = ()
    """The workers that live on the store."""
    quarantine_reason: str | None = None
    """Why the run is quarantined, if it is, as when its version cannot be read."""
    loaded_versions: Collection[str] | None = None
    """The versions of the workflow whose code is loaded here; None outside a node."""
    code_note: str | None = None
    """What to do about the run if it waits for code that no node has."""
    blocking_notes: Sequence[str] = ()
    """The same for the running runs of the workflow that a queued run waits for."""
    live_nodes: int | None = None
    """The number of nodes that may be alive on the store; None if unknown."""
    error_locations: Mapping[tuple[str, int], str] = {}
    """Of the failed task runs: the location in the author's code, as file:line."""
    poll_intervals: Mapping[tuple[str, int], float] | None = None
    """Of the task runs whose deferral a poll ends: the seconds between two calls; None if unknown here."""
    write_blocker: str | None = None
    """Why nothing can be written to the store at the moment, if that is known."""
    stuck_pids: Mapping[tuple[str, int], int] = {}
    """Of the task runs whose lease has expired although their process lives on this host: the pid."""
    loop_blocks: Mapping[tuple[str, int], str] = {}
    """Of the task runs whose attempt has blocked the event loop of its node: a sentence about it."""
    waits: Sequence[WaitRow] = ()
    """The open waits of the run."""
    pending_poll_seconds: Mapping[tuple[str, int], float] = {}
    """Of the task runs whose poll is being called: the seconds since the call began."""


def explain_task(record: RunRecord, spec: WorkflowSpec, task: str, context: ExplainContext) -> list[str]:
    """Return the reasons why a task of a run, or one element, has not run, or how it ended; at least one.

    A `spec` without tasks is one that cannot be read; `context.quarantine_reason` then says so.
    """
    name, index = resolve_task(record, task)
    return _Explainer(_RunView(record, spec, context.now), name, context, index).explain()


def explain_waiting(
    record: RunRecord, spec: WorkflowSpec, context_of: Callable[[TaskRow], ExplainContext]
) -> dict[str, list[str]]:
    """Return the reasons of every task of a run that has not ended, by task.

    `context_of` returns the facts about a task from one of its task runs.
    """
    view: _RunView | None = None
    reasons: dict[str, list[str]] = {}
    for name, rows in record.by_task().items():
        if not all(row.state.is_terminal for row in rows):
            context = context_of(rows[0])
            view = view or _RunView(record, spec, context.now)
            reasons[name] = _Explainer(view, name, context, None).explain()
    return reasons


class _RunView:
    """A run, and what the planner would do next, computed once for all tasks that are explained."""

    def __init__(self, record: RunRecord, spec: WorkflowSpec, now: datetime) -> None:
        self.run = record.run
        self.spec = spec
        self.rows = record.by_task()
        self._tasks = record.tasks
        self._now = now

    @cached_property
    def states(self) -> dict[str, TaskState]:
        """The state of each task."""
        return {name: _task_state(rows) for name, rows in self.rows.items()}

    @cached_property
    def commands(self) -> dict[str, Transition | Expand]:
        """What the planner would do now with each undecided task that it would decide on."""
        decisions: dict[str, Transition | Expand] = {}
        for one in plan(PlannedRun(spec=self.spec, state=self.run.state, tasks=self._tasks), self._now):
            if isinstance(one, Expand) or (isinstance(one, Transition) and one.before is TaskState.NONE):
                decisions.setdefault(one.task, one)
        return decisions


class _Explainer:
    """Explains one task of one run."""

    def __init__(self, view: _RunView, task: str, context: ExplainContext, index: int | None) -> None:
        self._view = view
        self._run = view.run
        self._spec = view.spec
        self._name = task
        self._context = context
        rows = [row for row in view.rows.get(task, ()) if index in (None, row.index)]
        self._rows = sorted(rows, key=lambda row: (_STATE_ORDER.get(row.state, 1), row.index))

    def explain(self) -> list[str]:
        sentences: list[str] = []
        if not all(row.state.is_terminal for row in self._rows):
            sentences += self._explain_run()
        if any(row.state is TaskState.NONE for row in self._rows):
            sentences += self._why_undecided()
        elements_by_sentence: dict[str, list[int]] = {}
        for row in self._rows:
            for sentence in self._explain_row(row) if row.state is not TaskState.NONE else ():
                elements_by_sentence.setdefault(sentence, []).append(row.index)
        for sentence, elements in elements_by_sentence.items():
            sentences.append(sentence if UNMAPPED in elements else f"{_format_elements(elements)}: {sentence}")
        return sentences

    def _explain_run(self) -> Iterator[str]:
        if self._waits_for_code and self._context.code_note is not None:
            yield self._context.code_note
        if self._context.quarantine_reason is not None:
            yield f"the run is quarantined: {self._context.quarantine_reason}"
        if self._context.write_blocker is not None:
            yield self._context.write_blocker
        if self._context.live_nodes == 0:
            yield "no node is running on this store: start one"

    @property
    def _waits_for_code(self) -> bool:
        """Whether it waits for code that no node has, while there is newer code."""
        return self._context.code_note is not None and any(row.state in _WAITING_STATES for row in self._rows)

    # -- undecided tasks

    def _why_undecided(self) -> Iterator[str]:
        if self._run.state is RunState.QUEUED:
            yield from self._why_not_started()
        elif self._run.state.is_terminal:
            yield f"the run ended before the planner decided on it: {self._run.state}"
        else:
            yield from self._why_waiting()

    def _why_not_started(self) -> Iterator[str]:
        if self._context.paused:
            yield f"the run is queued: workflow '{self._spec.name}' is paused"
        if self._context.active_runs >= self._run.max_active:
            others = f"{_format_count(self._context.active_runs, 'other run')} of '{self._spec.name}'"
            verb = "is" if self._context.active_runs == 1 else "are"
            yield f"the run is queued: {others} {verb} running, at most {self._run.max_active} may"
            yield from self._context.blocking_notes
        elif not self._context.paused and self._context.quarantine_reason is None:
            yield "the run is queued, and starts when it is next planned"

    def _why_waiting(self) -> Iterator[str]:
        task = self._spec.by_name.get(self._name)
        if task is None:
            return  # the run is quarantined
        match self._view.commands.get(task.name):
            case Expand() as command:
                yield f"it is about to be scheduled, as {_format_count(command.size, 'element')}"
                return
            case Transition() as command:
                reason = f" {command.reason}" if command.reason else ""
                yield f"it is about to be {_NEXT_STATE_WORDS[command.after]}{reason}"
                return
        for source, state in self._awaited_upstream(task):
            rule = "" if task.trigger_rule is ALL_SUCCESS else f" (its rule is '{task.rule}')"
            yield f"it waits for '{source}', which {_UPSTREAM_CLAUSES[state]}{rule}"

    def _awaited_upstream(self, task: TaskSpec) -> list[tuple[str, TaskState]]:
        """Return the upstream tasks that it waits for, with their states."""
        rows, states, by_name = self._view.rows, self._view.states, self._spec.by_name
        view = upstream_view(task, states, lambda edge: took_branch(edge, by_name[edge.source], rows[edge.source]))
        if view.verdict is Verdict.RUN and task.each is not None:  # the rule is satisfied, the list is missing
            return [(task.each, states[task.each])]
        return [(source, states[source]) for source in task.upstream if not states[source].is_terminal]

    # -- decided tasks

    def _explain_row(self, row: TaskRow) -> Iterator[str]:
        yield from self._explain_state(row)
        if (block := self._context.loop_blocks.get((row.task, row.index))) is not None:
            yield block

    def _explain_state(self, row: TaskRow) -> Iterator[str]:
        match row.state:
            case TaskState.SCHEDULED:
                yield from self._why_unclaimed(row)
            case TaskState.QUEUED:
                yield f"it is queued at '{row.claimed_by}'{_format_since(row.since)}, and has not started"
            case TaskState.RUNNING:
                stuck = self._why_stuck(row)
                yield f"it is running at '{row.claimed_by}'{_format_since(row.started_at or row.since)}{stuck}"
            case TaskState.UP_FOR_RETRY:
                reason = f"{row.reason or 'an unknown failure'}{self._error_location(row)}"
                yield f"it is retried{_format_at(row.wake_at)}, after: {reason}"
            case TaskState.DEFERRED:
                yield self._why_deferred(row)
            case TaskState.SUCCESS:
                # Without the time, equal sentences about several elements become one.
                at = _format_at(row.ended_at) if len(self._rows) == 1 else ""
                yield f"it has succeeded{at}" + (f": {row.reason}" if row.reason else "")
            case _:
                reason = _format_reason(row.reason if row.reason != row.state else "")
                yield f"it {_END_CLAUSES[row.state]}{reason}{self._error_location(row)}"

    def _why_stuck(self, row: TaskRow) -> str:
        pid = self._context.stuck_pids.get((row.task, row.index))
        if pid is None:
            return ""
        return (
            f"; its process {pid} sends no heartbeats, but lives: a call that holds the interpreter lock blocks all of "
            f"it. No other node gets the task while that process lives: wait, or kill {pid}"
        )

    def _error_location(self, row: TaskRow) -> str:
        has_failed = row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY)
        location = self._context.error_locations.get((row.task, row.index)) if has_failed else None
        return f" ({location})" if location else ""

    def _why_deferred(self, row: TaskRow) -> str:
        polled, wake_at = self._context.poll_intervals, row.wake_at
        every = polled.get((row.task, row.index)) if polled is not None else None
        if every is not None:
            calls = f"its poll is called every {format_duration(every)} until it returns true"
            waits = self._context.pending_poll_seconds.get((row.task, row.index), 0.0)
            hangs = (
                f"; it was called {format_duration(round(waits, 1))} ago, and has not returned"
                if waits >= every
                else ""
            )
            return f"it is deferred{_format_since(row.since)}: {calls}{hangs}"
        if row.reason == WAITING_FOR_ANSWER:
            until = "" if wake_at is None else f", until {_format_time(wake_at)}"
            return f"it waits for an answer{_format_since(row.since)}{until}{self._asked(row)}"
        if wake_at is None:
            return "it is deferred, and has no wake-up time"
        if wake_at > self._context.now:
            return f"it is deferred until {_format_time(wake_at)}"
        if polled is None and self._context.live_nodes:  # without a poll, the passed time would have woken it
            return f"it is deferred{_format_since(row.since)}: a node calls its poll until it returns true"
        return f"it was deferred until {_format_time(wake_at)}, and continues when the run is next planned"

    def _asked(self, row: TaskRow) -> str:
        """Return what is asked, and who may answer."""
        asked = [one for one in self._context.waits if (one.task, one.element) == (row.task, row.index)]
        return "".join(f"; '{one.name}' takes answers from {', '.join(one.by) or DEFAULT_ROLE}" for one in asked)

    def _why_unclaimed(self, row: TaskRow) -> Iterator[str]:
        reasons = list(self._obstacles(row))
        yield from reasons or [f"it is scheduled{_format_since(row.since)}, and waits to be claimed"]

    def _obstacles(self, row: TaskRow) -> Iterator[str]:
        version, loaded = self._run.version, self._context.loaded_versions
        is_for_worker = row.executor == WORKER_EXECUTOR
        if loaded is not None and version not in loaded and not self._waits_for_code and not is_for_worker:
            yield (
                f"it is scheduled, but no node here has version {version} of '{self._spec.name}' (loaded: "
                f"{', '.join(sorted(loaded)) or 'none'}): load that version, or cancel the run and start it again"
            )
        if self._context.paused:
            yield f"it is scheduled, but workflow '{self._spec.name}' is paused"
        pools = self._context.pool_usage
        if row.pool is not None and pools is not None:
            used, slots = pools.get(row.pool, (0, 0))
            if row.pool not in pools:
                yield f"it is scheduled, but there is no pool '{row.pool}'"
            elif used >= slots:
                yield f"it is scheduled, but pool '{row.pool}' is full ({used} of {slots})"
        if is_for_worker:
            yield from self._worker_obstacles()
        elif self._context.capacity is None:
            yield f"it is scheduled, but there is no executor '{row.executor}'"
        elif self._context.capacity < 1:
            yield f"it is scheduled, but executor '{row.executor}' has no free slot"
            if row.reason:
                yield f"its last attempt was handed back: {row.reason}"

    def _worker_obstacles(self) -> Iterator[str]:
        task = self._spec.by_name.get(self._name)
        labels = task.labels if task is not None else ()
        wanted = f"a worker with the labels {', '.join(labels)}" if labels else "a worker"
        suitable = [one for one in self._context.workers if set(labels).issubset(one.labels)]
        with_code = [one for one in suitable if one.has_code]
        if not suitable:
            yield f"it is scheduled, and waits for {wanted}; none is running"
        elif not with_code:
            have = f"version {self._run.version} of '{self._spec.name}'"
            yield f"it is scheduled, and waits for {wanted} that has {have}: publish its package, or start one with it"
        elif all(one.free_slots < 1 for one in with_code):
            busy = "the only one is" if len(with_code) == 1 else f"all {len(with_code)} are"
            yield f"it is scheduled, and waits for {wanted}: {busy} busy"


_WAITING_STATES = (TaskState.NONE, TaskState.SCHEDULED, TaskState.UP_FOR_RETRY)
_STATE_ORDER = {TaskState.FAILED: 0, TaskState.SKIPPED: 2, TaskState.SUCCESS: 3}
"""The order of elements in an explanation: failed ones first, successful ones last."""
_NEXT_STATE_WORDS = {
    TaskState.SCHEDULED: "scheduled",
    TaskState.SKIPPED: "skipped",
    TaskState.UPSTREAM_FAILED: "marked upstream_failed",
    TaskState.SUCCESS: "ended as a success",
}
_UPSTREAM_CLAUSES = {
    TaskState.NONE: "is still undecided",
    TaskState.SCHEDULED: "is scheduled",
    TaskState.QUEUED: "is queued",
    TaskState.RUNNING: "is running",
    TaskState.UP_FOR_RETRY: "waits for a retry",
    TaskState.DEFERRED: "is deferred",
}
_END_CLAUSES = {
    TaskState.FAILED: "has failed",
    TaskState.SKIPPED: "was skipped",
    TaskState.UPSTREAM_FAILED: "cannot run",
    TaskState.CANCELLED: "was cancelled",
}


def _task_state(rows: Sequence[TaskRow]) -> TaskState:
    return rows[0].state if rows[0].index == UNMAPPED else mapped_state(row.state for row in rows)


def _format_reason(reason: str) -> str:
    """Return a reason in the form that follows a clause: the planner's reasons begin with "because"."""
    if not reason:
        return ""
    return f" {reason}" if reason.startswith("because ") else f": {reason}"


def _format_elements(numbers: Sequence[int]) -> str:
    """Return element numbers as text; three or more consecutive ones as "3 to 7"."""
    if len(numbers) == 1:
        return f"element {numbers[0]}"
    spans: list[list[int]] = []
    for number in numbers:
        if not spans or spans[-1][-1] != number - 1:
            spans.append([])
        spans[-1].append(number)
    parts = [f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return f"elements {', '.join(parts)}"


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_time(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def _format_at(moment: datetime | None) -> str:
    return f" at {_format_time(moment)}" if moment is not None else ""


def _format_since(moment: datetime | None) -> str:
    return f" since {_format_time(moment)}" if moment is not None else ""
