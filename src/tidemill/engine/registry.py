"""What is loaded now, by name: the node's declarations and endpoints. One per node, no globals."""

from collections.abc import Iterable

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.workflows.definition import Trigger
from tidemill.workflows.workflow import Workflow

Key = tuple[str, str]


class PackageState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The side effects of a loaded package by name, in the order in which they come about: all that unloading needs."""

    version: str = ""
    digest: str = ""
    origin: str = ""
    """Who wants it: a folder or a registry, or nobody but the program that loaded it."""

    schedules: tuple[tuple[str, str], ...] = ()
    """By workflow and key."""

    triggers: tuple[str, ...] = ()
    reactors: tuple[str, ...] = ()
    triggerless: tuple[str, ...] = ()
    """Graphs that are only called."""

    graphs: tuple[str, ...] = ()
    """Graphs that are bound to reactors."""

    workflows: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """With their workflows: "daily_report.large"."""


class Registry:
    """Names of what is loaded, per tenant, and the declarations from which it is built and built again."""

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

    # -- what is loaded, for people

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

    def _names(self, keys: Iterable[Key], tenant: str | None) -> list[str]:
        wanted = self._tenant if tenant is None else tenant
        return sorted(name for owner, name in keys if owner == wanted)

    # -- for the engine

    def add_reactor(self, tenant: str, reactor: Reactor) -> None:
        """Remember a reactor's current declaration."""
        self._reactors[tenant, reactor.name] = reactor

    def reactor(self, tenant: str, name: str) -> Reactor | None:
        """Return the current declaration of a reactor; None if it is not loaded."""
        return self._reactors.get((tenant, name))

    def drop_reactor(self, tenant: str, name: str) -> None:
        """Forget a reactor."""
        self._reactors.pop((tenant, name), None)
        self._shared.discard((tenant, name))

    def set_shared(self, tenant: str, name: str, *, shared: bool) -> None:
        """Remember whether packages of other tenants may bind to a reactor."""
        (self._shared.add if shared else self._shared.discard)((tenant, name))

    def is_shared(self, tenant: str, name: str) -> bool:
        """Return whether packages of other tenants may bind to a reactor."""
        return (tenant, name) in self._shared

    def add_accumulator(self, tenant: str, name: str) -> None:
        """Remember that an accumulator runs."""
        self._accumulators.add((tenant, name))

    def drop_accumulator(self, tenant: str, name: str) -> None:
        """Forget an accumulator."""
        self._accumulators.discard((tenant, name))

    def add_graph(self, tenant: str, graph: Graph) -> None:
        """Remember a graph's current declaration."""
        self._graphs[tenant, graph.name] = graph

    def graph(self, tenant: str, name: str) -> Graph | None:
        """Return the current declaration of a graph; None if it is not loaded."""
        return self._graphs.get((tenant, name))

    def drop_graph(self, tenant: str, name: str) -> bool:
        """Forget a graph; return whether it was known."""
        return self._graphs.pop((tenant, name), None) is not None

    def add_workflow(self, tenant: str, workflow: Workflow) -> None:
        """Remember a workflow's current declaration."""
        self._workflows[tenant, workflow.name] = workflow

    def workflow(self, tenant: str, name: str) -> Workflow | None:
        """Return the current declaration of a workflow, with the graphs that it calls; None if it is not loaded."""
        return self._workflows.get((tenant, name))

    def drop_workflow(self, tenant: str, name: str) -> None:
        """Forget a workflow."""
        self._workflows.pop((tenant, name), None)

    def add_trigger(self, tenant: str, trigger: Trigger) -> None:
        """Remember a trigger's current declaration."""
        self._triggers[tenant, trigger.name] = trigger

    def trigger(self, tenant: str, name: str) -> Trigger | None:
        """Return the current declaration of a trigger; None if it is not loaded."""
        return self._triggers.get((tenant, name))

    def drop_trigger(self, tenant: str, name: str) -> None:
        """Forget a trigger."""
        self._triggers.pop((tenant, name), None)

    def add_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Let sockets find these, all at once."""
        self._endpoints.update((tenant, key) for key in keys)

    def drop_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Let sockets find these no more."""
        self._endpoints.difference_update((tenant, key) for key in keys)

    def add_package(self, tenant: str, name: str, state: PackageState) -> None:
        """Remember what a package has loaded."""
        self._packages[tenant, name] = state

    def package(self, tenant: str, name: str) -> PackageState | None:
        """Return what a package has loaded, or None."""
        return self._packages.get((tenant, name))

    def drop_package(self, tenant: str, name: str) -> None:
        """Forget a package."""
        self._packages.pop((tenant, name), None)
