"""What is loaded now, by name: the node's constructors and endpoints. One per node, no globals."""

from collections.abc import Callable, Iterable
from typing import Any

from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph

Key = tuple[str, str]


class Registry:
    """Names of what is loaded, per tenant, and the constructors that mint them anew."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._reactors: dict[Key, Callable[[], Reactor]] = {}
        self._accumulators: dict[Key, Callable[[], Accumulator]] = {}
        self._graphs: dict[Key, Callable[[], Graph]] = {}
        self._packages: dict[Key, Any] = {}
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
        return self._names((), tenant)

    def triggers(self, tenant: str | None = None) -> list[str]:
        """Return the names of the loaded triggers."""
        return self._names((), tenant)

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

    def add_reactor(self, tenant: str, name: str, constructor: Callable[[], Reactor]) -> None:
        """Remember how to mint a reactor."""
        self._reactors[tenant, name] = constructor

    def mint_reactor(self, tenant: str, name: str) -> Reactor:
        """Return the current declaration of a reactor."""
        return self._reactors[tenant, name]()

    def drop_reactor(self, tenant: str, name: str) -> None:
        """Forget a reactor."""
        self._reactors.pop((tenant, name), None)

    def add_accumulator(self, tenant: str, name: str, constructor: Callable[[], Accumulator]) -> None:
        """Remember how to mint an accumulator."""
        self._accumulators[tenant, name] = constructor

    def drop_accumulator(self, tenant: str, name: str) -> None:
        """Forget an accumulator."""
        self._accumulators.pop((tenant, name), None)

    def add_graph(self, tenant: str, name: str, constructor: Callable[[], Graph]) -> None:
        """Remember how to mint a graph."""
        self._graphs[tenant, name] = constructor

    def mint_graph(self, tenant: str, name: str) -> Graph | None:
        """Return the current declaration of a graph, if it is loaded."""
        constructor = self._graphs.get((tenant, name))
        return constructor() if constructor else None

    def drop_graph(self, tenant: str, name: str) -> None:
        """Forget a graph."""
        self._graphs.pop((tenant, name), None)

    def add_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Let sockets find these, all at once."""
        self._endpoints.update((tenant, key) for key in keys)

    def drop_endpoints(self, tenant: str, keys: Iterable[str]) -> None:
        """Let sockets find these no more."""
        self._endpoints.difference_update((tenant, key) for key in keys)

    def add_package(self, tenant: str, name: str, state: Any) -> None:
        """Remember what a package has loaded."""
        self._packages[tenant, name] = state

    def package(self, tenant: str, name: str) -> Any:
        """Return what a package has loaded, or None."""
        return self._packages.get((tenant, name))

    def drop_package(self, tenant: str, name: str) -> None:
        """Forget a package."""
        self._packages.pop((tenant, name), None)
