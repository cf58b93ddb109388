"""One package in place of what it was: the value that the steps of loading and unloading work on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from tidemill.engine.graphs.staging import GraphChange, StagedGraphs, reactor_key
from tidemill.engine.registry import Key, PackageState, Registry
from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.storage.workflow_ports import ScheduleKey
from tidemill.workflows.definition import OnFiring, Trigger
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.workflow import Workflow


class PackageDefinitions(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions of one package, without those that it only imported from others."""

    version: str = ""
    digest: str = ""
    origin: str = ""
    triggers: tuple[Trigger, ...] = ()
    reactors: tuple[Reactor, ...] = ()
    shared: frozenset[str] = frozenset()
    """Reactors that packages of other tenants may bind to."""

    triggerless: tuple[Graph, ...] = ()
    graphs: tuple[Graph, ...] = ()
    workflows: tuple[Workflow, ...] = ()
    """As declared: graphs that they call by name are yet to be found."""

    def iter_schedules(self) -> Iterator[tuple[Workflow, Schedule]]:
        """Yield each schedule with its workflow."""
        for workflow in self.workflows:
            for schedule in workflow.schedules:
                yield workflow, schedule

    def schedule_keys(self, tenant: str) -> list[ScheduleKey]:
        """Return the keys of the schedules as the store knows them."""
        return [ScheduleKey(tenant, workflow.name, schedule.key) for workflow, schedule in self.iter_schedules()]

    def state(self) -> PackageState:
        """Return the names of all this."""
        return PackageState(
            version=self.version,
            digest=self.digest,
            origin=self.origin,
            schedules=tuple((workflow.name, schedule.key) for workflow, schedule in self.iter_schedules()),
            triggers=tuple(one.name for one in self.triggers),
            reactors=tuple(one.name for one in self.reactors),
            triggerless=tuple(one.name for one in self.triggerless),
            graphs=tuple(one.name for one in self.graphs),
            workflows=tuple(one.name for one in self.workflows),
            tasks=tuple(f"{one.name}.{task.name}" for one in self.workflows for task in one.tasks),
        )


NO_DEFINITIONS = PackageDefinitions()


class PackageChange:
    """What a package had, what it is to have, and what has come of that so far.

    A first load has nothing before, an unload nothing after. `others` is what the tenant's other packages hold: their
    workflows may call graphs that are exchanged here, and then go on with the newer ones.
    """

    def __init__(
        self,
        registry: Registry,
        tenant: str,
        name: str,
        before: PackageDefinitions,
        after: PackageDefinitions,
        others: Iterable[PackageDefinitions],
    ) -> None:
        self._registry = registry
        self.tenant = tenant
        self.name = name
        self.before = before
        self.after = after
        self.others = tuple(others)
        self._graphs_after = {one.name: one for one in (*after.triggerless, *after.graphs)}
        self.workflows = tuple(one.with_graphs(self.find_graph) for one in after.workflows)
        self.rebound_callers = tuple(one.with_graphs(self.find_graph) for one in self._workflows_to_rebind())
        touched = (*before.workflows, *self.workflows, *self.rebound_callers)
        self.previous_workflows = {one.name: registry.workflow(tenant, one.name) for one in touched}
        """What was in place under the names that this is about, to be put back if need be."""
        self.previous_triggers = {
            one.name: registry.trigger(tenant, one.name) for one in (*before.triggers, *after.triggers)
        }
        self.previous_graphs = {
            one.name: registry.graph(tenant, one.name) for one in (*before.triggerless, *after.triggerless)
        }
        self.allow_downgrade = False
        """Whether the version may be below the one that is recorded."""
        self.recorded_version: str | None = None
        """The version that was recorded when this began."""
        self.staged: StagedGraphs | None = None
        """The reactors and graphs, ready beside what runs."""
        self.inserted_schedules: list[ScheduleKey] = []
        """Rows of schedules that are there only because of this."""
        self.unconfirmed_schedules: list[ScheduleKey] = []
        """Rows that may be there because of this: the store was asked for them, and has not answered."""

    def to_graph_change(self) -> GraphChange:
        """Return the reactors and graphs that are to be there, as the scheduler takes them."""
        after = self.after
        return GraphChange(
            tenant=self.tenant,
            reactors=after.reactors,
            graphs=after.graphs,
            previous=self.before.state(),
            shared=after.shared,
        )

    def is_shared(self, reactor: Key) -> bool:
        """Return whether packages of other tenants may bind to a reactor."""
        return self._registry.is_shared(*reactor)

    def find_graph(self, name: str) -> Graph | None:
        """Return the graph of a name as it will be; None for one that goes, too."""
        if name in self._graphs_after or any(
            name == one.name for one in (*self.before.triggerless, *self.before.graphs)
        ):
            return self._graphs_after.get(name)
        return self._registry.graph(self.tenant, name)

    def _workflows_to_rebind(self) -> Iterable[Workflow]:
        """Return the workflows of other packages that call, by name, a graph that has a newer version here."""
        before = {one.name: one for one in self.before.triggerless}
        newer = {one.name for one in self.after.triggerless if before.get(one.name) not in (None, one)}
        for holdings in self.others:
            for workflow in holdings.workflows:
                if any(task.graph in newer for task in workflow.tasks if isinstance(task.graph, str)):
                    yield workflow

    @property
    def removed_workflows(self) -> list[str]:
        """The workflows that the package has no more."""
        return _names_not_in(
            [one.name for one in self.before.workflows], {one.name: one for one in self.after.workflows}
        )

    @property
    def removed_triggers(self) -> list[str]:
        """The triggers that the package has no more."""
        return _names_not_in([one.name for one in self.before.triggers], {one.name: one for one in self.after.triggers})

    @property
    def removed_graphs(self) -> list[str]:
        """The graphs that could be called, and that the package has no more; one that is bound cannot be."""
        return _names_not_in(
            [one.name for one in self.before.triggerless], {one.name: one for one in self.after.triggerless}
        )

    @property
    def removed_schedules(self) -> list[ScheduleKey]:
        """The schedules that the package has no more."""
        kept = self.after.schedule_keys(self.tenant)
        return [key for key in self.before.schedule_keys(self.tenant) if key not in kept]


