"""The planner: takes a run and the current time, returns commands. Pure: equal input gives equal output.

One pass visits the tasks in topological order, so that a skip or a failure travels through the whole run in a single
plan. It decides on undecided tasks, wakes sleeping tasks whose time has come, and ends the run when nothing is left.

A mapped task is one task run until the list that it is mapped over is known, and then one per element. Downstream tasks
see it as one again: failed if any element failed, done when all are.

Once planned, a run stays as it is until something happens in it. So after the end of a task it is enough to plan its
direct downstream tasks (`plan_after`), however many tasks the run has. The first plan of a new run is the same for
every run of a version (`plan_first`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tidemill.workflows.rules import ALL_SUCCESS, Verdict
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

UNMAPPED = -1
"""The index of a task run that is not an element of a mapped task."""

TaskRunsByRef = Mapping[tuple[str, int], "TaskRun"]
"""Task runs by task and index."""


class TaskRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One task of a run, or one element of a mapped task, as the planner sees it."""

    task: str
    index: int = UNMAPPED
    state: TaskState = TaskState.NONE
    variant: str | None = None
    """The variant of its value, if it succeeded."""
    size: int | None = None
    """The number of elements of its value, if that is a list."""
    wake_at: datetime | None = None
    """When a retry or a deferral ends; None if something else ends it."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the planner sees it."""

    spec: WorkflowSpec
    state: RunState
    tasks: Sequence[TaskRun]


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Moves a task run to another state."""

    task: str
    index: int
    before: TaskState
    after: TaskState
    reason: str = ""


class Expand(msgspec.Struct, frozen=True, gc=False):
    """Replaces a mapped task by this many task runs, all of them scheduled."""

    task: str
    size: int


class Finish(msgspec.Struct, frozen=True, gc=False):
    """Ends the run."""

    state: RunState


Command = Transition | Expand | Finish


def plan(run: PlannedRun, now: datetime) -> list[Command]:
    """Return the commands for a run at `now`; none for a run that has not started or has ended."""
    if run.state is not RunState.RUNNING:
        return []
    planner = _Planner(run.spec, run.tasks, now)
    if planner.states.keys() != run.spec.by_name.keys():
        raise ValueError("the run and its workflow version do not have the same tasks")
    commands, states = planner.plan_tasks(run.spec.topological_order), planner.states
    if all(state.is_terminal for state in states.values()):
        commands.append(Finish(run_outcome(run.spec, states)))
    return commands


def plan_first(spec: WorkflowSpec) -> list[Command]:
    """Return what `plan` would return for a running run whose tasks are all undecided."""
    commands: list[Command] = [
        Transition(name, UNMAPPED, TaskState.NONE, TaskState.SCHEDULED) for name in spec.first_tasks
    ]
    return commands or [Finish(run_outcome(spec, {}))]


def plan_after(spec: WorkflowSpec, rows: TaskRunsByRef, changed: Collection[str], now: datetime) -> list[Command]:
    """Return what `plan` would return for a running run in which only `changed` tasks changed since the last plan.

    Visits only these and their direct downstream tasks while every task succeeds; otherwise plans the whole run.
    """
    commands = None if spec.has_mapped_tasks else _plan_after_success(spec, rows, changed, now)
    if commands is None:
        return plan(PlannedRun(spec=spec, state=RunState.RUNNING, tasks=tuple(rows.values())), now)
    if commands:
        return commands
    for task in reversed(spec.topological_order):  # the last tasks end last
        if not rows[task.name, UNMAPPED].state.is_terminal:
            return []
    return [Finish(run_outcome(spec, {name: rows[name, UNMAPPED].state for name in spec.leaves}))]


def _plan_after_success(
    spec: WorkflowSpec, rows: TaskRunsByRef, changed: Collection[str], now: datetime
) -> list[Command] | None:
    """Return the commands for some tasks and their downstream tasks; None if trigger rules have to decide."""
    commands: list[Command] = []
    for task in _with_downstream(spec, changed):
        row = rows[task.name, UNMAPPED]
        if row.state is TaskState.NONE:
            ended = [state for edge in task.edges if (state := rows[edge.source, UNMAPPED].state).is_terminal]
            if ended and (task.name not in spec.plain_tasks or ended.count(TaskState.SUCCESS) < len(ended)):
                return None
            if len(ended) == len(task.edges):
                commands.append(Transition(task.name, UNMAPPED, row.state, TaskState.SCHEDULED))
        elif row.state in _SLEEPING_STATES and row.wake_at is not None and row.wake_at <= now:
            commands.append(Transition(task.name, UNMAPPED, row.state, TaskState.SCHEDULED))
    return commands


def _with_downstream(spec: WorkflowSpec, names: Collection[str]) -> Collection[TaskSpec]:
    """Return some tasks and their direct downstream tasks, in topological order."""
    if len(names) == 1:  # as nearly always
        return spec.with_downstream[next(iter(names))]
    return spec.sort_topologically({task.name for name in names for task in spec.with_downstream[name]})


_SLEEPING_STATES = (TaskState.UP_FOR_RETRY, TaskState.DEFERRED)


class UpstreamView(msgspec.Struct, frozen=True):
    """A task's upstream tasks: the verdict of its rule, and the state of each as it counts for this task."""

    verdict: Verdict
    sources: tuple[tuple[TaskEdge, TaskState], ...]
    states: dict[str, TaskState]


