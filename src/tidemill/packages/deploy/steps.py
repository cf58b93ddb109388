"""The six deploy steps. Each has three verbs, and each verb may be called again if it failed half-way."""

from collections.abc import Collection, Sequence
from typing import Protocol

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import reactor_key
from tidemill.engine.registry import Key, PackageState, Registry
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.starts.schedules import first_cursor
from tidemill.graphs.compiler import CompiledGraph
from tidemill.kernel.clock import Clock
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.storage.tables.schedules import Schedules
from tidemill.storage.tables.versions import NO_ARCHIVE, CodeArchive
from tidemill.workflows.workflow import Workflow


class DeployStep(Protocol):
    """One kind of side effect of a package."""

    title: str
    """The kind, for messages and logs."""

    awaits_author_code: bool
    """Whether the step may wait for author code, and not only for the store."""

    async def apply(self, change: PackageChange) -> None:
        """Put in place what the package is to have of this kind."""

    async def roll_back(self, change: PackageChange) -> None:
        """Restore everything as it was before `apply`, however far that came."""

    async def remove(self, change: PackageChange) -> None:
        """Remove what the package had of this kind and no longer has: everything, if it is unloaded."""


def deploy_steps(
    scheduler: GraphScheduler,
    registry: Registry,
    engine: WorkflowEngine,
    schedules: Schedules,
    records: InstallRecords,
    clock: Clock,
) -> Sequence[DeployStep]:
    """Return the six steps in load order."""
    return (
        SchedulesStep(schedules, clock, records),
        TriggersStep(registry),
        ReactorsStep(scheduler, registry),
        TriggerlessGraphsStep(registry),
        GraphBindingsStep(scheduler),
        WorkflowsStep(engine, registry, schedules),
    )


class SchedulesStep(DeployStep):
    """Inserts and deletes the schedule rows of a package, keyed by tenant, workflow and schedule.

    An existing row keeps its cursor and its pause, so a reload misses no slot.
    """

    title = "schedules"
    awaits_author_code = False

    def __init__(self, schedules: Schedules, clock: Clock, records: InstallRecords) -> None:
        self._schedules = schedules
        self._clock = clock
        self._records = records

    async def apply(self, change: PackageChange) -> None:
        now, progress = self._clock.now(), change.progress
        cursors = [
            first_cursor(change.tenant, workflow.name, schedule, now, armed=False)
            for workflow, schedule in change.after.schedules
        ]
        if cursors:
            progress.unconfirmed_schedules = [one.schedule for one in cursors]
            progress.inserted_schedules += await self._schedules.insert_missing(cursors)
            progress.unconfirmed_schedules = []

    async def roll_back(self, change: PackageChange) -> None:
        progress = change.progress
        unconfirmed = [key for key in progress.unconfirmed_schedules if await self._records.is_disarmed(key)]
        inserted = {*progress.inserted_schedules, *unconfirmed}
        if inserted:
            await self._schedules.delete(sorted(inserted - await self._records.schedules_of_other_nodes()))
        progress.inserted_schedules, progress.unconfirmed_schedules = [], []

    async def remove(self, change: PackageChange) -> None:
        """Delete the rows that no other node has; one that has ended continues with its rows when it comes back."""
        if removed := set(change.removed_schedules):
            await self._schedules.delete(sorted(removed - await self._records.schedules_kept_for_others()))


class TriggersStep(DeployStep):
    """Registers the triggers of a package."""

    title = "triggers"
    awaits_author_code = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        for trigger in change.after.triggers:
            self._registry.triggers.add(change.tenant, trigger.name, trigger)

    async def roll_back(self, change: PackageChange) -> None:
        for name, previous in change.previous_triggers.items():
            if previous is None:
                self._registry.triggers.drop(change.tenant, name)
            else:
                self._registry.triggers.add(change.tenant, previous.name, previous)

    async def remove(self, change: PackageChange) -> None:
        for name in change.removed_triggers:
            self._registry.triggers.drop(change.tenant, name)


class ReactorsStep(DeployStep):
    """Starts and stops the reactors of a package."""

    title = "reactors"
    awaits_author_code = True

    def __init__(self, scheduler: GraphScheduler, registry: Registry) -> None:
        self._scheduler = scheduler
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        if change.progress.staged is not None:
            await self._scheduler.start_reactors(change.progress.staged)

    async def roll_back(self, change: PackageChange) -> None:
        staged = change.progress.staged
        if staged is None:
            return
        added = [one.definition for one in staged.added_keyed.values()]
        added += [one.reactor.definition for one in staged.added_reactors.values() if not one.reactor.is_partition]
        loaded = [one.name for one in added if self._scheduler.loaded.is_loaded(change.tenant, one)]
        await self._scheduler.unload_reactors(change.tenant, loaded, change.reactor_graphs)
        await self._restore_reactors(change, {*staged.removed_reactors, *staged.removed_keyed})
        await self._scheduler.release_unused(staged.durable_parts(self._scheduler.runtime.durability))

    async def _restore_reactors(self, change: PackageChange, removed: set[str]) -> None:
        """Start reactors of the version before again, with the graphs that were bound to them."""
        if not removed:
            return
        tenant = change.tenant
        running = removed.intersection(self._registry.reactors(tenant))  # never stopped, or restored by an earlier try
        keys = {(tenant, name) for name in removed}
        graphs = tuple(one for one in change.before.graphs if reactor_key(one, tenant) in keys)
        replaced = PackageState(reactors=tuple(sorted(running)), graphs=tuple(one.name for one in graphs))
        staged = self._scheduler.stage(change.restore_graphs(removed, graphs, replaced))
        await self._scheduler.start_reactors(staged)
        await self._scheduler.rebind(staged)
        self._scheduler.activate(staged)

    async def remove(self, change: PackageChange) -> None:
        """Stop the reactors of an unloaded package, and unbind its graphs from them.

        A newer version has already stopped the reactors that it does not keep.
        """
        loaded = set(self._registry.reactors(change.tenant))
        leaving = [name for name in change.removed_reactors if name in loaded]
        await self._scheduler.unload_reactors(change.tenant, leaving, change.reactor_graphs)


