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
from tidemill.packages.deploy.change import NO_DEFINITIONS, PackageChange, PackageDefinitions
from tidemill.packages.deploy.checks import LoadChecks
from tidemill.packages.deploy.pipeline import Pipeline
from tidemill.packages.deploy.retired_versions import Keepsake, RetiredVersions, Tidier, UsageCheck
from tidemill.packages.deploy.steps import WorkflowLoader
from tidemill.packages.loading.reader import Package
from tidemill.workflows.workflow import Workflow


class Engine(WorkflowLoader, Tidier, Protocol):
    """What runs workflows."""

    def loaded_workflows(self, tenant: str) -> Iterable[Workflow]:
        """Return the workflows whose code is here, also in versions that only runs which have begun still need."""

    def in_use_check(self, tenant: str, workflow: Workflow) -> UsageCheck:
        """Return how to ask later whether runs begin or go on with this very declaration, or tasks of now still run."""


class Installer:
    """The packages of one node, of every tenant."""

    def __init__(
        self,
        scheduler: GraphScheduler,
        registry: Registry,
        engine: Engine,
        pipeline: Pipeline,
        retired: RetiredVersions,
        clock: Clock,
    ) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._engine = engine
        self._pipeline = pipeline
        self._clock = clock
        self._checks = LoadChecks(scheduler, registry, engine)
        self._definitions: dict[Key, PackageDefinitions] = {}
        self.loaded_at: dict[Key, datetime] = {}
        """When each package was loaded, in the version that it has."""
        self._references: dict[Key, Keepsake] = {}
        self._changes_in_progress = 0
        self._retired = retired

    @property
    def definitions(self) -> Mapping[Key, PackageDefinitions]:
        """What is loaded, by tenant and package."""
        return self._definitions

    async def load(self, package: Package, tenant: str, reference: Keepsake | None = None) -> str:
        """Load a package, or swap it for its new version; nothing has changed if that fails."""
        try:
            await self._load(package, tenant, reference)
        except BaseException:
            if reference is not None and not self._retired.has(reference):
                reference.release()
            raise
        finally:
            await self.collect_retired()
        return package.name

    async def _load(self, package: Package, tenant: str, reference: Keepsake | None) -> None:
        key = tenant, package.name
        async with self._exclusive_change(key, lambda: self._load_change(package, key)) as exchange:
            self._checks.check_load(exchange, self._pipeline.names_leaving())
            exchange.staged = self._scheduler.stage(exchange.to_graph_change())
            with self._change_in_progress():
                await self._apply(exchange, reference)
            self._scheduler.activate()
            self._definitions[key] = exchange.after
            self.loaded_at[key] = self._clock.now()
            self._registry.add_package(*key, exchange.after.state())
            self._swap_reference(key, exchange, reference)

    async def _apply(self, change: PackageChange, reference: Keepsake | None) -> None:
        try:
            await self._pipeline.load(change)
        except BaseException:  # its workflows may have been in place for a moment, and runs have begun
            self._retire(change, change.after, [*change.workflows, *change.rebound_callers], reference)
            raise

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; refused, with nothing changed, while others need what it has."""
        try:
            await self._unload((tenant, name))
        finally:
            await self.collect_retired()

    async def _unload(self, key: Key) -> None:
        owed = self._pipeline.pending_cleanup(*key)
        if owed is not None and owed.is_unload and owed.failures:  # whoever asked before was told that it failed
            await self._pipeline.finish_cleanup(owed)
            return
        with self._change_in_progress():
            async with self._exclusive_change(
                key, lambda: self._build_change(key, self._require_loaded(key), NO_DEFINITIONS)
            ) as exchange:
                self._checks.check_unload(exchange)
                debt = await self._pipeline.begin_unload(exchange, lambda: self._on_unloaded(key, exchange))
            await self._pipeline.finish_unload(debt)

    def _require_loaded(self, key: Key) -> PackageDefinitions:
        tenant, name = key
        if key not in self._definitions:
            known = self._registry.packages(tenant)
            message = f"package '{name}' is not loaded{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_package", status=404, package=name)
        return self._definitions[key]

    def _on_unloaded(self, key: Key, change: PackageChange) -> None:
        del self._definitions[key], self.loaded_at[key]
        self._registry.drop_package(*key)
        self._swap_reference(key, change, None)

    @asynccontextmanager
    async def _exclusive_change(self, key: Key, make: Callable[[], PackageChange]) -> AsyncIterator[PackageChange]:
        """Have a turn, with nothing owed about the package, nor about anything that the exchange has to do with."""
        while True:
            async with self._pipeline.change_lock:
                self._pipeline.check_open()
                owed = self._pipeline.pending_cleanup(*key)
                if owed is None:
                    exchange = make()
                    owed = self._pipeline.conflicting_cleanup(exchange)
                    if owed is None:
                        yield exchange
                        return
            await self._pipeline.finish_cleanup(owed)

    @contextmanager
    def _change_in_progress(self) -> Iterator[None]:
        """Reactors may leave and come back meanwhile; the last one that is through ends that for all."""
        self._changes_in_progress += 1
        try:
            yield
        finally:
            self._changes_in_progress -= 1
            if not self._changes_in_progress:
                self._scheduler.end_change()

    async def close(self) -> None:
        """End everything that runs, guards or not, and let everything go that was imported."""
        self._pipeline.close()
        async with self._pipeline.change_lock:
            await self._pipeline.wait_for_cleanups()
            await self._scheduler.close()
            for keepsake in self._references.values():
                keepsake.release()
            self._retired.release_all()

    # -- what is a package's own

    def _load_change(self, package: Package, key: Key) -> PackageChange:
        before = self._definitions.get(key, NO_DEFINITIONS)
        exchange = self._build_change(key, before, self._own_definitions(package, key[0], before.state()))
        exchange.allow_downgrade = package.allow_downgrade
        return exchange

    def _build_change(self, key: Key, before: PackageDefinitions, after: PackageDefinitions) -> PackageChange:
        others = [held for other, held in self._definitions.items() if other[0] == key[0] and other != key]
        return PackageChange(self._registry, *key, before, after, others)

    def _own_definitions(self, package: Package, tenant: str, before: PackageState) -> PackageDefinitions:
        """Return a package's definitions without those that it merely imported from packages that are loaded."""
        owned = {*before.graphs, *before.triggerless}
        graphs = [
            one for one in package.graphs if one.name in owned or self._registry.graph(tenant, one.name) is not one
        ]
        return PackageDefinitions(
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
                if one.name in before.reactors or not self._scheduler.is_loaded(tenant, one)
            ),
            shared=package.shared,
            triggerless=tuple(one for one in graphs if one.reactor_name is None),
            graphs=tuple(one for one in graphs if one.reactor_name is not None),
            workflows=tuple(one for one in package.workflows if self._is_own_workflow(one, tenant, before)),
        )

    def _is_own_workflow(self, workflow: Workflow, tenant: str, before: PackageState) -> bool:
        held = self._registry.workflow(tenant, workflow.name)
        return workflow.name in before.workflows or held is None or held.declaration is not workflow.declaration

    # -- what was imported

    def _swap_reference(self, key: Key, change: PackageChange, reference: Keepsake | None) -> None:
        """Keep what a package needs as long as it is loaded, and what its older version needs until its runs end."""
        older = self._references.pop(key, None)
        if older is not reference:
            workflows = [one for one in change.previous_workflows.values() if one is not None]
            self._retire(change, change.before, workflows, older)
        if reference is not None:
            self._references[key] = reference

    def _retire(
        self,
        change: PackageChange,
        definitions: PackageDefinitions,
        workflows: Iterable[Workflow],
        reference: Keepsake | None,
    ) -> None:
        """Keep what is not in place any more until its runs, its firings and its accumulators' calls have ended."""
        if reference is not None:
            tenant = change.tenant
            bound = [reactor_key(one, tenant) for one in definitions.graphs]
            reactors = {
                *((tenant, one.name) for one in definitions.reactors),
                *(one for one in bound if one is not None),
            }
            callers = _workflows_calling(self._engine.loaded_workflows(tenant), definitions.triggerless)
            runs = [self._engine.in_use_check(tenant, one) for one in (*workflows, *callers)]
            self._retired.add(
                reference, [*runs, *(self._scheduler.make_in_use_check(*key) for key in sorted(reactors))]
            )

    async def collect_retired(self) -> None:
        """Let go of what no run and no firing needs any more, as far as that can be told now."""
        await self._retired.collect()


def _workflows_calling(workflows: Iterable[Workflow], graphs: Sequence[Graph]) -> list[Workflow]:
    """Return the workflows, of whatever package and version, that call one of these very graphs."""
    return [one for one in workflows if any(task.graph is graph for task in one.tasks for graph in graphs)]