def upstream_view(
    task: TaskSpec, states: dict[str, TaskState], takes_branch: Callable[[TaskEdge], bool]
) -> UpstreamView:
    """Evaluate a task's rule. An upstream task that took another branch counts as skipped, or as done where optional.

    `takes_branch` tells of an edge whether its source, which has succeeded, took that branch.
    """
    along_edges = tuple((edge, _state_along_edge(edge, states[edge.source], takes_branch)) for edge in task.edges)
    worst: dict[str, TaskState] = {}
    for edge, state in along_edges:  # a task may appear twice, for its value and for its end
        if edge.source not in worst or state is TaskState.SKIPPED:
            worst[edge.source] = state
    return UpstreamView(task.trigger_rule.evaluate(list(worst.values())), along_edges, worst)


def _state_along_edge(edge: TaskEdge, state: TaskState, takes_branch: Callable[[TaskEdge], bool]) -> TaskState:
    if state is TaskState.SUCCESS and edge.takes is not None and not takes_branch(edge):
        state = TaskState.SKIPPED
    return TaskState.SUCCESS if edge.optional and state is TaskState.SKIPPED else state


def took_branch(edge: TaskEdge, source: TaskSpec, rows: Sequence[TaskRun]) -> bool:
    """Return whether a successful task took the branch of an edge; a task mapped over an empty list took every one."""
    is_empty_mapping = source.each is not None and rows[0].index == UNMAPPED
    return is_empty_mapping or any(carries(edge, row) for row in rows)


def carries(edge: TaskEdge, row: TaskRun) -> bool:
    """Return whether a task run's value passes along an edge."""
    return row.state is TaskState.SUCCESS and (edge.takes is None or row.variant in edge.takes)


def mapped_state(states: Iterable[TaskState]) -> TaskState:
    """Return the state of a mapped task, from the states of its elements."""
    elements = list(states)
    for state in (TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED):
        if state in elements and all(element.is_terminal for element in elements):
            return state
    if all(state is TaskState.SKIPPED for state in elements):
        return TaskState.SKIPPED
    return TaskState.SUCCESS if all(state.is_terminal for state in elements) else TaskState.RUNNING


def run_outcome(spec: WorkflowSpec, states: dict[str, TaskState]) -> RunState:
    """Return the outcome of a run whose tasks have all ended: its leaves decide."""
    outcome = RunState.SUCCESS
    for name in spec.leaves:
        if states[name] is TaskState.CANCELLED:
            return RunState.CANCELLED
        if states[name].has_failed:
            outcome = RunState.FAILED
    return outcome


