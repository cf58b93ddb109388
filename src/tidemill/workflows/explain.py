"""Why a task has not run, or what became of it: one sentence per reason.

The planner itself is asked what it would do, so that what is said here and what happens cannot differ.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from tidemill.kernel.durations import format_duration
from tidemill.workflows.lookup import pinned_note, resolve_task
from tidemill.workflows.plan import UNMAPPED, Expand, Run, Transition, mapped_state, plan, took_branch, upstream_view
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.rules import Verdict
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState


class ExplainContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known beside the run itself."""

    now: datetime
    paused: bool = False
    """Whether the workflow is paused."""
    active_runs: int = 0
    """How many other runs of the workflow are running."""
    pool_usage: Mapping[str, tuple[int, int]] | None = None
    """Of each pool that there is: how many places are taken, and how many it has; None if nobody here knows."""
    capacity: int | None = None
    """How many more the task's executor could take now; None if there is no executor of that name."""
    quarantine_reason: str | None = None
    """Why the run is set aside, if it is; it is, and nobody can plan it, if its version cannot be read."""
    loaded_versions: Collection[str] | None = None
    """The versions of the workflow whose code is loaded here; None if whoever asks is no node."""
    live_nodes: int | None = None
    """How many nodes may be alive on the store; None if nobody has looked."""
    newest_version: str | None = None
    """The version of the workflow that was loaded last, by anybody; None if nobody has looked."""
    error_locations: Mapping[tuple[str, int], str] = {}
    """Of the task runs that failed: where in the author's code, as file:line."""
    poll_intervals: Mapping[tuple[str, int], float] | None = None
    """Of the task runs whose deferral a poll ends: the seconds between two calls; None if whoever asks cannot know."""
    pending_poll_seconds: Mapping[tuple[str, int], float] = {}
    """Of those whose poll has been called and has not returned: for how many seconds."""


def explain_task(record: RunRecord, spec: WorkflowSpec, task: str, context: ExplainContext) -> list[str]:
    """Return why a task of a run, or one element of it, has not run, or what became of it; never nothing.

    A `spec` without tasks is one that cannot be read: then `facts.set_aside` says so.
    """
    name, index = resolve_task(record, task)
    return _Explainer(record, spec, name, context, index).explain()


