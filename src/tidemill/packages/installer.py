"""Loading and unloading packages whole on one node: guards first, then the six steps."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import reactor_key
from tidemill.engine.registry import Key, PackageState, Registry
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.exchange import Exchange
from tidemill.packages.guards import Guards
from tidemill.packages.holdings import NOTHING, Holdings
from tidemill.packages.loader import Package
from tidemill.packages.pipeline import Pipeline
from tidemill.packages.steps.workflows import WorkflowLoader
from tidemill.telemetry import events
from tidemill.workflows.workflow import Workflow

logger = logging.getLogger(__name__)


class Keepsake(Protocol):
    """What must outlive a package that was imported: its modules, and the files they came from."""

    def discard(self) -> None:
        """Let it all go; again is no error."""


class Engine(WorkflowLoader, Protocol):
    """What runs workflows."""

    async def tidy(self, forgotten: Callable[[], None]) -> None:
        """Forget versions that no run needs any more; `forgotten` is called now, and whenever one is forgotten."""

    def needs(self, tenant: str, workflow: Workflow) -> bool:
        """Return whether a workflow, this very declaration, is what runs begin with, or go on with."""


class Installer:
    """The packages of one node, of every tenant."""

    def __init__(
        self, scheduler: GraphScheduler, registry: Registry, engine: Engine, pipeline: Pipeline, clock: Clock
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
        self._replaced: list[_Replaced] = []

    @property
    def holdings(self) -> Mapping[Key, Holdings]:
        """What is loaded, by tenant and package."""
        return self._held

    async def load(self, package: Package, tenant: str, keepsake: Keepsake | None = None) -> str:
        """Load a package, or swap it for its new version; nothing has changed if that fails."""
        async with self._pipeline.turn:
            try:
                await self._load(package, tenant, keepsake)
            except BaseException:
                if keepsake is not None:
                    keepsake.discard()
                raise
            finally:
                self._scheduler.end_exchange()
        await self._tidy()
        return package.name

    async def _load(self, package: Package, tenant: str, keepsake: Keepsake | None) -> None:
        key = tenant, package.name
        before = self._held.get(key, NOTHING)
        exchange = self._exchange(key, before, self._own(package, tenant, before.state()))
        self._guards.check_load(exchange)
        await self._pipeline.load(exchange)
        self._scheduler.open_up()
        self._held[key] = exchange.after
        self.loaded_at[key] = self._clock.now()
        self._registry.add_package(*key, exchange.after.state())
        self._keep(key, exchange, keepsake)

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; refused, with nothing changed, while others need what it has."""
        async with self._pipeline.turn:
            try:
                await self._unload((tenant, name))
            finally:
                self._scheduler.end_exchange()
        await self._tidy()

    async def _unload(self, key: Key) -> None:
        tenant, name = key
        before = self._held.get(key)
        if before is None:
            known = self._registry.packages(tenant)
            message = f"package '{name}' is not loaded{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_package", status=404, package=name)
        exchange = self._exchange(key, before, NOTHING)
        if not self._pipeline.owes(tenant, name):
            self._guards.check_unload(exchange)

        def gone() -> None:
            del self._held[key], self.loaded_at[key]
            self._registry.drop_package(*key)
            self._keep(key, exchange, None)

        await self._pipeline.unload(exchange, gone)

    async def close(self) -> None:
        """End everything that runs, guards or not, and let everything go that was imported."""
        async with self._pipeline.turn:
            await self._scheduler.close()
            for keepsake in [*self._kept.values(), *(one.keepsake for one in self._replaced)]:
                keepsake.discard()

    # -- what is a package's own

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
        if older is not None and older is not keepsake:
            workflows = [one for one in exchange.held_workflows.values() if one is not None]
            bound = [reactor_key(one, exchange.tenant) for one in exchange.before.graphs]
            reactors = [one for one in bound if one is not None]
            self._replaced.append(_Replaced(exchange.tenant, workflows, reactors, older))
        if keepsake is not None:
            self._kept[key] = keepsake

    async def _tidy(self) -> None:
        if self._replaced:
            try:
                await self._engine.tidy(self._sweep)
            except StoreError as error:  # it only means that older versions are kept a while longer
                logger.warning(events.PACKAGE_KEPT, extra={"error": str(error)})

    def _sweep(self) -> None:
        """Let go of older versions that no run and no firing needs any more."""
        older, self._replaced = self._replaced, []
        for one in older:
            if self._is_needed(one):
                self._replaced.append(one)
            else:
                one.keepsake.discard()

    def _is_needed(self, older: "_Replaced") -> bool:
        is_run = any(self._engine.needs(older.tenant, one) for one in older.workflows)
        return is_run or any(self._scheduler.is_firing(*key) for key in older.reactors)


class _Replaced(NamedTuple):
    """An older version: the workflows that runs may need, and the reactors whose firings may be on their way."""

    tenant: str
    workflows: list[Workflow]
    reactors: list[Key]
    keepsake: Keepsake
