"""Loading and unloading packages whole: what may fail happens first, beside what runs; then the change."""

import asyncio
from collections.abc import Iterator

from tidemill.annotations.variants import label
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import Offer, Staged
from tidemill.engine.registry import PackageState, Registry
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.loader import Package
from tidemill.packages.workflows import Exchange, NoWorkflows, WorkflowLoader


class Installer:
    """Loads and unloads packages on one node."""

    def __init__(self, scheduler: GraphScheduler, registry: Registry, workflows: WorkflowLoader | None = None) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._workflows = workflows or NoWorkflows()
        self._turn = asyncio.Lock()  # one change at a time: what was checked still holds when it is done

    async def load(self, package: Package, tenant: str) -> str:
        """Load a package, or swap it for its new version; nothing has changed if that fails."""
        async with self._turn:
            try:
                return await self._load(package, tenant)
            finally:
                self._scheduler.end_exchange()

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; refused, with nothing changed, while others are bound to its reactors."""
        async with self._turn:
            try:
                await self._unload(name, tenant)
            finally:
                self._scheduler.end_exchange()

    async def close(self) -> None:
        """Unload everything, guards or not."""
        async with self._turn:
            await self._scheduler.close()

    async def _load(self, package: Package, tenant: str) -> str:
        before = self._registry.package(tenant, package.name) or PackageState()
        owned = tuple(one for one in package.reactors if self._is_owned(one, tenant, before))
        for reactor in owned:
            _check_accumulators(reactor)
        for graph in package.graphs:
            self._check_graph_name(graph, tenant, before)
        exchange = Exchange(self._registry, self._workflows, tenant, package, before)
        exchange.check()
        staged = self._scheduler.stage(Offer(tenant=tenant, reactors=owned, graphs=package.graphs, before=before))
        await exchange.put_in_place()
        try:
            await self._exchange_graphs(staged, tenant, before)
        except BaseException:
            await exchange.undo()
            raise
        state = PackageState(
            reactors=tuple(one.name for one in owned),
            graphs=tuple(one.name for one in package.graphs),
            workflows=tuple(one.name for one in exchange.workflows),
            triggers=tuple(one.name for one in exchange.triggers),
        )
        self._registry.add_package(tenant, package.name, state)
        return package.name

    async def _exchange_graphs(self, staged: Staged, tenant: str, before: PackageState) -> None:
        if staged.leaving:
            await self._scheduler.recall(staged)  # a store that fails is better met before anything is unloaded
            for name in staged.leaving:
                await self._scheduler.unload_reactor(tenant, name, frozenset(before.graphs))
        await self._scheduler.put_in_place(staged)

    def _is_owned(self, reactor: Reactor, tenant: str, before: PackageState) -> bool:
        """A reactor that a module merely imported from an already loaded package is not its own."""
        return reactor.name in before.reactors or not self._scheduler.is_same(tenant, reactor)

    def _check_graph_name(self, graph: Graph, tenant: str, before: PackageState) -> None:
        if graph.name not in before.graphs and self._registry.has_graph(tenant, graph.name):
            held = self._registry.graph(tenant, graph.name)
            message = f"graph '{graph.name}' is already defined at {held.location}; rename one of them"
            raise RequestError(message, code="name_taken", status=409, name=graph.name)

    async def _unload(self, name: str, tenant: str) -> None:
        state = self._registry.package(tenant, name)
        if state is None:
            known = self._registry.packages(tenant)
            message = f"package '{name}' is not loaded{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_package", status=404, package=name)
        graphs = frozenset(state.graphs)
        exchange = Exchange(self._registry, self._workflows, tenant, Package(name=name), state)
        exchange.check()
        for reactor in state.reactors:
            self._scheduler.guard_unload(tenant, reactor, graphs)
        await exchange.put_in_place()
        for reactor in state.reactors:
            await self._scheduler.unload_reactor(tenant, reactor, graphs)
        for graph in graphs:
            self._scheduler.unbind_graph(tenant, graph)
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
