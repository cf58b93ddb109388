"""The catalog: the workflows of a tenant as they are declared, their versions, schedules and triggers.

Declarations are those that this node has loaded. Of other workflows, the catalog knows what the store has.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from tidemill.access.principal import Caller
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions, about_workflow, find_readable_spec
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.limits import is_storable
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.run_lists import LATEST, WorkflowActivity
from tidemill.storage.tables.schedules import ScheduleCursor, ScheduleKey
from tidemill.storage.tables.versions import LoadedVersion, WorkflowAbout, WorkflowVersion
from tidemill.workflows.definition import Trigger
from tidemill.workflows.firing_trigger import FiringTrigger
from tidemill.workflows.handlers import read_handled
from tidemill.workflows.lookup import quote_name
from tidemill.workflows.records import VersionKey
from tidemill.workflows.schedule import Schedule
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.workflow import Workflow


class CatalogEntry(NamedTuple):
    """A workflow that the store knows."""

    name: str
    versions: list[WorkflowVersion]
    """The one that was loaded last is the last one."""
    workflow: Workflow | None
    """Its declaration, if it is loaded here."""
    is_paused: bool

    @property
    def version(self) -> str:
        """The version that new runs get here, else the one that was loaded last."""
        return self.versions[-1].key.version if self.workflow is None else self.workflow.wired().spec.version

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags as they were loaded last, here or on another node."""
        return self.versions[-1].tags if self.workflow is None else self.workflow.tags

    @property
    def handles(self) -> str | None:
        """The workflow whose ends its tasks handle; None if it is one that an author declared."""
        if self.workflow is not None:
            return self.workflow.handled
        return read_handled(self.versions[-1].spec)

    @property
    def about(self) -> WorkflowAbout:
        """The owners and descriptions, as they were loaded last, here or on another node."""
        return self.versions[-1].about if self.workflow is None else about_workflow(self.workflow)


class WatchedSchedule(NamedTuple):
    """A schedule, and how far it was processed."""

    workflow: str
    schedule: Schedule
    cursor: ScheduleCursor | None
    is_paused: bool
    """Whether its workflow is paused."""

    def next_slots(self, now: datetime, count: int) -> list[datetime]:
        """Return its next slots."""
        return list(islice(self.schedule.slots(now, LATEST), count))


class TriggerEntry(NamedTuple):
    """A trigger that workflows name, or the subscription of one workflow to a reactor or a node."""

    name: str
    trigger: Trigger | FiringTrigger | None
    """None if no trigger of that name is loaded."""
    workflows: list[str]
    is_paused: bool


class WorkflowFacts(NamedTuple):
    """A workflow with everything that is known about it."""

    entry: CatalogEntry
    spec: WorkflowSpec | None
    """None if it can no longer be read."""
    loaded: list[LoadedVersion]
    """Its versions on the nodes of the store."""
    activity: WorkflowActivity
    schedules: list[WatchedSchedule]
    triggers: list[TriggerEntry]