class _Planner:
    """One pass over the tasks of one run."""

    def __init__(self, spec: WorkflowSpec, rows: Iterable[TaskRun], now: datetime) -> None:
        self._spec = spec
        self._now = now
        self._commands: list[Command] = []
        self._rows: dict[str, list[TaskRun]] = {}
        self.states: dict[str, TaskState] = {}
        self._undecided: set[str] = set()
        self._sleeping: set[str] = set()
        self._read_rows(rows)

    def _read_rows(self, rows: Iterable[TaskRun]) -> None:
        elements: dict[str, list[TaskRun]] = {}
        for row in rows:
            name, state = row.task, row.state
            if state is TaskState.NONE:
                self._undecided.add(name)
            elif state in _SLEEPING_STATES:
                self._sleeping.add(name)
            if row.index == UNMAPPED:
                self._rows[name] = [row]
                self.states[name] = state
            else:
                elements.setdefault(name, []).append(row)
        for name, ones in elements.items():
            ones.sort(key=lambda row: row.index)
            self._rows[name] = ones
            self.states[name] = mapped_state(row.state for row in ones)

    def plan_tasks(self, tasks: Iterable[TaskSpec]) -> list[Command]:
        for task in tasks:
            if task.name in self._undecided and self._may_decide(task):
                self._decide(task)
            if task.name in self._sleeping:
                self._wake(task)
        return self._commands

    def _may_decide(self, task: TaskSpec) -> bool:
        """Return whether the rule could decide now: most undecided tasks of a long run have no ended upstream task."""
        if not task.edges:
            return True
        for edge in task.edges:  # no generator: this runs for every task at every plan
            if self.states[edge.source].is_terminal:
                return True
        return not task.trigger_rule.waits

    def _decide(self, task: TaskSpec) -> None:
        rule, view = task.trigger_rule, upstream_view(task, self.states, self._took_branch)
        if view.verdict is Verdict.RUN and task.each is not None:
            rule, view = ALL_SUCCESS, _mapped_source_view(view, task.each)  # under any rule, it needs the list
        verdict = view.verdict
        if verdict is Verdict.SKIP:
            self._transition(task, TaskState.SKIPPED, _format_cause(view, rule.is_skip_cause))
        elif verdict is Verdict.FAIL:
            self._transition(task, TaskState.UPSTREAM_FAILED, _format_cause(view, lambda state: state.has_failed))
        elif verdict is Verdict.RUN and task.each is not None and self._rows[task.name][0].index == UNMAPPED:
            self._expand(task, task.each)
        elif verdict is Verdict.RUN:
            self._transition(task, TaskState.SCHEDULED)

    def _took_branch(self, edge: TaskEdge) -> bool:
        return took_branch(edge, self._spec.by_name[edge.source], self._rows[edge.source])

    def _expand(self, task: TaskSpec, each: str) -> None:
        size = self._mapped_size(task.mapping_edge or TaskEdge(each))
        if size is None:
            self._transition(task, TaskState.UPSTREAM_FAILED, f"'{each}' returned no list to map over")
        elif size == 0:
            self._transition(task, TaskState.SUCCESS, f"'{each}' returned an empty list")
        else:
            self._commands.append(Expand(task.name, size))

    def _mapped_size(self, mapping: TaskEdge) -> int | None:
        """Return the number of elements to map over; of a mapped source, those that the edge carries."""
        rows = self._rows[mapping.source]
        if self._spec.by_name[mapping.source].each is None:
            return rows[0].size
        return sum(row.index != UNMAPPED and carries(mapping, row) for row in rows)

    def _wake(self, task: TaskSpec) -> None:
        """Schedule the task's runs whose retry or deferral is due."""
        for row in self._rows[task.name]:
            if row.state in _SLEEPING_STATES and row.wake_at is not None and row.wake_at <= self._now:
                self._commands.append(Transition(task.name, row.index, row.state, TaskState.SCHEDULED))

    def _transition(self, task: TaskSpec, state: TaskState, reason: str = "") -> None:
        """Move the undecided runs of a task to a state: its only one, or the cleared elements of a mapped task."""
        rows = self._rows[task.name]
        if rows[0].index == UNMAPPED:
            self._commands.append(Transition(task.name, UNMAPPED, TaskState.NONE, state, reason))
            self.states[task.name] = state
            return
        decided = {row.index: replace(row, state=state) for row in rows if row.state is TaskState.NONE}
        self._commands += [Transition(task.name, index, TaskState.NONE, state, reason) for index in decided]
        self._rows[task.name] = [decided.get(row.index, row) for row in rows]
        self.states[task.name] = mapped_state(row.state for row in self._rows[task.name])


def _mapped_source_view(view: UpstreamView, each: str) -> UpstreamView:
    """Return the view of the list that a task is mapped over, and of nothing else."""
    sources = tuple((edge, state) for edge, state in view.sources if edge.source == each)
    return UpstreamView(ALL_SUCCESS.evaluate([view.states[each]]), sources, {each: view.states[each]})


def _format_cause(view: UpstreamView, is_cause: Callable[[TaskState], bool]) -> str:
    names = list(dict.fromkeys(edge.source for edge, state in view.sources if is_cause(state)))
    return f"because of {', '.join(map(repr, names))}" if names else ""
