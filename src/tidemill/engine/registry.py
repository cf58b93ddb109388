"""The registry: the declarations and endpoints that are loaded now, by name. One per node, no globals."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from tidemill.graphs.definition import Reactor
from tidemill.graphs.graph import Graph
from tidemill.workflows.definition import Trigger
from tidemill.workflows.workflow import Workflow

Key = tuple[str, str]

_T = TypeVar("_T")


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


class Names(Generic[_T]):
    """What is loaded of one kind, by tenant and name. Called, it returns the names."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._declared: dict[Key, _T] = {}

    def __call__(self, tenant: str | None = None) -> list[str]:
        """Return the names of one tenant, by default that of the node."""
        selected = self._tenant if tenant is None else tenant
        return sorted(name for owner, name in self._declared if owner == selected)

    def add(self, tenant: str, name: str, declared: _T) -> None:
        """Register the current declaration behind a name."""
        self._declared[tenant, name] = declared

    def find(self, tenant: str, name: str) -> _T | None:
        """Return the current declaration behind a name; None if it is not loaded."""
        return self._declared.get((tenant, name))

    def drop(self, tenant: str, name: str) -> bool:
        """Remove a name; return whether it was registered."""
        return self._declared.pop((tenant, name), self) is not self

    def has_tenant(self, tenant: str) -> bool:
        """Return whether something is loaded for a tenant."""
        return any(owner == tenant for owner, _ in self._declared)


class Registry:
    """The names of everything that is loaded, per tenant, and the declarations behind them."""

    def __init__(self, tenant: str) -> None:
        self.reactors: Names[Reactor] = Names(tenant)
        self.graphs: Names[Graph] = Names(tenant)
        self.workflows: Names[Workflow] = Names(tenant)
        """Workflows with the graphs that they call."""
        self.triggers: Names[Trigger] = Names(tenant)
        self.packages: Names[PackageState] = Names(tenant)
        self.accumulators: Names[None] = Names(tenant)
        """Those that run."""
        self.endpoints: Names[None] = Names(tenant)
        """The keys under which sockets find reactors and accumulators."""
        self._shared: set[Key] = set()

    def has_tenant(self, tenant: str) -> bool:
        """Return whether something is loaded for a tenant."""
        kinds: tuple[Names[Any], ...] = (self.reactors, self.graphs, self.workflows, self.triggers, self.packages)
        return any(names.has_tenant(tenant) for names in kinds)

    def drop_reactor(self, tenant: str, name: str) -> None:
        """Remove a reactor."""
        self.reactors.drop(tenant, name)
        self._shared.discard((tenant, name))

    def set_shared(self, tenant: str, name: str, *, shared: bool) -> None:
        """Set whether packages of other tenants may bind to a reactor."""
        (self._shared.add if shared else self._shared.discard)((tenant, name))

    def is_shared(self, tenant: str, name: str) -> bool:
        """Return whether packages of other tenants may bind to a reactor."""
        return (tenant, name) in self._shared

    def add_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Register endpoint keys, all together."""
        for key in keys:
            self.endpoints.add(tenant, key, None)

    def drop_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Remove endpoint keys."""
        for key in keys:
            self.endpoints.drop(tenant, key)
