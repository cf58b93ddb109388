"""Loading and unloading packages whole on one node: guards first, then the six steps."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Protocol

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import reactor_key
from tidemill.engine.registry import Key, PackageState, Registry
from tidemill.graphs.graph import Graph
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.exchange import Exchange
from tidemill.packages.guards import Guards
from tidemill.packages.holdings import NOTHING, Holdings
from tidemill.packages.loader import Package
from tidemill.packages.pipeline import Pipeline
from tidemill.packages.steps.workflows import WorkflowLoader
from tidemill.packages.superseded import Keepsake, Need, Superseded, Tidier
from tidemill.workflows.workflow import Workflow


class Engine(WorkflowLoader, Tidier, Protocol):
    """What runs workflows."""

    def known(self, tenant: str) -> Iterable[Workflow]:
        """Return the workflows whose code is here, also in versions that only runs which have begun still need."""

    def need_for(self, tenant: str, workflow: Workflow) -> Need:
        """Return how to ask later whether runs begin or go on with this very declaration, or tasks of now still run."""


class Installer:
    """The packages of one node, of every tenant."""

    def __init__(
        self,
        scheduler: GraphScheduler,
        registry: Registry,
        engine: Engine,
        pipeline: Pipeline,
        superseded: Superseded,
        clock: Clock,
    ) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._engine = engine
        self._pipeline = pipeline
        self._clock = clock
        self._guards = Guards(scheduler, registry, engine)
        self._held: dict[Key, Holdings] = {}
        self.loaded_at: dict[Key, datetime] = {}
        """When each package was loaded, in the version that it has."""
        self._kept: dict[Key, Keepsake] = {}
        self._exchanges = 0
        self._superseded = superseded

    @property
    def holdings(self) -> Mapping[Key, Holdings]:
        """What is loaded, by tenant and package."""
        return self._held

    async def load(self, package: Package, tenant: str, keepsake: Keepsake | None = None) -> str:
        """Load a package, or swap it for its new version; nothing has changed if that fails."""
        try:
            await self._load(package, tenant, keepsake)
        except BaseException:
            if keepsake is not None and not self._superseded.has(keepsake):
                keepsake.discard()
            raise
        finally:
            await self.tidy()
        return package.name

    async def _load(self, package: Package, tenant: str, keepsake: Keepsake | None) -> None:
        key = tenant, package.name
        async with self._turn(key, lambda: self._exchange_for(package, key)) as exchange:
            self._guards.check_load(exchange, self._pipeline.leaving())
            exchange.staged = self._scheduler.stage(exchange.offer())
            with self._underway():
                await self._put(exchange, keepsake)
            self._scheduler.open_up()
            self._held[key] = exchange.after
            self.loaded_at[key] = self._clock.now()
            self._registry.add_package(*key, exchange.after.state())
            self._keep(key, exchange, keepsake)

    async def _put(self, exchange: Exchange, keepsake: Keepsake | None) -> None:
        try:
            await self._pipeline.load(exchange)
        except BaseException:  # its workflows may have been in place for a moment, and runs have begun
            self._set_aside(exchange, exchange.after, [*exchange.workflows, *exchange.rebound], keepsake)
            raise

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; refused, with nothing changed, while others need what it has."""
        try:
            await self._unload((tenant, name))
        finally:
            await self.tidy()

    async def _unload(self, key: Key) -> None:
        owed = self._pipeline.owed(*key)
        if owed is not None and owed.is_leaving and owed.failures:  # whoever asked before was told that it failed
            await self._pipeline.settle(owed)
            return
        with self._underway():
            async with self._turn(key, lambda: self._exchange(key, self._loaded(key), NOTHING)) as exchange:
                self._guards.check_unload(exchange)
                debt = await self._pipeline.begin_unload(exchange, lambda: self._gone(key, exchange))
            await self._pipeline.unload(debt)

    def _loaded(self, key: Key) -> Holdings:
        tenant, name = key
        if key not in self._held:
            known = self._registry.packages(tenant)
            message = f"package '{name}' is not loaded{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_package", status=404, package=name)
        return self._held[key]

    def _gone(self, key: Key, exchange: Exchange) -> None:
        del self._held[key], self.loaded_at[key]
        self._registry.drop_package(*key)
        self._keep(key, exchange, None)

    @asynccontextmanager
    async def _turn(self, key: Key, make: Callable[[], Exchange]) -> AsyncIterator[Exchange]:
        """Have a turn, with nothing owed about the package, nor about anything that the exchange has to do with."""
        while True:
            async with self._pipeline.turn:
                self._pipeline.check_open()
                owed = self._pipeline.owed(*key)
                if owed is None:
                    exchange = make()
                    owed = self._pipeline.in_the_way(exchange)
                    if owed is None:
                        yield exchange
                        return
            await self._pipeline.settle(owed)

    @contextmanager
    def _underway(self) -> Iterator[None]:
        """Reactors may leave and come back meanwhile; the last one that is through ends that for all."""
        self._exchanges += 1
        try:
            yield
        finally:
            self._exchanges -= 1
            if not self._exchanges:
                self._scheduler.end_exchange()

    async def close(self) -> None:
        """End everything that runs, guards or not, and let everything go that was imported."""
        self._pipeline.close()
        async with self._pipeline.turn:
            await self._pipeline.rest()
            await self._scheduler.close()
            for keepsake in self._kept.values():
                keepsake.discard()
            self._superseded.discard()

    # -- what is a package's own

    def _exchange_for(self, package: Package, key: Key) -> Exchange:
        before = self._held.get(key, NOTHING)
        exchange = self._exchange(key, before, self._own(package, key[0], before.state()))
        exchange.may_downgrade = package.allow_downgrade
        return exchange

    def _exchange(self, key: Key, before: Holdings, after: Holdings) -> Exchange:
        others = [held for other, held in self._held.items() if other[0] == key[0] and other != key]
        return Exchange(self._registry, *key, before, after, others)

    def _own(self, package: Package, tenant: str, before: PackageState) -> Holdings:
        """Return a package's definitions without those that it merely imported from packages that are loaded."""
        owned = {*before.graphs, *before.triggerless}
        graphs = [
            one for one in package.graphs if one.name in owned or self._registry.graph(tenant, one.name) is not one
        ]
        return Holdings(
            version=package.version,
            digest=package.digest,
            origin=package.origin,
            triggers=tuple(
                one
                for one in package.triggers
                if one.name in before.triggers or self._registry.trigger(tenant, one.name) is not one
            ),
            reactors=tuple(
                one
                for one in package.reactors
                if one.name in before.reactors or not self._scheduler.is_same(tenant, one)
            ),
            shared=package.shared,
            triggerless=tuple(one for one in graphs if one.reactor_name is None),
            graphs=tuple(one for one in graphs if one.reactor_name is not None),
            workflows=tuple(one for one in package.workflows if self._is_own(one, tenant, before)),
        )

    def _is_own(self, workflow: Workflow, tenant: str, before: PackageState) -> bool:
        held = self._registry.workflow(tenant, workflow.name)
        return workflow.name in before.workflows or held is None or held.declared is not workflow.declared

    # -- what was imported

    def _keep(self, key: Key, exchange: Exchange, keepsake: Keepsake | None) -> None:
        """Keep what a package needs as long as it is loaded, and what its older version needs until its runs end."""
        older = self._kept.pop(key, None)
        if older is not keepsake:
            workflows = [one for one in exchange.held_workflows.values() if one is not None]
            self._set_aside(exchange, exchange.before, workflows, older)
        if keepsake is not None:
            self._kept[key] = keepsake

    def _set_aside(
        self, exchange: Exchange, holdings: Holdings, workflows: Iterable[Workflow], keepsake: Keepsake | None
    ) -> None:
        """Keep what is not in place any more until its runs, its firings and its accumulators' calls have ended."""
        if keepsake is not None:
            tenant = exchange.tenant
            bound = [reactor_key(one, tenant) for one in holdings.graphs]
            reactors = {*((tenant, one.name) for one in holdings.reactors), *(one for one in bound if one is not None)}
            callers = _callers(self._engine.known(tenant), holdings.triggerless)
            runs = [self._engine.need_for(tenant, one) for one in (*workflows, *callers)]
            self._superseded.add(keepsake, [*runs, *(self._scheduler.need_for(*key) for key in sorted(reactors))])

    async def tidy(self) -> None:
        """Let go of what no run and no firing needs any more, as far as that can be told now."""
        await self._superseded.tidy()


def _callers(workflows: Iterable[Workflow], graphs: Sequence[Graph]) -> list[Workflow]:
    """Return the workflows, of whatever package and version, that call one of these very graphs."""
    return [one for one in workflows if any(task.graph is graph for task in one.tasks for graph in graphs)]
