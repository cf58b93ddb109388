"""The planner: a run as it is, and the time, in; what is to be done about it out. Pure, and the same for equal input.

One pass looks at the tasks in order, so that a skip or a failure travels through the whole run at once. It decides on
tasks that nobody has decided on yet, wakes those whose time has come, and ends the run when nothing is left.

A mapped task is one task run until the list that it is mapped over is known, and then one per element. To those after
it, it is one again: failed if any is, done when all are.

Once planned, a run stays as it is until something happens in it. So after the end of a task it is enough to look at
what comes right after it (`follow`), however many tasks there are.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from tidemill.workflows.rules import Verdict, evaluate_rule
from tidemill.workflows.spec import Edge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

UNMAPPED = -1
"""The index of a task run that is not one element of a mapping."""

TaskRunsByRef = Mapping[tuple[str, int], "TaskRun"]
"""Task runs by task and index."""


class TaskRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One task of a run, or one element of a mapped one, as the planner sees it."""

    task: str
    index: int = UNMAPPED
    state: TaskState = TaskState.NONE
    variant: str | None = None
    """The variant of its value, if it succeeded."""
    size: int | None = None
    """How many elements its value has, if that is a list."""
    wake_at: datetime | None = None
    """When a retry or a deferral is over; None for one that somebody else ends."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as the planner sees it."""

    spec: WorkflowSpec
    state: RunState
    tasks: Sequence[TaskRun]


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Bring a task run into another state."""

    task: str
    index: int
    before: TaskState
    after: TaskState
    reason: str = ""


class Expand(msgspec.Struct, frozen=True, gc=False):
    """Replace a mapped task by this many task runs, all of them scheduled."""

    task: str
    size: int


class Finish(msgspec.Struct, frozen=True, gc=False):
    """End the run."""

    state: RunState


Command = Transition | Expand | Finish


def plan(run: Run, now: datetime) -> list[Command]:
    """Return what is to be done about a run now; nothing for one that has not begun, or has ended."""
    if run.state is not RunState.RUNNING:
        return []
    planning = _Planner(run.spec, run.tasks, now)
    if planning.states.keys() != run.spec.by_name.keys():
        raise ValueError("a run and its version do not have the same tasks")
    return planning.plan_tasks(run.spec.topological_order) + _plan_finish(run.spec, lambda name: planning.states[name])


def plan_after(spec: WorkflowSpec, rows: TaskRunsByRef, changed: Collection[str], now: datetime) -> list[Command]:
    """Return what `plan` would of a running run in which only some tasks have changed since it was last planned.

    Only these and those right after them are looked at, as long as all goes well: else everything is.
    """
    commands = None if spec.has_mapped_tasks else _plan_after_success(spec, rows, changed, now)
    if commands is None:
        return plan(Run(spec=spec, state=RunState.RUNNING, tasks=tuple(rows.values())), now)
    return commands or _plan_finish(spec, lambda name: rows[name, UNMAPPED].state)


def _plan_after_success(
    spec: WorkflowSpec, rows: TaskRunsByRef, changed: Collection[str], now: datetime
) -> list[Command] | None:
    """Return what goes on right after some tasks; None if that is for the rules to say."""
    commands: list[Command] = []
    for task in spec.with_downstream(changed):
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


_SLEEPING_STATES = (TaskState.UP_FOR_RETRY, TaskState.DEFERRED)


class UpstreamView(msgspec.Struct, frozen=True):
    """What those before a task mean for it: the verdict of its rule, and how each of them stands towards it."""

    verdict: Verdict
    sources: tuple[tuple[Edge, TaskState], ...]
    states: dict[str, TaskState]


def upstream_view(task: TaskSpec, states: dict[str, TaskState], takes_branch: Callable[[Edge], bool]) -> UpstreamView:
    """Judge a task by its rule. Whoever took another branch counts as skipped, and as done where it is optional.

    `takes_branch` says of an edge whether the task before it, which has succeeded, took that branch.
    """
    seen = tuple((edge, _state_along_edge(edge, states[edge.source], takes_branch)) for edge in task.edges)
    worst: dict[str, TaskState] = {}
    for edge, state in seen:  # one task may be named twice, for its value and for its end
        if edge.source not in worst or state is TaskState.SKIPPED:
            worst[edge.source] = state
    return UpstreamView(evaluate_rule(task.rule, list(worst.values())), seen, worst)


def _state_along_edge(edge: Edge, state: TaskState, takes_branch: Callable[[Edge], bool]) -> TaskState:
    if state is TaskState.SUCCESS and edge.takes is not None and not takes_branch(edge):
        state = TaskState.SKIPPED
    return TaskState.SUCCESS if edge.optional and state is TaskState.SKIPPED else state


def took_branch(edge: Edge, source: TaskSpec, rows: Sequence[TaskRun]) -> bool:
    """Return whether a task that has succeeded took the branch of an edge; with an empty list a mapped one took all."""
    had_nothing = source.each is not None and rows[0].index == UNMAPPED
    return had_nothing or any(carries(edge, row) for row in rows)


def carries(edge: Edge, row: TaskRun) -> bool:
    """Return whether a task run has a value that goes along an edge."""
    return row.state is TaskState.SUCCESS and (edge.takes is None or row.variant in edge.takes)


def mapped_state(states: Iterable[TaskState]) -> TaskState:
    """Return the state of a mapped task from those of its elements."""
    found = list(states)
    for state in (TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED):
        if state in found and all(one.is_terminal for one in found):
            return state
    if all(state is TaskState.SKIPPED for state in found):
        return TaskState.SKIPPED
    return TaskState.SUCCESS if all(state.is_terminal for state in found) else TaskState.RUNNING


def run_outcome(spec: WorkflowSpec, states: dict[str, TaskState]) -> RunState:
    """Return how a run ended whose tasks have all ended: its leaves decide."""
    if any(states[name] is TaskState.CANCELLED for name in spec.leaves):
        return RunState.CANCELLED
    return RunState.FAILED if any(states[name].has_failed for name in spec.leaves) else RunState.SUCCESS


def _plan_finish(spec: WorkflowSpec, state_of: Callable[[str], TaskState]) -> list[Command]:
    """Return the end of a run in which nothing is left; the last tasks are asked first, since they end last."""
    if not all(state_of(task.name).is_terminal for task in reversed(spec.topological_order)):
        return []
    return [Finish(run_outcome(spec, {name: state_of(name) for name in spec.leaves}))]


class _Planner:
    """One pass over tasks of one run."""

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
        """Return whether a rule could say anything but wait: most tasks of a long run have nobody done before them."""
        if task.rule == "always" or not task.edges:
            return True
        for edge in task.edges:  # noqa: SIM110, asked for every task at every plan: a generator costs more
            if self.states[edge.source].is_terminal:
                return True
        return False

    def _decide(self, task: TaskSpec) -> None:
        found = upstream_view(task, self.states, self._took_branch)
        rule, verdict = task.rule, found.verdict
        if verdict is Verdict.RUN and task.each is not None:
            rule, found = "all_success", _mapped_source_view(found, task.each)  # whatever its rule, it needs the list
            verdict = found.verdict
        if verdict is Verdict.SKIP:
            self._transition(task, TaskState.SKIPPED, _format_cause(found, _SKIP_CAUSES.get(rule, _is_skipped)))
        elif verdict is Verdict.FAIL:
            self._transition(task, TaskState.UPSTREAM_FAILED, _format_cause(found, lambda state: state.has_failed))
        elif verdict is Verdict.RUN and task.each is not None and self._rows[task.name][0].index == UNMAPPED:
            self._expand(task, task.each)
        elif verdict is Verdict.RUN:
            self._transition(task, TaskState.SCHEDULED)

    def _took_branch(self, edge: Edge) -> bool:
        return took_branch(edge, self._spec.by_name[edge.source], self._rows[edge.source])

    def _expand(self, task: TaskSpec, each: str) -> None:
        size = self._mapped_size(task.mapping_edge or Edge(each))
        if size is None:
            self._transition(task, TaskState.UPSTREAM_FAILED, f"'{each}' returned no list to map over")
        elif size == 0:
            self._transition(task, TaskState.SUCCESS, f"'{each}' returned an empty list")
        else:
            self._commands.append(Expand(task.name, size))

    def _mapped_size(self, mapping: Edge) -> int | None:
        """Return how many elements there are to map over; of a mapped task those that the mapping carries."""
        rows = self._rows[mapping.source]
        if self._spec.by_name[mapping.source].each is None:
            return rows[0].size
        return sum(row.index != UNMAPPED and carries(mapping, row) for row in rows)

    def _wake(self, task: TaskSpec) -> None:
        """Schedule what was put off, a retry or a deferral, and has waited long enough."""
        for row in self._rows[task.name]:
            if row.state in _SLEEPING_STATES and row.wake_at is not None and row.wake_at <= self._now:
                self._commands.append(Transition(task.name, row.index, row.state, TaskState.SCHEDULED))

    def _transition(self, task: TaskSpec, state: TaskState, reason: str = "") -> None:
        """Bring what nobody has decided on yet into a state: a task, or the elements of a mapping that were cleared."""
        rows = self._rows[task.name]
        if rows[0].index == UNMAPPED:
            self._commands.append(Transition(task.name, UNMAPPED, TaskState.NONE, state, reason))
            self.states[task.name] = state
            return
        fresh = {row.index: replace(row, state=state) for row in rows if row.state is TaskState.NONE}
        self._commands += [Transition(task.name, index, TaskState.NONE, state, reason) for index in fresh]
        self._rows[task.name] = [fresh.get(row.index, row) for row in rows]
        self.states[task.name] = mapped_state(row.state for row in self._rows[task.name])


def _mapped_source_view(view: UpstreamView, each: str) -> UpstreamView:
    """Return what the list that a task is mapped over means for it, and nothing else."""
    sources = tuple((edge, state) for edge, state in view.sources if edge.source == each)
    return UpstreamView(evaluate_rule("all_success", [view.states[each]]), sources, {each: view.states[each]})


def _is_skipped(state: TaskState) -> bool:
    return state is TaskState.SKIPPED


_SKIP_CAUSES: Mapping[str, Callable[[TaskState], bool]] = {
    "all_failed": lambda state: state.is_terminal and not state.has_failed,
    "all_skipped": lambda state: state.is_terminal and state is not TaskState.SKIPPED,
    "one_failed": lambda state: state.is_terminal,  # it is all of them that are missing a failure
    "one_done": lambda state: state.is_terminal,
}
"""Which of those before it a task is skipped for, by its rule; by every other rule those that were skipped."""


def _format_cause(view: UpstreamView, is_cause: Callable[[TaskState], bool]) -> str:
    names = list(dict.fromkeys(edge.source for edge, state in view.sources if is_cause(state)))
    return f"because of {', '.join(map(repr, names))}" if names else ""
