"""Changes of packages: the value that the deploy steps work on.

A `PackageChange` says what a package had, what it is to have, and what was registered under the names it touches. It
is planned once and then frozen. What the steps did so far is kept next to it, in its `ChangeProgress`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from tidemill.engine.graphs.staging import GraphChange, StagedGraphs, reactor_key
from tidemill.engine.registry import PackageState, Registry
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.packages.loading.reader import REGISTRY, PackageParts
from tidemill.packages.status import PackageKey
from tidemill.storage.tables.schedules import ScheduleKey
from tidemill.storage.tables.versions import NO_ARCHIVE, CodeArchive
from tidemill.workflows.definition import Trigger
from tidemill.workflows.firing_trigger import FiringTrigger, select_firing_triggers
from tidemill.workflows.graph_calls import CallableGraph, ObservedReactor
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow

Definition = Reactor | Graph | Workflow | Trigger


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name."""


class NameClaim(NamedTuple):
    """A name of one kind in one tenant."""

    kind: str
    tenant: str
    name: str

    def __str__(self) -> str:
        """Return the name as error messages quote it."""
        return f"{self.kind} '{self.name}'"


class PackageDefinitions(PackageParts, frozen=True, kw_only=True, dict=True):
    """The definitions that a package owns, without those that it only imported from other packages.

    Workflows are as declared: the graphs that they call by name are not resolved yet.
    """

    origin: str = ""
    triggerless: tuple[Graph, ...] = ()
    """Graphs that are only called; `graphs` are those that are bound to reactors."""

    @cached_property
    def schedules(self) -> tuple[tuple[Workflow, Schedule], ...]:
        """Each schedule with its workflow."""
        return tuple((workflow, schedule) for workflow in self.workflows for schedule in workflow.schedules)

    @cached_property
    def state(self) -> PackageState:
        """The names of all definitions."""
        return PackageState(
            version=self.version,
            digest=self.digest,
            origin=self.origin,
            schedules=tuple((workflow.name, schedule.key) for workflow, schedule in self.schedules),
            triggers=_names(self.triggers),
            reactors=_names(self.reactors),
            triggerless=_names(self.triggerless),
            graphs=_names(self.graphs),
            workflows=_names(self.workflows),
            tasks=tuple(f"{one.name}.{task.name}" for one in self.workflows for task in one.tasks),
        )

    @cached_property
    def has_graphs(self) -> bool:
        """Whether there are reactors, or graphs bound to reactors."""
        return bool(self.reactors or self.graphs)

    def schedule_keys(self, tenant: str) -> list[ScheduleKey]:
        """Return the keys of the schedules in the store."""
        return [ScheduleKey(tenant, *key) for key in self.state.schedules]

    def names(self, tenant: str) -> frozenset[NameClaim]:
        """Return the names that the package defines."""
        return definition_names(tenant, self.reactors, (*self.triggerless, *self.graphs), self.triggers, self.workflows)

    def select(self, tenant: str, names: Collection[NameClaim]) -> "PackageDefinitions":
        """Return the package with only the definitions of these names."""

        def is_selected(kind: str, one: Definition) -> bool:
            return NameClaim(kind, tenant, one.name) in names

        return replace(
            self,
            triggers=tuple(one for one in self.triggers if is_selected("trigger", one)),
            reactors=tuple(one for one in self.reactors if is_selected("reactor", one)),
            triggerless=tuple(one for one in self.triggerless if is_selected("graph", one)),
            graphs=tuple(one for one in self.graphs if is_selected("graph", one)),
            workflows=tuple(one for one in self.workflows if is_selected("workflow", one)),
        )

    def joined_with(self, other: "PackageDefinitions") -> "PackageDefinitions":
        """Return the package with the definitions of another one too."""
        return replace(
            self,
            triggers=(*self.triggers, *other.triggers),
            reactors=(*self.reactors, *other.reactors),
            shared=self.shared.union(one.name for one in other.reactors if one.name in other.shared),
            triggerless=(*self.triggerless, *other.triggerless),
            graphs=(*self.graphs, *other.graphs),
            workflows=(*self.workflows, *other.workflows),
        )