class WorkflowCatalog:
    """Reads the workflows of a tenant, and pauses them and their triggers."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        leader: LeaderState,
        find_trigger: Callable[[str, str], Trigger | None],
        *,
        is_node: bool,
    ) -> None:
        self._store = runtime.store
        self.now = runtime.clock.now
        self._is_node = is_node
        self._versions = versions
        self._leader = leader
        self._find_trigger = find_trigger

    # -- workflows

    async def entries(self, caller: Caller) -> list[CatalogEntry]:
        """Return the workflows of the tenant, by name."""
        paused = await self._store.schedules.list_paused_workflows()
        by_name: dict[str, list[WorkflowVersion]] = {}
        for version in await self._store.versions.for_tenant(caller.tenant):
            by_name.setdefault(version.key.workflow, []).append(version)
        return [
            CatalogEntry(name, versions, self._current(caller, name), (caller.tenant, name) in paused)
            for name, versions in sorted(by_name.items())
        ]

    async def names_with_tag(self, caller: Caller, tag: str) -> set[str]:
        """Return the names of the workflows with a tag."""
        return {entry.name for entry in await self.entries(caller) if tag in entry.tags}

    def _current(self, caller: Caller, name: str) -> Workflow | None:
        key = self._versions.current.get((caller.tenant, name))
        return None if key is None else self._versions.loaded.get(key)

    async def read_activity(
        self, caller: Caller, names: Collection[str], *, recent: int = 1
    ) -> dict[str, WorkflowActivity]:
        """Return what some workflows do."""
        return await self._store.runs.read_activity(caller.tenant, names, recent=recent)

    async def describe(self, caller: Caller, name: str) -> WorkflowFacts:
        """Return everything about a workflow; NotFoundError if the tenant has none of that name."""
        entry = await self._find(caller, name)
        key = VersionKey(caller.tenant, name, entry.version)
        loaded = [one for one in await self._store.versions.list_loaded() if one.key[:2] == key[:2]]
        return WorkflowFacts(
            entry=entry,
            spec=await find_readable_spec(self._versions, key),
            loaded=loaded,
            activity=(await self.read_activity(caller, [name]))[name],
            schedules=await self.schedules_of(caller, [entry]),
            triggers=[one for one in await self.triggers(caller) if name in one.workflows],
        )

    async def read_spec(self, caller: Caller, name: str) -> WorkflowSpec | None:
        """Return the structure of the version that new runs get; None if it can no longer be read."""
        entry = await self._find(caller, name)
        return await find_readable_spec(self._versions, VersionKey(caller.tenant, name, entry.version))

    async def _find(self, caller: Caller, name: str) -> CatalogEntry:
        entries = {entry.name: entry for entry in await self.entries(caller)}
        if name not in entries:
            message = f"there is no workflow {quote_name(name)}{did_you_mean(name, entries)}"
            raise NotFoundError("workflow", name, message, entries)
        return entries[name]

    async def get_version(self, caller: Caller, name: str, version: str) -> WorkflowVersion:
        """Return a stored version with its source; NotFoundError if there is none."""
        entry = await self._find(caller, name)
        key = VersionKey(caller.tenant, name, version)
        stored = await self._store.versions.get(key) if is_storable(version) else None
        if stored is None:
            known = [one.key.version for one in entry.versions]
            message = f"workflow '{name}' has no version {quote_name(version)}{did_you_mean(version, known)}"
            raise NotFoundError("version", version, message, known)
        return stored

    # -- pauses

    async def pause(self, caller: Caller, workflow: str) -> None:
        """Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue."""
        await self._check_known(caller, workflow)
        await self._store.schedules.pause(caller.tenant, workflow)
        await self._apply_pauses()

    async def resume(self, caller: Caller, workflow: str) -> None:
        """Resume a paused workflow; slots that passed meanwhile get no run."""
        await self._check_known(caller, workflow)
        await self._store.schedules.resume(caller.tenant, workflow, self.now())
        await self._apply_pauses()

    async def _apply_pauses(self) -> None:
        """Apply the stored pauses on this node immediately; a leader on another node reads them with its next tick."""
        if self._leader.coordinator is not None:
            self._leader.coordinator.apply_pauses(await self._store.schedules.list_paused_workflows())
        if self._leader.scheduler is not None:
            self._leader.scheduler.wake()

    async def _check_known(self, caller: Caller, workflow: str) -> None:
        """Raise a RequestError unless the node has loaded a workflow, or the store knows it."""
        if (caller.tenant, workflow) in self._versions.current:
            return
        known = [entry.name for entry in await self.entries(caller)]
        if workflow not in known and self._is_node:
            raise self._versions.not_loaded_error(caller.tenant, workflow)
        if workflow not in known:
            message = f"the store knows no workflow '{workflow}'{did_you_mean(workflow, known)}"
            raise NotFoundError("workflow", workflow, message, known)

    # -- schedules

    async def schedules(self, caller: Caller) -> list[WatchedSchedule]:
        """Return the schedules of the loaded workflows, by workflow and key."""
        return await self.schedules_of(caller, await self.entries(caller))

    async def schedules_of(self, caller: Caller, entries: Collection[CatalogEntry]) -> list[WatchedSchedule]:
        """Return the schedules of some workflows, by workflow and key."""
        declared = [(one, each) for one in entries if one.workflow for each in one.workflow.schedules]
        cursors = {one.schedule: one for one in await self._store.schedules.list_cursors(caller.tenant)}
        return [
            WatchedSchedule(
                workflow=entry.name,
                schedule=schedule,
                cursor=cursors.get(ScheduleKey(caller.tenant, entry.name, schedule.key)),
                is_paused=entry.is_paused,
            )
            for entry, schedule in sorted(declared, key=lambda one: (one[0].name, one[1].key))
        ]

    # -- triggers

    async def triggers(self, caller: Caller) -> list[TriggerEntry]:
        """Return the triggers of the loaded workflows, by name."""
        paused = await self._store.schedules.list_paused_triggers()
        found: dict[str, TriggerEntry] = {}
        for version, workflow in self._versions.current_workflows():
            for reference in workflow.triggers if version.tenant == caller.tenant else ():
                name = _trigger_name(workflow, reference)
                trigger = self._find_trigger(caller.tenant, name) if isinstance(reference, str) else reference
                is_paused = (caller.tenant, name) in paused
                known = found.setdefault(name, TriggerEntry(name, trigger, [], is_paused))
                known.workflows.append(workflow.name)
        return sorted(found.values(), key=lambda one: one.name)

    async def set_trigger_paused(self, caller: Caller, name: str, *, paused: bool) -> TriggerEntry:
        """Pause or resume a trigger: while it is paused, the leader does not poll it."""
        known = {one.name: one for one in await self.triggers(caller)}
        if name not in known:
            message = f"no loaded workflow has a trigger {quote_name(name)}{did_you_mean(name, known)}"
            raise NotFoundError("trigger", name, message, known)
        if not isinstance(known[name].trigger, Trigger):
            message = f"'{name}' is not a polled trigger: pause the workflow '{known[name].workflows[0]}' instead"
            raise RequestError(message, code="not_pausable", status=409, trigger=name)
        schedules = self._store.schedules
        await (schedules.pause_trigger if paused else schedules.resume_trigger)(caller.tenant, name)
        if self._leader.scheduler is not None:  # a leader on another node reads it with its next tick
            await self._leader.scheduler.refresh_due_work()
        return known[name]._replace(is_paused=paused)


def _trigger_name(workflow: Workflow, reference: Trigger | FiringTrigger | str) -> str:
    """Return the name of a trigger; a subscription is named after its workflow and what it subscribes to."""
    if isinstance(reference, FiringTrigger):
        return f"{workflow.name}:{reference.kind}:{reference.subject}"
    return reference if isinstance(reference, str) else reference.name
