"""A workflow as the planner and the store see it: names, edges and numbers, no code.

A run can be planned from its spec alone, in any process, even after the module that declared the workflow is gone.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from graphlib import TopologicalSorter
from hashlib import sha256
from heapq import heappop, heappush

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import force_setattr

from tidemill.workflows.rules import ALL_SUCCESS, RULES, Rule
from tidemill.workflows.states import RunState
from tidemill.workflows.task_options import TaskOptions

HANDLER_NAMES: Mapping[RunState, str] = {RunState.FAILED: "on_failure", RunState.SUCCESS: "on_success"}
"""The ends that have handlers, each with the name of its decorator. A cancelled run calls none."""


def handler_workflow(workflow: str, end: RunState) -> str:
    """Return the name of the workflow that has the handlers of one end of another workflow."""
    return f"{workflow}.{HANDLER_NAMES[end]}"


def without_handlers(workflows: Iterable[str]) -> list[str]:
    """Return the names of workflows without those that have the handlers of others among them."""
    names = list(workflows)
    handlers = {handler_workflow(one, end) for one in names for end in HANDLER_NAMES}
    return [one for one in names if one not in handlers]


class TaskEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dependency on an upstream task: on its value, or, if `parameter` is None, only on its end."""

    source: str
    parameter: str | None = None
    takes: tuple[str, ...] | None = None
    """The variants of the value that the parameter accepts; None for all."""
    optional: bool = False
    """Whether the task also runs if the source was skipped. Set only where the default rule "all_success" applies."""


class TaskSpec(TaskOptions, frozen=True, omit_defaults=True):
    """One task: its dependencies and its execution options.

    Its own fields are not `kw_only`, so that they are stored before the options: versions are hashes of what is stored.
    """

    name: str
    edges: tuple[TaskEdge, ...] = ()
    rule: str = ALL_SUCCESS.name
    each: str | None = None
    """The task whose list it is mapped over."""
    tries: int = 1

    def __hash__(self) -> int:
        return hash((self.name, self.edges))  # mappings have no hash; tasks of one workflow differ by name

    def __post_init__(self) -> None:
        if self.timeout is not None:  # equal tasks have equal stored forms: 60 becomes 60.0
            force_setattr(self, "timeout", float(self.timeout))

    @property
    def trigger_rule(self) -> Rule:
        """The rule that decides whether it runs."""
        return RULES[self.rule]

    @property
    def upstream(self) -> tuple[str, ...]:
        """Its direct upstream tasks, each once, in the order of its parameters."""
        return tuple(dict.fromkeys(edge.source for edge in self.edges))

    @property
    def mapping_edge(self) -> TaskEdge | None:
        """The edge to the task that it is mapped over; None if it is not mapped."""
        return next((edge for edge in self.edges if edge.parameter == self.each), None) if self.each else None


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow: its tasks in declaration order."""

    name: str
    tasks: tuple[TaskSpec, ...]
    code: str = ""
    """The fingerprint of the authors' functions."""
    handlers: dict[str, str] | UnsetType = UNSET
    """By end, such as "failed": the version of the workflow that has its handlers. A workflow without any stores none:
    versions are hashes of what is stored."""
    handles: str | UnsetType = UNSET
    """The workflow whose ends its tasks handle."""

    @cached_property
    def version(self) -> str:
        """A hash that changes exactly when the structure or the code changes."""
        return sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]

    @property
    def handler_workflows(self) -> list[str]:
        """The workflows that have its handlers."""
        return [handler_workflow(self.name, RunState(end)) for end in self.handlers or ()]

    @cached_property
    def by_name(self) -> dict[str, TaskSpec]:
        """The tasks by name."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def topological_order(self) -> tuple[TaskSpec, ...]:
        """The tasks in topological order, ties in declaration order."""
        sorter: TopologicalSorter[str] = TopologicalSorter({task.name: task.upstream for task in self.tasks})
        declared_position = {task.name: number for number, task in enumerate(self.tasks)}
        sorter.prepare()
        ready: list[int] = []
        ordered: list[TaskSpec] = []
        while sorter.is_active():
            for name in sorter.get_ready():
                heappush(ready, declared_position[name])
            ordered.append(self.tasks[heappop(ready)])
            sorter.done(ordered[-1].name)
        return tuple(ordered)

    @cached_property
    def first_tasks(self) -> tuple[str, ...]:
        """The tasks that a new run schedules at once, in topological order: those that wait for no other task."""
        return tuple(
            task.name
            for task in self.topological_order
            if not task.edges or (task.each is None and not task.trigger_rule.waits)
        )

    @cached_property
    def uses_pools(self) -> bool:
        """Whether some task needs a slot of a pool."""
        return any(task.pool is not None for task in self.tasks)

    @cached_property
    def mapped_sources(self) -> frozenset[str]:
        """The tasks whose lists others are mapped over."""
        return frozenset(task.each for task in self.tasks if task.each is not None)

    @cached_property
    def has_mapped_tasks(self) -> bool:
        """Whether some task is mapped over a list."""
        return any(task.each is not None for task in self.tasks)

    @cached_property
    def labelled_tasks(self) -> tuple[TaskSpec, ...]:
        """The tasks that only some workers can run."""
        return tuple(task for task in self.tasks if task.labels)

    @cached_property
    def plain_tasks(self) -> frozenset[str]:
        """The unmapped tasks that run when every upstream task has succeeded, with any value."""
        return frozenset(
            task.name
            for task in self.tasks
            if task.trigger_rule.requires_success
            and task.each is None
            and all(edge.takes is None for edge in task.edges)
        )

    @cached_property
    def value_sources(self) -> dict[str, tuple[str, ...]]:
        """By task, the tasks whose values it takes, each once."""
        return {
            task.name: tuple(dict.fromkeys(edge.source for edge in task.edges if edge.parameter is not None))
            for task in self.tasks
        }

    @cached_property
    def downstream(self) -> dict[str, tuple[str, ...]]:
        """By task, its direct downstream tasks."""
        downstream: dict[str, list[str]] = {task.name: [] for task in self.tasks}
        for task in self.tasks:
            for source in task.upstream:
                downstream[source].append(task.name)
        return {name: tuple(names) for name, names in downstream.items()}

    @cached_property
    def with_downstream(self) -> dict[str, tuple[TaskSpec, ...]]:
        """By task, it and its direct downstream tasks, in topological order."""
        return {
            task.name: tuple(self.sort_topologically({task.name, *self.downstream[task.name]})) for task in self.tasks
        }

    @cached_property
    def _position(self) -> dict[str, int]:
        return {task.name: number for number, task in enumerate(self.topological_order)}

    def sort_topologically(self, names: Collection[str]) -> list[TaskSpec]:
        """Return the named tasks, in topological order."""
        return [self.by_name[name] for name in sorted(names, key=self._position.__getitem__)]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The tasks that decide a run's outcome: the last ones that do not clean up.

        A clean-up task without upstream tasks counts as an ordinary one: nothing stands in for it.
        """
        decides = {task.name: not task.trigger_rule.is_cleanup or not task.upstream for task in self.tasks}
        return tuple(
            task.name
            for task in self.tasks
            if decides[task.name] and not any(decides[one] for one in self.downstream[task.name])
        )

    def all_downstream(self, name: str) -> tuple[str, ...]:
        """Return the direct and indirect downstream tasks of a task, in topological order."""
        reached = {name}
        for task in self.topological_order:
            if reached.intersection(task.upstream):
                reached.add(task.name)
        return tuple(task.name for task in self.topological_order if task.name in reached and task.name != name)