NO_DEFINITIONS = PackageDefinitions()


def definition_names(
    tenant: str,
    reactors: Iterable[Named],
    graphs: Iterable[Named],
    triggers: Iterable[Named],
    workflows: Iterable[Named],
) -> frozenset[NameClaim]:
    """Return the names of definitions, each with its kind."""
    kinds = {"reactor": reactors, "graph": graphs, "trigger": triggers, "workflow": workflows}
    return frozenset(NameClaim(kind, tenant, one.name) for kind, ones in kinds.items() for one in ones)


class Handover(msgspec.Struct, frozen=True):
    """Definitions that a package takes over from another one: what it takes, and what the other one is left with."""

    taken: PackageDefinitions
    left: PackageDefinitions


NO_HANDOVERS: Mapping[PackageKey, Handover] = {}


class ChangeProgress(msgspec.Struct, kw_only=True):
    """What the deploy steps did so far for one change."""

    staged: StagedGraphs | None = None
    """The reactors and graphs that were prepared next to those that run; None if the change has none."""

    recorded_version: str | None = None
    """The version that was recorded in the store when the change began."""

    inserted_schedules: list[ScheduleKey] = []
    """Schedule rows that this change inserted."""

    unconfirmed_schedules: list[ScheduleKey] = []
    """Schedule rows that this change may have inserted: the store has not confirmed the insert."""


