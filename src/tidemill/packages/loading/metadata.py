"""Package metadata: what a package declares, as one frozen value without code.

The probe process writes it. The reconciler reads it to find missing dependencies, the CLI and the UI show it, and the
preparer compares it with what the import in the node declares.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.annotations.variants import label
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.graphs.views import GraphInputView
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.packages.loading.reader import Package, PackageScope
from tidemill.packages.sanitizing import sanitize_problem
from tidemill.workflows.definition import Trigger
from tidemill.workflows.firing_trigger import FiringTrigger, select_firing_triggers
from tidemill.workflows.schedule import Cron, Schedule
from tidemill.workflows.spec import TaskSpec
from tidemill.workflows.task_options import TaskOptions
from tidemill.workflows.workflow import Workflow

Relocate = Callable[[Location], Location]
"""Maps a location to one relative to the package."""


class ProbeError(DefinitionError):
    """A package that cannot be loaded: what happened in the probe, or every problem of its definitions."""

    def __init__(
        self, problems: Iterable[Problem], subject: str = "package", output: str = "", is_transient: bool = False
    ) -> None:
        super().__init__(map(sanitize_problem, problems), subject)
        self.output = output
        """What the package printed, shortened and not sanitized: not fit to be shown as it is."""
        self.is_transient = is_transient
        """Whether the machine may be the cause, so that the same package may load later."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems, self.subject, self.output, self.is_transient)


class DeclaredTask(TaskOptions, frozen=True, kw_only=True, omit_defaults=True):
    """A task as its code declares it; the manifest may override some options."""

    name: str
    rule: str = "all_success"
    each: str | None = None
    retries: int = 0
    graph: str | None = None
    """The graph that it calls."""

    after: tuple[str, ...] = ()
    """The tasks before it."""


class DeclaredSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule of a workflow."""

    key: str
    rule: str
    timezone: str = "UTC"
    catchup: str = "latest"


class DeclaredSubscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger by which a reactor starts a workflow."""

    kind: str
    graph: str | None = None
    """The graph that it names."""

    facts: dict[str, Any] = {}
    """What it declares, by name."""


class DeclaredWorkflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow: its tasks, and what starts it."""

    name: str
    location: Location
    tags: tuple[str, ...] = ()
    max_active_runs: int
    tasks: tuple[DeclaredTask, ...]
    schedules: tuple[DeclaredSchedule, ...] = ()
    triggers: tuple[str, ...] = ()
    """The names of its triggers, of any package."""

    subscriptions: tuple[DeclaredSubscription, ...] = ()

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs that its tasks call, of any package."""
        return tuple(dict.fromkeys(one.graph for one in self.tasks if one.graph is not None))

    @property
    def needed_graphs(self) -> tuple[str, ...]:
        """The names of the graphs that its tasks call or whose values start it, of any package."""
        return (*self.graphs, *(one.graph for one in self.subscriptions if one.graph is not None))


class DeclaredTrigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger: its polling interval and its timeout, in seconds."""

    name: str
    location: Location
    every: float
    timeout: float
    allow_concurrent: bool = False


class DeclaredAccumulator(msgspec.Struct, frozen=True, kw_only=True):
    """An accumulator of a reactor: its kind, and the type that it emits, for people."""

    name: str
    kind: str
    boundary: str


class DeclaredReactor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reactor: its accumulators, and when it fires."""

    name: str
    location: Location
    accumulators: tuple[DeclaredAccumulator, ...]
    mode: str
    """Of its criteria: "any" or "all"."""

    criteria: tuple[str, ...]
    """The accumulators that the criteria name."""

    strategy: str
    durability: str | None = None
    capacity: int
    overflow: str
    partitions: int = 0
    """Of its keys; 0 for a reactor without keys."""


class DeclaredInput(GraphInputView, frozen=True, kw_only=True, omit_defaults=True):
    """An input of a graph: its type, for people, and whether it is required."""

    is_window: bool = msgspec.field(default=False, name="window")


