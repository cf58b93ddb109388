"""A workflow as it is planned and stored: names, edges and numbers, no code.

The planner, the store and another process need no more than this, so a run can be planned although the module that
declared it is long gone.
"""

from collections.abc import Collection
from functools import cached_property
from graphlib import TopologicalSorter
from hashlib import sha256
from heapq import heappop, heappush

import msgspec
from msgspec.structs import force_setattr

from tidemill.workflows.rules import CLEANUP_RULES


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task that another one waits for: for its value, or (`parameter` is None) only for its end."""

    source: str
    parameter: str | None = None
    takes: tuple[str, ...] | None = None
    """The variants of the value that the parameter admits; None for all."""
    optional: bool = False
    """Whether the task runs without it if it was skipped, although its rule, which nobody named, is "all_success"."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task: what it waits for, and how it is run."""

    name: str
    edges: tuple[Edge, ...] = ()
    rule: str = "all_success"
    each: str | None = None
    """The task over whose list it is mapped."""
    tries: int = 1
    timeout: float | None = None
    pool: str | None = None
    priority: int = 0
    queue: str = "default"
    executor: str | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:  # equal tasks are stored alike: 60 is 60.0
            force_setattr(self, "timeout", float(self.timeout))

    @property
    def upstream(self) -> tuple[str, ...]:
        """The tasks before it, each once, in the order of its parameters."""
        return tuple(dict.fromkeys(edge.source for edge in self.edges))

    @property
    def mapping_edge(self) -> Edge | None:
        """What it is mapped along: over a mapped task it takes the elements of some variants, else a list."""
        return next((edge for edge in self.edges if edge.parameter == self.each), None) if self.each else None


class WorkflowSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow: its tasks in the order of their declaration."""

    name: str
    tasks: tuple[TaskSpec, ...]
    code: str = ""
    """A digest of the authors' functions."""

    @cached_property
    def version(self) -> str:
        """What changes when structure or code does, and only then."""
        return sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]

    @cached_property
    def by_name(self) -> dict[str, TaskSpec]:
        """The tasks by their names."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def topological_order(self) -> tuple[TaskSpec, ...]:
        """The tasks so that each comes after those before it, else as declared."""
        sorter: TopologicalSorter[str] = TopologicalSorter({task.name: task.upstream for task in self.tasks})
        place = {task.name: number for number, task in enumerate(self.tasks)}
        sorter.prepare()
        ready: list[int] = []
        ordered: list[TaskSpec] = []
        while sorter.is_active():
            for name in sorter.get_ready():
                heappush(ready, place[name])
            ordered.append(self.tasks[heappop(ready)])
            sorter.done(ordered[-1].name)
        return tuple(ordered)

    @cached_property
    def has_mapped_tasks(self) -> bool:
        """Whether some task is mapped over a list."""
        return any(task.each is not None for task in self.tasks)

    @cached_property
    def plain_tasks(self) -> frozenset[str]:
        """The tasks that run, once, when all before them have succeeded, whatever these returned."""
        return frozenset(
            task.name
            for task in self.tasks
            if task.rule == "all_success" and task.each is None and all(edge.takes is None for edge in task.edges)
        )

    @cached_property
    def value_sources(self) -> dict[str, tuple[str, ...]]:
        """By task, those whose values it takes, each once."""
        return {
            task.name: tuple(dict.fromkeys(edge.source for edge in task.edges if edge.parameter is not None))
            for task in self.tasks
        }

    @cached_property
    def downstream(self) -> dict[str, tuple[str, ...]]:
        """By task, those right after it."""
        found: dict[str, list[str]] = {task.name: [] for task in self.tasks}
        for task in self.tasks:
            for source in task.upstream:
                found[source].append(task.name)
        return {name: tuple(after) for name, after in found.items()}

    @cached_property
    def _with_downstream(self) -> dict[str, tuple[TaskSpec, ...]]:
        return {
            task.name: tuple(self._sort_topologically({task.name, *self.downstream[task.name]})) for task in self.tasks
        }

    def with_downstream(self, names: Collection[str]) -> Collection[TaskSpec]:
        """Return tasks and those right after them, in order."""
        if len(names) == 1:
            return self._with_downstream[next(iter(names))]
        return self._sort_topologically({near.name for name in names for near in self._with_downstream[name]})

    @cached_property
    def _position(self) -> dict[str, int]:
        return {task.name: number for number, task in enumerate(self.topological_order)}

    def _sort_topologically(self, names: Collection[str]) -> list[TaskSpec]:
        return [self.by_name[name] for name in sorted(names, key=self._position.__getitem__)]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The tasks that decide a run's outcome: the last ones, and in place of those that tidy up, those before."""
        decides = {task.name: task.rule not in CLEANUP_RULES or not task.upstream for task in self.tasks}
        return tuple(
            task.name
            for task in self.tasks
            if decides[task.name] and not any(decides[one] for one in self.downstream[task.name])
        )

    def all_downstream(self, name: str) -> tuple[str, ...]:
        """Return the tasks that come after one, directly or not, in order."""
        found = {name}
        for task in self.topological_order:
            if found.intersection(task.upstream):
                found.add(task.name)
        return tuple(task.name for task in self.topological_order if task.name in found and task.name != name)
