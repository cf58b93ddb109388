"""A step of loading a package: three verbs, each of which may be called again if it failed half way."""

from collections.abc import Iterable
from typing import Protocol

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import GraphChange, reactor_key
from tidemill.engine.registry import PackageState, Registry
from tidemill.engine.workflows.starts.schedules import first_cursor
from tidemill.kernel.clock import Clock
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.deploy.install_records import InstallRecords
from tidemill.storage.workflow_ports import ScheduleKey, Schedules
from tidemill.workflows.workflow import Workflow


class DeployStep(Protocol):
    """One kind of side effect of a package."""

    title: str
    """What it is about, for messages."""
    awaits_author_code: bool
    """Whether it may wait for what authors' code does, and not for the store alone."""

    async def apply(self, change: PackageChange) -> None:
        """Put in place what the package is to have of this kind."""

    async def roll_back(self, change: PackageChange) -> None:
        """Make everything as it was before `put`, however far that came."""

    async def remove(self, change: PackageChange) -> None:
        """Take away what the package had and is no longer to have: all of it when it is unloaded."""


class SchedulesStep(DeployStep):
    """The rows of a package's schedules, keyed by tenant, workflow and schedule.

    A row that is there stays as it is, with its cursor and its pause: a reload misses no slot.
    """

    title = "schedules"
    awaits_author_code = False

    def __init__(self, schedules: Schedules, clock: Clock, records: InstallRecords) -> None:
        self._schedules = schedules
        self._clock = clock
        self._records = records

    async def apply(self, change: PackageChange) -> None:
        now = self._clock.now()
        cursors = [
            first_cursor(change.tenant, workflow.name, schedule, now, armed=False)
            for workflow, schedule in change.after.iter_schedules()
        ]
        if cursors:
            change.unconfirmed_schedules = [one.schedule for one in cursors]
            change.inserted_schedules += await self._schedules.insert_missing(cursors)
            change.unconfirmed_schedules = []

    async def roll_back(self, change: PackageChange) -> None:
        doubtful = [key for key in change.unconfirmed_schedules if await self._records.is_disarmed(key)]
        await self._delete_unshared({*change.inserted_schedules, *doubtful})
        change.inserted_schedules, change.unconfirmed_schedules = [], []

    async def remove(self, change: PackageChange) -> None:
        await self._delete_unshared(set(change.removed_schedules))

    async def _delete_unshared(self, keys: set[ScheduleKey]) -> None:
        """Delete rows, but for those of other nodes: whoever is the last to have a schedule takes its row away."""
        if keys:
            await self._schedules.delete(sorted(keys - await self._records.schedules_of_other_nodes()))


class TriggersStep(DeployStep):
    """The declarations of a package's triggers."""

    title = "triggers"
    awaits_author_code = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        for trigger in change.after.triggers:
            self._registry.add_trigger(change.tenant, trigger)

    async def roll_back(self, change: PackageChange) -> None:
        for name, held in change.previous_triggers.items():
            if held is None:
                self._registry.drop_trigger(change.tenant, name)
            else:
                self._registry.add_trigger(change.tenant, held)

    async def remove(self, change: PackageChange) -> None:
        for name in change.removed_triggers:
            self._registry.drop_trigger(change.tenant, name)


class ReactorsStep(DeployStep):
    """What runs for a package's reactors."""

    title = "reactors"
    awaits_author_code = True

    def __init__(self, scheduler: GraphScheduler, registry: Registry) -> None:
        self._scheduler = scheduler
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        if change.staged is not None:
            await self._scheduler.start_reactors(change.staged)

    async def roll_back(self, change: PackageChange) -> None:
        staged = change.staged
        if staged is None:
            return
        for name, managed in staged.added_reactors.items():
            if self._scheduler.is_loaded(change.tenant, managed.reactor.definition):
                await self._scheduler.unload_reactor(change.tenant, name, frozenset(managed.subscribers))
        await self._restore_reactors(change, set(staged.removed_reactors))

    async def _restore_reactors(self, change: PackageChange, removed: set[str]) -> None:
        """Let reactors of the version before come up again, with the graphs that were bound to them."""
        if not removed:
            return
        tenant = change.tenant
        back = removed.intersection(self._registry.reactors(tenant))  # they never left, or an earlier try came that far
        keys = {(tenant, name) for name in removed}
        graphs = tuple(one for one in change.before.graphs if reactor_key(one, tenant) in keys)
        offer = GraphChange(
            tenant=tenant,
            reactors=tuple(one for one in change.before.reactors if one.name in removed),
            graphs=graphs,
            previous=PackageState(reactors=tuple(sorted(back)), graphs=tuple(one.name for one in graphs)),
            shared=change.before.shared & removed,
        )
        staged = self._scheduler.stage(offer)
        await self._scheduler.start_reactors(staged)
        await self._scheduler.rebind(staged)
        self._scheduler.activate()

    async def remove(self, change: PackageChange) -> None:
        """A version that comes has let those leave that it does not go on with: only an unload finds any here."""
        kept = {one.name for one in change.after.reactors}
        loaded = set(self._registry.reactors(change.tenant))
        for name in [one.name for one in change.before.reactors if one.name not in kept and one.name in loaded]:
            await self._scheduler.unload_reactor(change.tenant, name)