class DeclaredGraph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A graph: its inputs, and the nodes that produce its outputs."""

    name: str
    location: Location
    reactor: str | None = None
    """None for a graph that is only called."""

    inputs: tuple[DeclaredInput, ...] = ()
    terminals: tuple[str, ...]
    feeds: tuple[str, ...] = ()
    """The accumulators that its results are pushed into, without the windows of its own reactor."""


class PackageMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a package declares. Files are named as in the package."""

    name: str
    version: str
    modules: tuple[str, ...]
    reactors: tuple[DeclaredReactor, ...] = ()
    graphs: tuple[DeclaredGraph, ...] = ()
    triggers: tuple[DeclaredTrigger, ...] = ()
    workflows: tuple[DeclaredWorkflow, ...] = ()
    unread: tuple[str, ...] = ()
    """What it does not read of the kept values that the probe was given, in words."""

    def within(self, scope: PackageScope, package: Package) -> "PackageMetadata":
        """Return what is declared for a node with this scope; `package` has the definitions."""
        match scope:
            case "tasks":
                return self._tasks_only()
            case "partitions":
                return self._partitions_only(package.reactors_without_key)
        return self

    def _partitions_only(self, others: Collection[str]) -> "PackageMetadata":
        """Return what is declared for partitions: everything but what other reactors and the clock start."""
        reactors = [one for one in self.reactors if one.name not in others]
        graphs = [one for one in self.graphs if one.reactor not in others]
        workflows = [replace(one, schedules=(), triggers=()) for one in self.workflows]
        return replace(self, reactors=tuple(reactors), graphs=tuple(graphs), triggers=(), workflows=tuple(workflows))

    def _tasks_only(self) -> "PackageMetadata":
        """Return what is declared for tasks: the workflows without what starts them, and graphs that tasks may call."""
        graphs = [replace(one, feeds=()) for one in self.graphs if one.reactor is None]
        workflows = [replace(one, schedules=(), triggers=(), subscriptions=()) for one in self.workflows]
        return replace(self, reactors=(), graphs=tuple(graphs), triggers=(), workflows=tuple(workflows))


# -- from what was declared; the graphs and workflows fit together by then


def describe_reactor(reactor: Reactor, relocate: Relocate) -> DeclaredReactor:
    """Return what is known of a reactor."""
    return DeclaredReactor(
        name=reactor.name,
        location=relocate(reactor.location),
        accumulators=tuple(map(_describe_accumulator, reactor.accumulators)),
        mode=reactor.when.mode,
        criteria=tuple(one.name for one in reactor.when.accumulators or reactor.accumulators),
        strategy=reactor.strategy,
        durability=reactor.durability,
        capacity=reactor.capacity,
        overflow=reactor.overflow,
        partitions=reactor.partitions if reactor.is_keyed else 0,
    )


def _describe_accumulator(one: Accumulator) -> DeclaredAccumulator:
    return DeclaredAccumulator(name=one.name, kind=str(one.kind), boundary=label(one.boundary_type))


def describe_graph(graph: Graph, reactor: Reactor | None, relocate: Relocate) -> DeclaredGraph:
    """Return what is known of a graph, wired with its reactor if that is at hand."""
    compiled = graph.compile_for(reactor)
    wiring = compiled.wiring
    return DeclaredGraph(
        name=graph.name,
        location=relocate(graph.location),
        reactor=graph.reactor_name,
        inputs=tuple(
            DeclaredInput(name=one.name, type=label(one.annotation), required=one.required, is_window=one.is_window)
            for one in wiring.inputs
        ),
        terminals=tuple(one.name for one in wiring.nodes if one.name in wiring.terminals),
        feeds=tuple(sorted({feed.accumulator for feed in compiled.feeds})),
    )


def describe_trigger(trigger: Trigger, relocate: Relocate) -> DeclaredTrigger:
    """Return what is known of a trigger."""
    return DeclaredTrigger(
        name=trigger.name,
        location=relocate(trigger.location),
        every=trigger.every,
        timeout=trigger.timeout,
        allow_concurrent=trigger.allow_concurrent,
    )


def describe_workflow(workflow: Workflow, relocate: Relocate) -> DeclaredWorkflow:
    """Return what is known of a workflow, whose graphs are all at hand."""
    calls = {one.name: getattr(one.graph, "name", None) for one in workflow.tasks}
    named = [one for one in workflow.triggers if not isinstance(one, FiringTrigger)]
    return DeclaredWorkflow(
        name=workflow.name,
        location=relocate(workflow.location),
        tags=workflow.tags,
        max_active_runs=workflow.max_active_runs,
        tasks=tuple(_describe_task(one, calls[one.name]) for one in workflow.wired().spec.tasks),
        schedules=tuple(map(_describe_schedule, workflow.schedules)),
        triggers=tuple(one if isinstance(one, str) else one.name for one in named),
        subscriptions=tuple(map(_describe_subscription, select_firing_triggers(workflow.triggers))),
    )


def _describe_subscription(trigger: FiringTrigger) -> DeclaredSubscription:
    return DeclaredSubscription(kind=trigger.kind, graph=trigger.graph_name, facts=trigger.facts())


def _describe_task(spec: TaskSpec, graph: str | None) -> DeclaredTask:
    return DeclaredTask(
        name=spec.name,
        rule=spec.rule,
        each=spec.each,
        retries=spec.tries - 1,
        graph=graph,
        after=spec.upstream,
        **spec.options,
    )


def _describe_schedule(schedule: Schedule) -> DeclaredSchedule:
    shared = {"key": schedule.key, "catchup": schedule.catchup}
    if isinstance(schedule, Cron):
        return DeclaredSchedule(rule=schedule.expression, timezone=schedule.timezone, **shared)
    return DeclaredSchedule(rule=str(schedule), **shared)