class TriggerlessGraphsStep(DeployStep):
    """Registers the graphs of a package that are only called."""

    title = "graphs without a reactor"
    awaits_author_code = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        for graph in change.after.triggerless:
            self._registry.graphs.add(change.tenant, graph.name, graph)

    async def roll_back(self, change: PackageChange) -> None:
        for name, previous in change.previous_graphs.items():
            if previous is None:
                self._registry.graphs.drop(change.tenant, name)
            else:
                self._registry.graphs.add(change.tenant, previous.name, previous)

    async def remove(self, change: PackageChange) -> None:
        kept = {one.name for one in (*change.after.triggerless, *change.after.graphs)}
        for graph in change.before.triggerless:
            if graph.name not in kept:
                self._registry.graphs.drop(change.tenant, graph.name)


class GraphBindingsStep(DeployStep):
    """Binds the graphs of a package to their reactors.

    A graph stays bound to a reactor that leaves with it until step 3 has stopped that one: what it accepts has to fire.
    """

    title = "graphs of reactors"
    awaits_author_code = True

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler

    async def apply(self, change: PackageChange) -> None:
        if change.progress.staged is not None:
            await self._scheduler.rebind(change.progress.staged)

    async def roll_back(self, change: PackageChange) -> None:
        """Restore what continued to run. Step 3 restores the graphs of reactors that were stopped."""
        before, staged = change.before, change.progress.staged
        stopped = set() if staged is None else {*staged.removed_reactors, *staged.removed_keyed}
        stopped_keys = {(change.tenant, name) for name in stopped}
        reactors = [one.name for one in before.reactors if one.name not in stopped]
        graphs = tuple(one for one in before.graphs if reactor_key(one, change.tenant) not in stopped_keys)
        restored = {one.name for one in graphs}
        leaving = _graphs_of_added(change, restored)
        if reactors or graphs:
            replaced = PackageState(reactors=tuple(reactors), graphs=tuple(sorted(change.reactor_graphs)))
            earlier = self._scheduler.stage(change.restore_graphs(reactors, graphs, replaced))
            earlier.subscribers.update(leaving)
            await self._scheduler.rebind(earlier)
        for graph in change.after.graphs:
            if graph.name not in restored and reactor_key(graph, change.tenant) not in leaving:
                self._scheduler.unbind_graph(change.tenant, graph.name)

    async def remove(self, change: PackageChange) -> None:
        kept = {one.name for one in (*change.after.triggerless, *change.after.graphs)}
        leaving = {(change.tenant, name) for name in change.removed_reactors}
        for graph in change.before.graphs:
            if graph.name not in kept and reactor_key(graph, change.tenant) not in leaving:
                self._scheduler.unbind_graph(change.tenant, graph.name)


def _graphs_of_added(change: PackageChange, restored: Collection[str]) -> dict[Key, dict[str, CompiledGraph]]:
    """Return the graphs of the reactors that a change has added, except those that return to another reactor."""
    if (staged := change.progress.staged) is None:
        return {}
    bound = {name: one.subscribers for name, one in staged.added_reactors.items()}
    bound |= {name: one.subscribers for name, one in staged.added_keyed.items()}
    return {
        (change.tenant, name): {graph: one for graph, one in graphs.items() if graph not in restored}
        for name, graphs in bound.items()
    }


class WorkflowsStep(DeployStep):
    """Activates the workflows of a package, and those of other packages that call newer versions of its graphs."""

    title = "workflows"
    awaits_author_code = False

    def __init__(self, engine: WorkflowEngine, registry: Registry, schedules: Schedules) -> None:
        self._engine = engine
        self._registry = registry
        self._schedules = schedules

    async def apply(self, change: PackageChange) -> None:
        if change.affects_starts:
            self._engine.hold_schedules(change.tenant, change.previous_workflows)
        for workflow in change.workflows:
            await self._activate(change.tenant, workflow, change.archive)
        for workflow in change.rebound_callers:
            await self._activate(change.tenant, workflow)
        if keys := change.after.schedule_keys(change.tenant):
            await self._schedules.arm(keys)

    async def roll_back(self, change: PackageChange) -> None:
        await self._restore_previous(change)
        self._release_schedules(change)

    async def _restore_previous(self, change: PackageChange) -> None:
        for name, previous in change.previous_workflows.items():
            if self._registry.workflows.find(change.tenant, name) is previous:
                continue
            if previous is None:
                await self._deactivate(change.tenant, name)
            else:
                await self._activate(change.tenant, previous)

    async def remove(self, change: PackageChange) -> None:
        """Deactivate removed workflows, and let the schedules of the others start runs."""
        for name in change.removed_workflows:
            await self._deactivate(change.tenant, name)
        self._release_schedules(change)

    def _release_schedules(self, change: PackageChange) -> None:
        if change.affects_starts:
            self._engine.release_schedules(change.tenant, change.previous_workflows)

    async def _activate(self, tenant: str, workflow: Workflow, archive: CodeArchive = NO_ARCHIVE) -> None:
        await self._engine.activate(tenant, workflow, archive)
        self._registry.workflows.add(tenant, workflow.name, workflow)

    async def _deactivate(self, tenant: str, name: str) -> None:
        await self._engine.deactivate(tenant, name)
        self._registry.workflows.drop(tenant, name)
