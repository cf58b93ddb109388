"""Loads and unloads whole packages on one node: checks first, then the deploy pipeline."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.engine.graphs.checkpoints.kept_values import find_unread, unread_state_error
from tidemill.engine.graphs.durability.ownership import OwnershipListener, ReactorOwnedError, reactor_part_keys
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.reclaim import reclaim_reactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import reactor_key
from tidemill.engine.registry import PackageState, Registry
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.graphs.graph import Graph
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import NotFoundError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.deploy.change import (
    NO_DEFINITIONS,
    NO_HANDOVERS,
    Handover,
    NameClaim,
    PackageChange,
    PackageDefinitions,
    definition_names,
    plan_change,
)
from tidemill.packages.deploy.checks import LoadChecks
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.packages.deploy.pipeline import Pipeline, PipelineObserver
from tidemill.packages.deploy.retired_versions import RetiredVersions
from tidemill.packages.deploy.steps import deploy_steps
from tidemill.packages.loading.reader import Package, PackageOrigin
from tidemill.packages.standby import StandbyLoads
from tidemill.packages.status import PackageKey
from tidemill.storage.store import Store
from tidemill.workflows.records import VersionKey
from tidemill.workflows.workflow import Workflow

if TYPE_CHECKING:  # a node that loads only definitions does not import what reads package files
    from tidemill.packages.loading.preparer import PackageReference, PreparedPackage
    from tidemill.storage.graph_ports import PartKey


Load = Callable[[], Awaitable[Any]]
NOTHING_LEAVING: Mapping[PackageKey, frozenset[NameClaim]] = {}


class _ReplacedError(Exception):
    """A package whose reactors were held back was replaced or unloaded."""


class Installer(PipelineObserver, OwnershipListener):
    """Installs the packages of one node, for every tenant. `on_changed` is called when the loaded packages changed."""

    def __init__(
        self,
        runtime: GraphRuntime,
        scheduler: GraphScheduler,
        registry: Registry,
        engine: WorkflowEngine,
        store: Store,
        records: InstallRecords,
        standby: StandbyLoads,
        on_changed: Callable[[], None],
    ) -> None:
        tasks, clock = runtime.tasks, runtime.clock
        backoff = Backoff(runtime.settings.backoff_base, runtime.settings.backoff_max)
        steps = deploy_steps(scheduler, registry, engine, store.schedules, records, clock)
        self._changes = scheduler.changes
        self.pipeline = Pipeline(steps, records, self, self._changes.lock, tasks=tasks, clock=clock, backoff=backoff)
        self.scheduler = scheduler
        self._store = store
        self._registry = registry
        self.engine = engine
        self._on_changed = on_changed
        self._clock = clock
        self._checks = LoadChecks(scheduler, registry, engine)
        self._retired = RetiredVersions(engine, tasks, clock, backoff)
        self._definitions: dict[PackageKey, PackageDefinitions] = {}
        self._references: dict[PackageKey, PackageReference] = {}
        self.loaded_at: dict[PackageKey, datetime] = {}
        """When the current version of each package was loaded."""
        self._held_back: dict[PackageKey, Package] = {}
        """The packages that are loaded without reactors that another node owns."""
        self._standby = standby
        self._tasks = tasks
        if standby.ownership is not None:
            standby.ownership.listen(self)

    @property
    def definitions(self) -> Mapping[PackageKey, PackageDefinitions]:
        """The definitions of the loaded packages."""
        return self._definitions

    # -- loading and unloading

    async def load(
        self,
        package: Package,
        tenant: str,
        origin: PackageOrigin,
        reference: "PackageReference | None" = None,
        leaving: Mapping[PackageKey, frozenset[NameClaim]] = NOTHING_LEAVING,
    ) -> None:
        """Load a package, or replace its older version; nothing has changed if that fails.

        `leaving` are names that other packages give up: the package takes over those that it declares.
        """
        key = PackageKey(tenant, package.name)
        try:
            await self._load_available(package, key, origin, reference, leaving)
        except BaseException:
            if reference is not None and not self._retired.has(reference):
                reference.release()
            raise
        finally:
            await self._retired.collect()
        self._on_changed()

    async def _load_available(
        self,
        package: Package,
        key: PackageKey,
        origin: PackageOrigin,
        reference: "PackageReference | None",
        leaving: Mapping[PackageKey, frozenset[NameClaim]],
    ) -> None:
        """Load a package; if another node owns durable reactors of it, load the rest, and let those wait."""
        await self._check_unread_state(package, key.tenant)
        self._held_back.pop(key, None)
        try:
            await self._load(key, lambda: self._plan_load(package, key, origin, leaving), reference)
        except ReactorOwnedError as error:
            parts = set(error.keys)
            owned = {one.name for one in package.reactors if reactor_part_keys(key.tenant, one) & parts}
            rest = package.without_reactors(owned)
            if rest.is_empty and not origin.name:  # the program decides; a source would retry it ever less often
                raise
            await self._load(key, lambda: self._plan_load(rest, key, origin, leaving), reference)
            self._held_back[key] = package
            self._standby.wait(partial(self._load_whole, package, key, origin), error)

    async def _check_unread_state(self, package: Package, tenant: str) -> None:
        """Refuse a package that does not read all kept state of its reactors, if the settings say so."""
        runtime = self.scheduler.runtime
        if runtime.settings.unread_state != "refuse" or not package.reactors:
            return
        managed = self.scheduler.loaded.managed
        if unread := await find_unread(self._store, tenant, package.reactors, managed, runtime.durability):
            raise unread_state_error(package.name, unread)

    async def _load_whole(self, package: Package, key: PackageKey, origin: PackageOrigin) -> None:
        """Load the reactors that were held back, unless the package was replaced or unloaded meanwhile."""

        def plan() -> PackageChange:
            if self._held_back.get(key) is not package:  # a change that this one has waited for
                raise _ReplacedError
            return self._plan_load(package, key, origin, NOTHING_LEAVING)

        with suppress(_ReplacedError):
            await self._load(key, plan, self._references.get(key))
            if self._held_back.get(key) is package:  # not of a newer version, which waits for this load
                del self._held_back[key]
            self._on_changed()

    async def _load(
        self, key: PackageKey, plan: Callable[[], PackageChange], reference: "PackageReference | None"
    ) -> None:
        async with self._exclusive_change(key, plan) as change:
            await self.engine.read_new_pools(change.workflows)
            self._checks.check_load(change, self.pipeline.names_leaving())
            if change.has_graphs:
                change.progress.staged = self.scheduler.stage(change.to_graph_change())
            with self._changes.in_progress() if change.has_graphs else nullcontext():
                await self._apply(change, reference)
            if change.has_graphs:
                self.scheduler.activate(change.progress.staged)
            self._definitions[key] = change.after
            self.loaded_at[key] = self._clock.now()
            self._registry.packages.add(*key, change.after.state)
            self._finish_handovers(change)
            self._swap_reference(change, reference)

    async def _apply(self, change: PackageChange, reference: "PackageReference | None") -> None:
        try:
            await self.pipeline.load(change)
        except ReactorOwnedError:  # before its workflows were in place
            raise
        except BaseException:  # runs may have started while its workflows were in place
            self._retire(change, change.after, [*change.workflows, *change.rebound_callers], reference)
            raise

    def check_unloadable(self, key: PackageKey) -> None:
        """Raise RequestError if other packages need a package."""
        self._checks.check_unload(self._plan_unload(key))

    async def unload(self, name: str, tenant: str) -> None:
        """Unload a package; rejected, with nothing changed, while other packages need it."""
        try:
            await self._unload(PackageKey(tenant, name))
        finally:
            await self._retired.collect()
        self._on_changed()

    async def _unload(self, key: PackageKey) -> None:
        cleanup = self.pipeline.pending_cleanup(key)
        if cleanup is not None and cleanup.is_unload and cleanup.failures:  # an earlier unload failed: finish it
            await self.pipeline.finish_cleanup(cleanup)
            return
        async with self._exclusive_change(key, lambda: self._plan_unload(key)) as change:
            self._checks.check_unload(change)
            self._held_back.pop(key, None)
            cleanup = await self.pipeline.begin_unload(change)
        with self._changes.in_progress() if change.has_graphs else nullcontext():
            await self.pipeline.finish_unload(cleanup)

    def on_lost(self, keys: "Collection[PartKey]") -> None:
        """Stop the reactors that another node has acquired, and wait for them as any other node does."""
        for lost in self.scheduler.on_ownership_lost(keys):
            if lost.definition.is_partition:  # the sharing of partitions decides which node runs it
                self.scheduler.sharing.wake()
                continue
            self._standby.wait_for_lost(lost, partial(self._reclaim_lost, lost))

    async def _reclaim_lost(self, lost: RunningReactor) -> None:
        """Acquire a reactor again, unless an operator has restarted it meanwhile, or it was unloaded."""
        if lost in self.scheduler.loaded.reactors:
            await self.reclaim(lost.tenant, lost.name)

    async def reclaim(self, tenant: str, reactor: str) -> None:
        """Acquire a reactor that another node had acquired, and start it with its stored state."""
        await self._tasks.run_shielded(f"reactor {reactor}: reclaim", self._reclaim(tenant, reactor))

    async def _reclaim(self, tenant: str, reactor: str) -> None:
        async with self._changes.exclude():
            self.pipeline.check_open()
            await reclaim_reactor(self.scheduler, self._registry, tenant, reactor)

    @asynccontextmanager
    async def _exclusive_change(
        self, key: PackageKey, plan: Callable[[], PackageChange]
    ) -> AsyncIterator[PackageChange]:
        """Hold the change lock, with no pending cleanup of the package or of any name that the change touches."""
        while True:
            async with self.pipeline.change_lock:
                self.pipeline.check_open()
                cleanup = self.pipeline.pending_cleanup(key)
                if cleanup is None:
                    change = plan()
                    cleanup = self.pipeline.conflicting_cleanup(change)
                    if cleanup is None:
                        yield change
                        return
            await self.pipeline.finish_cleanup(cleanup)

    def on_unloaded(self, change: PackageChange) -> None:
        """Forget a package of which nothing is left."""
        del self._definitions[change.key], self.loaded_at[change.key]
        self._registry.packages.drop(*change.key)
        self._swap_reference(change, None)

    async def on_cleanup_done(self) -> None:
        """Release what only the finished cleanup kept."""
        await self._retired.collect()
        self._on_changed()

    async def close(self) -> None:
        """Stop everything that runs, without checks, and release everything that was imported."""
        self.pipeline.close()
        async with self.pipeline.change_lock:
            await self.pipeline.wait_for_cleanups()
            await self.scheduler.close()
            for reference in self._references.values():
                reference.release()
            self._retired.release_all()

    # -- planning changes

    def _plan_load(
        self,
        package: Package,
        key: PackageKey,
        origin: PackageOrigin,
        leaving: Mapping[PackageKey, frozenset[NameClaim]],
    ) -> PackageChange:
        handovers = self._plan_handovers(package, key, leaving)
        before = self._definitions.get(key, NO_DEFINITIONS)
        for one in handovers.values():
            before = before.joined_with(one.taken)
        after = self._own_definitions(package, key.tenant, before.state, origin)
        return self._plan(key, before, after, allow_downgrade=origin.allow_downgrade, handovers=handovers)

    def _plan_handovers(
        self, package: Package, key: PackageKey, leaving: Mapping[PackageKey, frozenset[NameClaim]]
    ) -> dict[PackageKey, Handover]:
        """Return what a package takes over from packages that give up names which it declares."""
        declared = definition_names(key.tenant, package.reactors, package.graphs, package.triggers, package.workflows)
        handovers = {}
        for other, names in leaving.items():
            definitions = self._definitions.get(other, NO_DEFINITIONS)
            if other != key and (taken := names & declared & definitions.names(other.tenant)):
                left = definitions.names(other.tenant) - taken
                handovers[other] = Handover(
                    definitions.select(other.tenant, taken), definitions.select(other.tenant, left)
                )
        return handovers

    def _finish_handovers(self, change: PackageChange) -> None:
        """Leave other packages without what this one has taken over, and keep their code while it is in use."""
        for other, handover in change.handovers.items():
            self._definitions[other] = handover.left
            self._registry.packages.add(*other, handover.left.state)
            if (reference := self._references.get(other)) is not None:
                workflows = (change.previous_workflows.get(one.name) for one in handover.taken.workflows)
                self._retire(
                    change, handover.taken, [one for one in workflows if one is not None], reference.duplicate()
                )

    def _plan_unload(self, key: PackageKey) -> PackageChange:
        if key not in self._definitions:
            loaded = self._registry.packages(key.tenant)
            message = f"package '{key.name}' is not loaded{did_you_mean(key.name, loaded)}"
            raise NotFoundError("package", key.name, message, loaded)
        return self._plan(key, self._definitions[key], NO_DEFINITIONS)

    def _plan(
        self,
        key: PackageKey,
        before: PackageDefinitions,
        after: PackageDefinitions,
        *,
        allow_downgrade: bool = False,
        handovers: Mapping[PackageKey, Handover] = NO_HANDOVERS,
    ) -> PackageChange:
        remaining = {**self._definitions, **{other: one.left for other, one in handovers.items()}}
        return plan_change(
            self._registry,
            key,
            before,
            after,
            [one for other, one in remaining.items() if other.tenant == key.tenant and other != key],
            was_loaded=key in self._definitions,
            allow_downgrade=allow_downgrade,
            handovers=handovers,
        )

    def _own_definitions(
        self, package: Package, tenant: str, before: PackageState, origin: PackageOrigin
    ) -> PackageDefinitions:
        """Return a package's definitions without those that it only imported from loaded packages."""
        registry, owned = self._registry, {*before.graphs, *before.triggerless}
        graphs = [
            one for one in package.graphs if one.name in owned or registry.graphs.find(tenant, one.name) is not one
        ]
        return PackageDefinitions(
            version=package.version,
            digest=package.digest,
            origin=origin.name,
            triggers=tuple(
                one
                for one in package.triggers
                if one.name in before.triggers or registry.triggers.find(tenant, one.name) is not one
            ),
            reactors=tuple(
                one
                for one in package.reactors
                if one.name in before.reactors or not self.scheduler.loaded.is_loaded(tenant, one)
            ),
            shared=package.shared,
            triggerless=tuple(one for one in graphs if one.reactor_name is None),
            graphs=tuple(one for one in graphs if one.reactor_name is not None),
            workflows=tuple(one for one in package.workflows if self._is_own_workflow(one, tenant, before)),
            held_back=package.held_back,
        )

    def _is_own_workflow(self, workflow: Workflow, tenant: str, before: PackageState) -> bool:
        registered = self._registry.workflows.find(tenant, workflow.name)
        is_other = registered is None or registered.declaration is not workflow.declaration
        return workflow.name in before.workflows or is_other

    # -- imported code

    def _swap_reference(self, change: PackageChange, reference: "PackageReference | None") -> None:
        """Keep the imported code of the loaded version, and retire that of the older one."""
        older = self._references.pop(change.key, None)
        if older is not reference:
            workflows = [one for one in change.previous_workflows.values() if one is not None]
            self._retire(change, change.before, workflows, older)
        if reference is not None:
            self._references[change.key] = reference

    def find_versions(self, package: Package, tenant: str, keys: Collection[VersionKey]) -> list[Workflow]:
        """Return those workflows of a package that have these versions, with the graphs that their tasks call."""
        own = {one.name: one for one in package.graphs}
        found: list[Workflow] = []
        for declared in package.within("tasks").workflows:
            called = declared.with_graphs(lambda name: own.get(name) or self._registry.graphs.find(tenant, name))
            if VersionKey(tenant, called.name, called.wired().spec.version) in keys:
                found.append(called)
        return found

    async def keep_older(self, tenant: str, workflows: Sequence[Workflow], prepared: "PreparedPackage") -> None:
        """Keep workflows of an older version of a package, and what was imported for them, while runs need them."""
        for workflow in workflows:
            await self.engine.load_older(tenant, workflow)
            self._retired.add(prepared.add_reference(), [self.engine.in_use_check(tenant, workflow)])
        await self._retired.collect()

    def _retire(
        self,
        change: PackageChange,
        definitions: PackageDefinitions,
        workflows: Iterable[Workflow],
        reference: "PackageReference | None",
    ) -> None:
        """Keep replaced code until its runs, its firings and the calls of its accumulators have ended."""
        if reference is None:
            return
        tenant = change.tenant
        bound = [reactor_key(one, tenant) for one in definitions.graphs]
        own = [(tenant, one.name) for one in definitions.reactors]
        reactors = {*own, *(one for one in bound if one is not None)}
        callers = _workflows_calling(self.engine.loaded_workflows(tenant), definitions.triggerless)
        runs = [self.engine.in_use_check(tenant, one) for one in (*workflows, *callers)]
        firings = [self.scheduler.loaded.make_in_use_check(*key) for key in sorted(reactors)]
        self._retired.add(reference, [*runs, *firings])


def _workflows_calling(workflows: Iterable[Workflow], graphs: Sequence[Graph]) -> list[Workflow]:
    """Return the workflows, of any package and version, that call one of these graph objects."""
    return [one for one in workflows if any(task.graph is graph for task in one.tasks for graph in graphs)]