class _Explainer:
    """One question about one task."""

    def __init__(
        self, record: RunRecord, spec: WorkflowSpec, task: str, context: ExplainContext, index: int | None
    ) -> None:
        self._run = record.run
        self._record = record
        self._spec = spec
        self._name = task
        self._context = context
        rows = [row for row in record.tasks if row.task == task and index in (None, row.index)]
        self._rows = sorted(rows, key=lambda row: (_STATE_ORDER.get(row.state, 1), row.index))

    def explain(self) -> list[str]:
        said: list[str] = []
        if not all(row.state.is_terminal for row in self._rows):
            said += self._explain_run()
        undecided = [row for row in self._rows if row.state is TaskState.NONE]
        if undecided:
            said += self._why_undecided()
        told: dict[str, list[int]] = {}
        for row in self._rows:
            for sentence in self._explain_row(row) if row.state is not TaskState.NONE else ():
                told.setdefault(sentence, []).append(row.index)
        return [
            *said,
            *(sentence if UNMAPPED in of else f"{_format_elements(of)}: {sentence}" for sentence, of in told.items()),
        ]

    def _explain_run(self) -> Iterator[str]:
        if self._lacks_pinned_version:
            yield pinned_note(self._run, self._context.newest_version or "")
        if self._context.quarantine_reason is not None:
            yield f"the run is set aside: {self._context.quarantine_reason}"
        if self._context.live_nodes == 0:
            yield "no node is running on this store: start one"

    @property
    def _lacks_pinned_version(self) -> bool:
        """Whether it waits, there is a newer version, and no node is known to have the one that it waits for."""
        newest, version, loaded = self._context.newest_version, self._run.version, self._context.loaded_versions
        if newest in (None, version) or self._run.state.is_terminal:
            return False
        if not any(row.state in _WAITING_STATES for row in self._rows):
            return False
        if loaded is not None:
            return version not in loaded
        return not any(row.state.is_claimed for row in self._record.tasks)  # whoever has claimed something has it

    # -- nobody has decided on it yet

    def _why_undecided(self) -> Iterator[str]:
        if self._run.state is RunState.QUEUED:
            yield from self._why_not_started()
        elif self._run.state.is_terminal:
            yield f"the run has ended before anything was decided about it: {self._run.state}"
        else:
            yield from self._why_waiting()

    def _why_not_started(self) -> Iterator[str]:
        if self._context.paused:
            yield f"the run is queued: workflow '{self._spec.name}' is paused"
        if self._context.active_runs >= self._run.max_active:
            others = f"{_format_count(self._context.active_runs, 'other run')} of '{self._spec.name}'"
            verb = "is" if self._context.active_runs == 1 else "are"
            yield f"the run is queued: {others} {verb} running, at most {self._run.max_active} may"
        elif not self._context.paused and self._context.quarantine_reason is None:
            yield "the run is queued, and begins when it is next looked at"

    def _why_waiting(self) -> Iterator[str]:
        task = self._spec.by_name.get(self._name)
        if task is None:
            return  # the run is set aside
        commands = plan(Run(spec=self._spec, state=self._run.state, tasks=self._record.tasks), self._context.now)
        for one in commands:
            if isinstance(one, Expand) and one.task == task.name:
                yield f"it is about to be scheduled, as {_format_count(one.size, 'element')}"
                return
            if isinstance(one, Transition) and one.task == task.name and one.before is TaskState.NONE:
                because = f" {one.reason}" if one.reason else ""
                yield f"it is about to be {_NEXT_STATE_WORDS[one.after]}{because}"
                return
        for source, state in self._awaited_upstream(task):
            rule = "" if task.rule == "all_success" else f" (its rule is '{task.rule}')"
            yield f"it waits for '{source}', which {_UPSTREAM_CLAUSES[state]}{rule}"

    def _awaited_upstream(self, task: TaskSpec) -> list[tuple[str, TaskState]]:
        """Return those before it that have not ended, as far as they matter."""
        rows = self._record.by_task()
        states = {name: _task_state(found) for name, found in rows.items()}
        by_name = self._spec.by_name
        found = upstream_view(task, states, lambda edge: took_branch(edge, by_name[edge.source], rows[edge.source]))
        if found.verdict is Verdict.RUN and task.each is not None:  # the rule is content, the list is missing
            return [(task.each, states[task.each])]
        return [(source, states[source]) for source in task.upstream if not states[source].is_terminal]

    # -- somebody has

    def _explain_row(self, row: TaskRow) -> Iterator[str]:
        match row.state:
            case TaskState.SCHEDULED:
                yield from self._why_unclaimed(row)
            case TaskState.QUEUED:
                yield f"it is queued at '{row.claimed_by}'{_format_since(row.since)}, and has not begun"
            case TaskState.RUNNING:
                yield f"it is running at '{row.claimed_by}'{_format_since(row.started_at or row.since)}"
            case TaskState.UP_FOR_RETRY:
                reason = f"{row.reason or 'an unknown failure'}{self._error_location(row)}"
                yield f"it is tried again{_format_at(row.wake_at)}, after: {reason}"
            case TaskState.DEFERRED:
                yield self._why_deferred(row)
            case TaskState.SUCCESS:
                at = (
                    _format_at(row.ended_at) if len(self._rows) == 1 else ""
                )  # else each would have a sentence of its own
                yield f"it has succeeded{at}" + (f": {row.reason}" if row.reason else "")
            case _:
                because = _format_reason(row.reason if row.reason != row.state else "")
                yield f"it {_END_CLAUSES[row.state]}{because}{self._error_location(row)}"

    def _error_location(self, row: TaskRow) -> str:
        has_failed = row.state in (TaskState.FAILED, TaskState.UP_FOR_RETRY)
        place = self._context.error_locations.get((row.task, row.index)) if has_failed else None
        return f" ({place})" if place else ""

    def _why_deferred(self, row: TaskRow) -> str:
        polled, wake_at = self._context.poll_intervals, row.wake_at
        every = polled.get((row.task, row.index)) if polled is not None else None
        if every is not None:
            calls = f"its poll is called every {format_duration(every)} until that says yes"
            waits = self._context.pending_poll_seconds.get((row.task, row.index), 0.0)
            hangs = (
                f"; it was called {format_duration(round(waits, 1))} ago, and has not returned"
                if waits >= every
                else ""
            )
            return f"it is deferred{_format_since(row.since)}: {calls}{hangs}"
        if wake_at is None:
            return "it is deferred until somebody ends that"
        if wake_at > self._context.now:
            return f"it is deferred until {_format_time(wake_at)}"
        if polled is None and self._context.live_nodes:  # a mere time that has passed would have woken it
            return (
                f"it is deferred{_format_since(row.since)}: a node calls its poll again and again until that says yes"
            )
        return f"it was deferred until {_format_time(wake_at)}, and goes on when the run is next looked at"

    def _why_unclaimed(self, row: TaskRow) -> Iterator[str]:
        reasons = list(self._obstacles(row))
        yield from reasons or [f"it is scheduled{_format_since(row.since)}, and waits to be taken"]

    def _obstacles(self, row: TaskRow) -> Iterator[str]:
        version, loaded = self._run.version, self._context.loaded_versions
        if loaded is not None and version not in loaded and not self._lacks_pinned_version:
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
        if self._context.capacity is None:
            yield f"it is scheduled, but there is no executor '{row.executor}'"
        elif self._context.capacity < 1:
            yield f"it is scheduled, but executor '{row.executor}' has no place free"


_WAITING_STATES = (TaskState.NONE, TaskState.SCHEDULED, TaskState.UP_FOR_RETRY)
_STATE_ORDER = {TaskState.FAILED: 0, TaskState.SKIPPED: 2, TaskState.SUCCESS: 3}
"""In which order it is told of elements: what failed first, what went well last."""
_NEXT_STATE_WORDS = {
    TaskState.SCHEDULED: "scheduled",
    TaskState.SKIPPED: "skipped",
    TaskState.UPSTREAM_FAILED: "given up",
    TaskState.SUCCESS: "ended as a success",
}
_UPSTREAM_CLAUSES = {
    TaskState.NONE: "has not been decided on yet",
    TaskState.SCHEDULED: "is scheduled",
    TaskState.QUEUED: "is queued",
    TaskState.RUNNING: "is running",
    TaskState.UP_FOR_RETRY: "waits for another try",
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
    """Return a reason so that it can follow a sentence: the planner's begin with a word, others are told."""
    if not reason:
        return ""
    return f" {reason}" if reason.startswith("because ") else f": {reason}"


def _format_elements(numbers: Sequence[int]) -> str:
    """Return numbers in words, three or more that follow one another as "3 to 7"."""
    if len(numbers) == 1:
        return f"element {numbers[0]}"
    spans: list[list[int]] = []
    for number in numbers:
        if not spans or spans[-1][-1] != number - 1:
            spans.append([])
        spans[-1].append(number)
    said = [f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans]
    return f"elements {', '.join(said)}"


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _format_time(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def _format_at(moment: datetime | None) -> str:
    return f" at {_format_time(moment)}" if moment is not None else ""


def _format_since(moment: datetime | None) -> str:
    return f" since {_format_time(moment)}" if moment is not None else ""
