"""The registry: the declarations and endpoints that are loaded now, by name. One per node, no globals."""

from collections.abc import Iterable

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.workflows.definition import Trigger
from tidemill.workflows.workflow import Workflow

Key = tuple[str, str]


class PackageState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a loaded package by name, in the order in which they are loaded: all that unloading needs."""

    version: str = ""
    digest: str = ""
    origin: str = ""
    """The source that desires it, a folder or a registry; empty if a program loaded it."""

    schedules: tuple[tuple[str, str], ...] = ()
    """Pairs of workflow and key."""

    triggers: tuple[str, ...] = ()
    reactors: tuple[str, ...] = ()
    triggerless: tuple[str, ...] = ()
    """Graphs that are only called, and bound to no reactor."""

    graphs: tuple[str, ...] = ()
    """Graphs that are bound to reactors."""

    workflows: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """Prefixed with their workflows: "daily_report.large"."""


class Registry:
    """The names of everything that is loaded, per tenant, and the declarations behind them."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._reactors: dict[Key, Reactor] = {}
        self._shared: set[Key] = set()
        self._accumulators: set[Key] = set()
        self._graphs: dict[Key, Graph] = {}
        self._workflows: dict[Key, Workflow] = {}
        self._triggers: dict[Key, Trigger] = {}
        self._packages: dict[Key, PackageState] = {}
        self._endpoints: set[Key] = set()

    # -- names

    def reactors(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded reactors."""
        return self._names(self._reactors, tenant)

    def graphs(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded graphs."""
        return self._names(self._graphs, tenant)

    def accumulators(self, tenant: str | None = None) -> list[str]:
        """Return the names of the running accumulators."""
        return self._names(self._accumulators, tenant)

    def workflows(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded workflows."""
        return self._names(self._workflows, tenant)

    def triggers(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded triggers."""
        return self._names(self._triggers, tenant)

    def packages(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded packages."""
        return self._names(self._packages, tenant)

    def endpoints(self, tenant: str | None = None) -> list[str]:
        """Return the keys under which sockets find reactors and accumulators."""
        return self._names(self._endpoints, tenant)

    def has_tenant(self, tenant: str) -> bool:
        """Return whether something is loaded for a tenant."""
        loaded = (self._reactors, self._graphs, self._workflows, self._triggers, self._packages)
        return any(owner == tenant for keys in loaded for owner, _ in keys)

    def _names(self, keys: Iterable[Key], tenant: str | None) -> list[str]:
        selected = self._tenant if tenant is None else tenant
        return sorted(name for owner, name in keys if owner == selected)

    # -- declarations, for the engine

    def add_reactor(self, tenant: str, reactor: Reactor) -> None:
        """Register a reactor's current declaration."""
        self._reactors[tenant, reactor.name] = reactor

    def reactor(self, tenant: str, name: str) -> Reactor | None:
        """Return the current declaration of a reactor; None if it is not loaded."""
        return self._reactors.get((tenant, name))

    def drop_reactor(self, tenant: str, name: str) -> None:
        """Remove a reactor."""
        self._reactors.pop((tenant, name), None)
        self._shared.discard((tenant, name))

    def set_shared(self, tenant: str, name: str, *, shared: bool) -> None:
        """Set whether packages of other tenants may bind to a reactor."""
        (self._shared.add if shared else self._shared.discard)((tenant, name))

    def is_shared(self, tenant: str, name: str) -> bool:
        """Return whether packages of other tenants may bind to a reactor."""
        return (tenant, name) in self._shared

    def add_accumulator(self, tenant: str, name: str) -> None:
        """Register a running accumulator."""
        self._accumulators.add((tenant, name))

    def drop_accumulator(self, tenant: str, name: str) -> None:
        """Remove an accumulator."""
        self._accumulators.discard((tenant, name))

    def add_graph(self, tenant: str, graph: Graph) -> None:
        """Register a graph's current declaration."""
        self._graphs[tenant, graph.name] = graph

    def graph(self, tenant: str, name: str) -> Graph | None:
        """Return the current declaration of a graph; None if it is not loaded."""
        return self._graphs.get((tenant, name))

    def drop_graph(self, tenant: str, name: str) -> bool:
        """Remove a graph; return whether it was registered."""
        return self._graphs.pop((tenant, name), None) is not None

    def add_workflow(self, tenant: str, workflow: Workflow) -> None:
        """Register a workflow's current declaration."""
        self._workflows[tenant, workflow.name] = workflow

    def workflow(self, tenant: str, name: str) -> Workflow | None:
        """Return the current declaration of a workflow, with the graphs that it calls; None if it is not loaded."""
        return self._workflows.get((tenant, name))

    def drop_workflow(self, tenant: str, name: str) -> None:
        """Remove a workflow."""
        self._workflows.pop((tenant, name), None)

    def add_trigger(self, tenant: str, trigger: Trigger) -> None:
        """Register a trigger's current declaration."""
        self._triggers[tenant, trigger.name] = trigger

    def trigger(self, tenant: str, name: str) -> Trigger | None:
        """Return the current declaration of a trigger; None if it is not loaded."""
        return self._triggers.get((tenant, name))

    def drop_trigger(self, tenant: str, name: str) -> None:
        """Remove a trigger."""
        self._triggers.pop((tenant, name), None)

    def add_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Register endpoint keys, all together."""
        self._endpoints.update((tenant, key) for key in keys)

    def drop_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Remove endpoint keys."""
        self._endpoints.difference_update((tenant, key) for key in keys)

    def add_package(self, tenant: str, name: str, state: PackageState) -> None:
        """Register the parts of a loaded package."""
        self._packages[tenant, name] = state

    def package(self, tenant: str, name: str) -> PackageState | None:
        """Return the parts of a loaded package; None if it is not loaded."""
        return self._packages.get((tenant, name))

    def drop_package(self, tenant: str, name: str) -> None:
        """Remove a package."""
        self._packages.pop((tenant, name), None)