def _names_not_in(before: Iterable[str], after: Mapping[str, object]) -> list[str]:
    return [name for name in before if name not in after]


class NameClaim(NamedTuple):
    """One name of one tenant."""

    kind: str
    tenant: str
    name: str

    def __str__(self) -> str:
        """As people are told of it."""
        return f"{self.kind} '{self.name}'"


def claimed_names(change: PackageChange) -> frozenset[NameClaim]:
    """Return the names that are an exchange's own until it is settled: before, after, and workflows of others."""
    return frozenset(NameClaim(kind, change.tenant, name) for kind, name in _iter_claimed(change))


def _iter_claimed(change: PackageChange) -> Iterator[tuple[str, str]]:
    for holdings in (change.before, change.after):
        for reactor in holdings.reactors:
            yield "reactor", reactor.name
            yield from (("accumulator", name) for name in reactor.accumulator_names)
        yield from (("graph", one.name) for one in (*holdings.triggerless, *holdings.graphs))
        yield from (("trigger", one.name) for one in holdings.triggers)
    yield from (("workflow", name) for name in change.previous_workflows)


def referenced_names(change: PackageChange) -> frozenset[NameClaim]:
    """Return the names that what is to come relies on, whoever has them; of other tenants those that are shared."""
    return frozenset(_iter_referenced(change))


def _iter_referenced(change: PackageChange) -> Iterator[NameClaim]:
    tenant = change.tenant
    for graph in change.after.graphs:
        key = reactor_key(graph, tenant)
        if key is not None and (key[0] == tenant or change.is_shared(key)):
            yield NameClaim("reactor", *key)
    for workflow in change.after.workflows:
        yield from (NameClaim("trigger", tenant, name) for name in trigger_names(workflow))
        yield from (NameClaim("graph", tenant, name) for name in graph_names(workflow))


def trigger_names(workflow: Workflow) -> set[str]:
    """Return the names of the triggers that start a workflow; those of reactors are no triggers."""
    return {one if isinstance(one, str) else one.name for one in workflow.triggers if not isinstance(one, OnFiring)}


def graph_names(workflow: Workflow) -> list[str]:
    """Return the names of the graphs that a workflow calls."""
    graphs = [task.graph for task in workflow.tasks if task.graph is not None]
    return [one if isinstance(one, str) else one.name for one in graphs]