class TriggerlessGraphsStep(DeployStep):
    """The declarations of a package's graphs that are only called."""

    title = "graphs without a reactor"
    awaits_author_code = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def apply(self, change: PackageChange) -> None:
        for graph in change.after.triggerless:
            self._registry.add_graph(change.tenant, graph)

    async def roll_back(self, change: PackageChange) -> None:
        for name, held in change.previous_graphs.items():
            if held is None:
                self._registry.drop_graph(change.tenant, name)
            else:
                self._registry.add_graph(change.tenant, held)

    async def remove(self, change: PackageChange) -> None:
        kept = {one.name for one in (*change.after.triggerless, *change.after.graphs)}
        for graph in change.before.triggerless:
            if graph.name not in kept:
                self._registry.drop_graph(change.tenant, graph.name)


class GraphBindingsStep(DeployStep):
    """The bindings of a package's graphs."""

    title = "graphs of reactors"
    awaits_author_code = True

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler

    async def apply(self, change: PackageChange) -> None:
        if change.staged is not None:
            await self._scheduler.rebind(change.staged)

    async def roll_back(self, change: PackageChange) -> None:
        """Let what went on go on as it was; the graphs of reactors that left come back with these, in step 3."""
        left = set() if change.staged is None else set(change.staged.removed_reactors)
        reactors = tuple(one for one in change.before.reactors if one.name not in left)
        gone = {(change.tenant, name) for name in left}
        graphs = tuple(one for one in change.before.graphs if reactor_key(one, change.tenant) not in gone)
        if reactors or graphs:
            names = dict.fromkeys(one.name for one in (*change.before.graphs, *change.after.graphs))
            now = PackageState(reactors=tuple(one.name for one in reactors), graphs=tuple(names))
            shared = change.before.shared - left
            offer = GraphChange(tenant=change.tenant, reactors=reactors, graphs=graphs, previous=now, shared=shared)
            await self._scheduler.rebind(self._scheduler.stage(offer))
        back = {one.name for one in graphs}
        for graph in change.after.graphs:
            if graph.name not in back:
                self._scheduler.unbind_graph(change.tenant, graph.name)

    async def remove(self, change: PackageChange) -> None:
        kept = {one.name for one in (*change.after.triggerless, *change.after.graphs)}
        for graph in change.before.graphs:
            if graph.name not in kept:
                self._scheduler.unbind_graph(change.tenant, graph.name)


class WorkflowLoader(Protocol):
    """The engine that runs workflows, as far as loading is concerned. Workflows are wired, and their graphs known."""

    def check(self, workflow: Workflow) -> None:
        """Raise a DefinitionError if it names a pool or an executor that there is not; changes nothing."""

    async def activate(self, tenant: str, workflow: Workflow) -> None:
        """Run a workflow from now on, in place of one of its name; if it raises, nothing has changed.

        Its triggers are in the registry by then. Reactors whose firings start it may come later, and may go.
        """

    async def deactivate(self, tenant: str, name: str) -> None:
        """Start no more runs of a workflow; what runs goes on. One that is not there is no error."""

    def hold_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at no slot of these workflows: it is not certain which version of them stays."""

    def release_schedules(self, tenant: str, workflows: Iterable[str]) -> None:
        """Look at the schedules of these workflows again, and which of them are armed by now."""


class WorkflowsStep(DeployStep):
    """The workflows of a package, and those of others that call newer versions of its graphs."""

    title = "workflows"
    awaits_author_code = False

    def __init__(self, engine: WorkflowLoader, registry: Registry, schedules: Schedules) -> None:
        self._engine = engine
        self._registry = registry
        self._schedules = schedules

    async def apply(self, change: PackageChange) -> None:
        self._engine.hold_schedules(change.tenant, change.previous_workflows)
        for workflow in (*change.workflows, *change.rebound_callers):
            await self._activate(change.tenant, workflow)
        if keys := change.after.schedule_keys(change.tenant):
            await self._schedules.arm(keys)

    async def roll_back(self, change: PackageChange) -> None:
        await self._restore_previous(change)
        self._engine.release_schedules(change.tenant, change.previous_workflows)

    async def _restore_previous(self, change: PackageChange) -> None:
        for name, held in change.previous_workflows.items():
            if self._registry.workflow(change.tenant, name) is held:
                continue
            if held is None:
                await self._deactivate(change.tenant, name)
            else:
                await self._activate(change.tenant, held)

    async def remove(self, change: PackageChange) -> None:
        """The version that came stays from here on, and its slots get their runs."""
        for name in change.removed_workflows:
            await self._deactivate(change.tenant, name)
        self._engine.release_schedules(change.tenant, change.previous_workflows)

    async def _activate(self, tenant: str, workflow: Workflow) -> None:
        await self._engine.activate(tenant, workflow)
        self._registry.add_workflow(tenant, workflow)

    async def _deactivate(self, tenant: str, name: str) -> None:
        await self._engine.deactivate(tenant, name)
        self._registry.drop_workflow(tenant, name)
