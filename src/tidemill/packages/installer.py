"""Loading and unloading packages whole: everything is checked first, then done, and undone if a step fails."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from tidemill.engine.graphs.scheduler import GraphDeclaration, GraphScheduler
from tidemill.engine.registry import Registry
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.graphs.variants import label
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.loader import Package


class PackageState(msgspec.Struct, frozen=True, kw_only=True):
    """The side effects of a loaded package: all that unloading needs."""

    reactors: tuple[str, ...]
    graphs: tuple[str, ...]


class Installer:
    """Loads and unloads packages on one node."""

    def __init__(self, scheduler: GraphScheduler, registry: Registry) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._turn = asyncio.Lock()  # one change at a time: what was checked still holds when it is done

    async def load(self, package: Package, tenant: str) -> str:
        """Load a package, or swap it for its new version; nothing has changed if that fails."""
        async with self._turn:
            return await self._load(package, tenant)

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; refused, with nothing changed, while others are bound to its reactors."""
        async with self._turn:
            await self._unload(name, tenant)

    async def close(self) -> None:
        """Unload everything, guards or not."""
        async with self._turn:
            await self._scheduler.close()

    async def _load(self, package: Package, tenant: str) -> str:
        before: PackageState | None = self._registry.package(tenant, package.name)
        owned = tuple(one for one in package.reactors if self._is_owned(one, tenant, before))
        compiled = self._check(package, owned, tenant, before)
        if before is not None:
            await self._make_way(owned, tenant, before)
        undo: list[Callable[[], None]] = []
        try:
            for reactor in owned:
                await self._place_reactor(reactor, tenant)
            for graph, ready in compiled:
                self._scheduler.bind_graph(tenant, graph, ready)
                undo.append(lambda name=graph.name: self._scheduler.unbind_graph(tenant, name))  # type: ignore[misc]
        except BaseException:
            for step in reversed(undo):
                step()
            for reactor in owned:
                if self._scheduler.is_same(tenant, reactor):
                    await self._scheduler.unload_reactor(tenant, reactor.name)
            self._registry.drop_package(tenant, package.name)
            raise
        state = PackageState(
            reactors=tuple(one.name for one in owned), graphs=tuple(one.name for one in package.graphs)
        )
        self._registry.add_package(tenant, package.name, state)
        return package.name

    def _is_owned(self, reactor: Reactor, tenant: str, before: PackageState | None) -> bool:
        """A reactor that a module merely imported from an already loaded package is not its own."""
        mine = before is not None and reactor.name in before.reactors
        return mine or not self._scheduler.is_same(tenant, reactor)

    def _check(
        self, package: Package, owned: tuple[Reactor, ...], tenant: str, before: PackageState | None
    ) -> list[tuple[Graph, Compiled]]:
        """Check everything before anything changes; return the graphs, compiled."""
        replacing = frozenset(before.reactors) if before else frozenset()
        mine = frozenset(before.graphs) if before else frozenset()
        for reactor in owned:
            _check_accumulators(reactor)
            self._scheduler.check_names(reactor, tenant, replacing)
            if reactor.name in replacing and not self._scheduler.has_same_contract(tenant, reactor):
                self._scheduler.guard_unload(tenant, reactor.name, mine)
        for name in replacing - {one.name for one in owned}:
            self._scheduler.guard_unload(tenant, name, mine)
        by_name = {one.name: one for one in owned}
        for graph in package.graphs:
            self._check_graph_name(graph, tenant, mine)
        return [
            (graph, self._scheduler.compile(tenant, graph, by_name.get(graph.reactor_name or "")))
            for graph in package.graphs
        ]

    def _check_graph_name(self, graph: Graph, tenant: str, mine: frozenset[str]) -> None:
        held = self._registry.mint_graph(tenant, graph.name)
        if held is not None and graph.name not in mine:
            message = f"graph '{graph.name}' is already defined at {held.location}; rename one of them"
            raise RequestError(message, code="name_taken", status=409, name=graph.name)

    async def _make_way(self, owned: tuple[Reactor, ...], tenant: str, before: PackageState) -> None:
        """Take away of the old version what the new one does not take over in place."""
        kept = {one.name for one in owned if self._scheduler.has_same_contract(tenant, one)}
        for name in before.graphs:
            self._scheduler.unbind_graph(tenant, name)
        for name in before.reactors:
            if name not in kept:
                await self._scheduler.unload_reactor(tenant, name)

    async def _place_reactor(self, reactor: Reactor, tenant: str) -> None:
        if self._scheduler.has_same_contract(tenant, reactor):
            self._scheduler.swap_reactor(tenant, reactor)
        else:
            self._scheduler.load_reactor(GraphDeclaration.of(reactor, tenant))

    async def _unload(self, name: str, tenant: str) -> None:
        state: PackageState | None = self._registry.package(tenant, name)
        if state is None:
            known = self._registry.packages(tenant)
            message = f"package '{name}' is not loaded{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_package", status=404, package=name)
        for reactor in state.reactors:
            self._scheduler.guard_unload(tenant, reactor, frozenset(state.graphs))
        for graph in state.graphs:
            self._scheduler.unbind_graph(tenant, graph)
        for reactor in state.reactors:
            await self._scheduler.unload_reactor(tenant, reactor)
        self._registry.drop_package(tenant, name)


def _check_accumulators(reactor: Reactor) -> None:
    """Refuse accumulators whose events could not be checked, or whose state cannot begin."""
    problems = [problem for one in reactor.accumulators for problem in (*one.signature.problems, *_state_problems(one))]
    if problems:
        raise DefinitionError(problems, f"reactor '{reactor.name}'")


def _state_problems(accumulator: Accumulator) -> Iterator[Problem]:
    if accumulator.state is None:
        return
    try:
        accumulator.state()
    except Exception as error:  # author code: whatever it raises, the state cannot begin
        message = f"state= of accumulator '{accumulator.name}' begins as {label(accumulator.state)}(): {error}"
        yield Problem(message=f"{message}; give its fields defaults", location=accumulator.location)