class PackageChange(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A package's definitions before and after.

    A first load has nothing before, an unload has nothing after.
    """

    key: PackageKey
    before: PackageDefinitions
    after: PackageDefinitions
    others: tuple[PackageDefinitions, ...]
    """The definitions of the tenant's other packages. Their workflows may call graphs that change here."""

    allow_downgrade: bool
    """Whether the version may be below the recorded one."""

    workflows: tuple[Workflow, ...]
    """The workflows after the change, with the graphs that they call."""

    rebound_callers: tuple[Workflow, ...]
    """Workflows of other packages that call graphs of this one, with the newer graphs."""

    previous_workflows: Mapping[str, Workflow | None]
    """The registered workflow of every name that the change touches, for a rollback."""

    previous_triggers: Mapping[str, Trigger | None]
    previous_graphs: Mapping[str, Graph | None]
    references: frozenset[NameClaim]
    """Names that the definitions after the change rely on; those of other tenants only if they are shared."""

    was_loaded: bool
    """Whether a version of the package is loaded; it may also have definitions before that it takes over."""

    handovers: Mapping[PackageKey, Handover]
    """By package, the definitions that this one takes over from it. They are part of the definitions before."""

    progress: ChangeProgress = msgspec.field(default_factory=ChangeProgress)

    @property
    def tenant(self) -> str:
        """The tenant that owns the package."""
        return self.key.tenant

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.key.name

    @property
    def archive(self) -> CodeArchive:
        """The published archive of the version after the change; none if a folder or a program loads it."""
        after = self.after
        return CodeArchive(self.name, after.version, after.digest) if after.origin == REGISTRY else NO_ARCHIVE

    @cached_property
    def claims(self) -> frozenset[NameClaim]:
        """Names that no other change may touch until this one is finished."""
        return frozenset(NameClaim(kind, self.tenant, name) for kind, name in _iter_claimed(self))

    @cached_property
    def has_graphs(self) -> bool:
        """Whether the package had or will have reactors, or graphs bound to reactors."""
        return self.before.has_graphs or self.after.has_graphs

    @cached_property
    def affects_starts(self) -> bool:
        """Whether schedules or triggers change, or workflows that they start: the leader then has to follow."""
        workflows = (*self.before.workflows, *self.workflows, *self.rebound_callers)
        triggers = (*self.before.triggers, *self.after.triggers)
        return bool(triggers) or any(one.schedules or one.triggers for one in workflows)

    @cached_property
    def removed_workflows(self) -> list[str]:
        """Workflows that the package no longer has."""
        return _names_not_in(self.before.workflows, self.after.workflows)

    @cached_property
    def removed_triggers(self) -> list[str]:
        """Triggers that the package no longer has."""
        return _names_not_in(self.before.triggers, self.after.triggers)

    @cached_property
    def removed_reactors(self) -> list[str]:
        """Reactors that the package no longer has."""
        return _names_not_in(self.before.reactors, self.after.reactors)

    @cached_property
    def reactor_graphs(self) -> frozenset[str]:
        """The graphs of reactors that the package had or will have."""
        return frozenset(_names((*self.before.graphs, *self.after.graphs)))

    @cached_property
    def removed_graphs(self) -> list[str]:
        """Trigger-less graphs that the package no longer has; a graph that is bound now cannot be called."""
        return _names_not_in(self.before.triggerless, self.after.triggerless)

    @cached_property
    def removed_bound_graphs(self) -> list[str]:
        """Graphs of reactors that the package no longer has, or no longer binds: their values start nothing."""
        return _names_not_in(self.before.graphs, self.after.graphs)

    @cached_property
    def removed_schedules(self) -> list[ScheduleKey]:
        """Schedules that the package no longer has."""
        kept = set(self.after.schedule_keys(self.tenant))
        return [key for key in self.before.schedule_keys(self.tenant) if key not in kept]

    def to_graph_change(self) -> GraphChange:
        """Return the reactors and graphs after the change, as the graph scheduler takes them."""
        after = self.after
        return GraphChange(
            tenant=self.tenant,
            package=self.key.name,
            reactors=after.reactors,
            graphs=after.graphs,
            previous=self.before.state,
            shared=after.shared,
        )

    def restore_graphs(
        self, reactors: Collection[str], graphs: tuple[Graph, ...], replaced: PackageState
    ) -> GraphChange:
        """Return the change that brings back some reactors and graphs of the version before."""
        before = self.before
        return GraphChange(
            tenant=self.tenant,
            package=self.key.name,
            reactors=tuple(one for one in before.reactors if one.name in reactors),
            graphs=graphs,
            previous=replaced,
            shared=before.shared.intersection(reactors),
        )


def plan_change(
    registry: Registry,
    key: PackageKey,
    before: PackageDefinitions,
    after: PackageDefinitions,
    others: Iterable[PackageDefinitions],
    *,
    was_loaded: bool,
    allow_downgrade: bool = False,
    handovers: Mapping[PackageKey, Handover] = NO_HANDOVERS,
) -> PackageChange:
    """Plan the change of a package from what is registered now."""
    tenant, others = key.tenant, tuple(others)
    resolve = _make_resolver(registry, tenant, before, after)
    workflows = tuple(map(resolve, after.workflows))
    rebound = tuple(map(resolve, _callers_to_rebind(before, after, others)))
    triggers, graphs = (*before.triggers, *after.triggers), (*before.triggerless, *after.triggerless)
    return PackageChange(
        key=key,
        before=before,
        after=after,
        others=others,
        allow_downgrade=allow_downgrade,
        workflows=workflows,
        rebound_callers=rebound,
        previous_workflows={
            name: registry.workflows.find(tenant, name) for name in _names((*before.workflows, *workflows, *rebound))
        },
        previous_triggers={name: registry.triggers.find(tenant, name) for name in _names(triggers)},
        previous_graphs={name: registry.graphs.find(tenant, name) for name in _names(graphs)},
        references=frozenset(_iter_referenced(registry, tenant, after)),
        was_loaded=was_loaded,
        handovers=handovers,
    )


def _make_resolver(
    registry: Registry, tenant: str, before: PackageDefinitions, after: PackageDefinitions
) -> Callable[[Workflow], Workflow]:
    """Return a function that gives a workflow the graphs and reactors that it names, as they are after the change."""
    arriving = {one.name: one for one in (*after.triggerless, *after.graphs, *after.held_back)}
    leaving = {one.name for one in (*before.triggerless, *before.graphs)}
    reactors = {one.name: one for one in after.reactors}

    def find_graph(name: str) -> Graph | None:
        """Return the graph of a name after the change; None also for one that is removed."""
        is_own = name in arriving or name in leaving
        return arriving.get(name) if is_own else registry.graphs.find(tenant, name)

    def find_source(trigger: FiringTrigger) -> CallableGraph | ObservedReactor | None:
        """Return the graph or the reactor of a trigger; a reactor that is not loaded, as the author passed it."""
        if trigger.graph_name is not None:
            return find_graph(trigger.graph_name)
        name = trigger.reactor_name or ""
        return reactors.get(name) or registry.reactors.find(tenant, name) or trigger.source

    def resolve(workflow: Workflow) -> Workflow:
        called = workflow.with_graphs(find_graph)
        return called.with_sources(find_source)

    return resolve


def _callers_to_rebind(
    before: PackageDefinitions, after: PackageDefinitions, others: Iterable[PackageDefinitions]
) -> Iterator[Workflow]:
    """Yield the workflows of other packages that call, by name, a graph that has a newer version."""
    older = {one.name: one for one in (*before.triggerless, *before.graphs)}
    arriving = (*after.triggerless, *after.graphs)
    newer = {one.name for one in arriving if older.get(one.name) not in (None, one)}
    for definitions in others:
        for workflow in definitions.workflows:
            called = [task.graph for task in workflow.tasks if isinstance(task.graph, str)]
            if not newer.isdisjoint([*called, *observed_graph_names(workflow)]):
                yield workflow


def _iter_claimed(change: PackageChange) -> Iterator[tuple[str, str]]:
    for definitions in (change.before, change.after):
        for reactor in definitions.reactors:
            yield "reactor", reactor.name
            yield from (("accumulator", name) for name in reactor.accumulator_names)
        yield from (("graph", one.name) for one in (*definitions.triggerless, *definitions.graphs))
        yield from (("trigger", one.name) for one in definitions.triggers)
    yield from (("workflow", name) for name in change.previous_workflows)


def _iter_referenced(registry: Registry, tenant: str, after: PackageDefinitions) -> Iterator[NameClaim]:
    for graph in after.graphs:
        key = reactor_key(graph, tenant)
        if key is not None and (key[0] == tenant or registry.is_shared(*key)):
            yield NameClaim("reactor", *key)
        yield from (NameClaim("accumulator", tenant, one.fed_accumulator) for one in graph.nodes if one.fed_accumulator)
    for workflow in after.workflows:
        yield from (NameClaim("trigger", tenant, name) for name in trigger_names(workflow))
        used = (*graph_names(workflow), *observed_graph_names(workflow))
        yield from (NameClaim("graph", tenant, name) for name in used)


def trigger_names(workflow: Workflow) -> set[str]:
    """Return the names of the triggers that start a workflow, without the reactors and graphs that start it."""
    polled = [one for one in workflow.triggers if not isinstance(one, FiringTrigger)]
    return {one if isinstance(one, str) else one.name for one in polled}


def observed_graph_names(workflow: Workflow) -> list[str]:
    """Return the names of the graphs whose values start a workflow."""
    observed = select_firing_triggers(workflow.triggers)
    return [one.graph_name for one in observed if one.graph_name is not None]


def graph_names(workflow: Workflow) -> list[str]:
    """Return the names of the graphs that a workflow calls."""
    graphs = [task.graph for task in workflow.tasks if task.graph is not None]
    return [one if isinstance(one, str) else one.name for one in graphs]


def _names(definitions: Iterable[Definition]) -> tuple[str, ...]:
    return tuple(one.name for one in definitions)


def _names_not_in(before: Iterable[Definition], after: Iterable[Definition]) -> list[str]:
    kept = set(_names(after))
    return [name for name in _names(before) if name not in kept]
