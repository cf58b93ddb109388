"""The workflow versions that this node can run: the current one of each workflow, and those that runs still need.

Other nodes have versions too: the store lists those that are loaded on any node.
"""

import linecache
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.about import About
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, OperationError, RequestError, StoreError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.tables.versions import NO_ARCHIVE, CodeArchive, Versions, WorkflowAbout, WorkflowVersion
from tidemill.storage.workflow_ports import RunFilter, Runs, WorkflowStore
from tidemill.workflows.clearing import VersionSwitch
from tidemill.workflows.handlers import handler_versions
from tidemill.workflows.records import RunRecord, VersionKey
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import active_states
from tidemill.workflows.unfinished import missing_code_note, missing_tasks, waits_for_code
from tidemill.workflows.workflow import Workflow

_ACTIVE_RUN_LIMIT = 1000  # active runs of one workflow; with that many, all its versions count as needed


class OlderCode(Protocol):
    """Loads the code of older versions that unfinished runs need."""

    def request(self, key: VersionKey) -> str | None:
        """Load the code of a version soon, if possible; return why it is not, None if that is not known yet."""


def about_workflow(workflow: Workflow) -> WorkflowAbout:
    """Return the owners and descriptions of a workflow and its tasks."""
    tasks = {task.name: about for task in workflow.tasks if (about := task.about) != About()}
    return WorkflowAbout(workflow.about, tasks)


class WorkflowVersions:
    """The current version of each workflow, by tenant and name, and older versions that runs still need."""

    def __init__(
        self, versions: Versions, clock: Clock, owner: str | None = None, *, decides_newest: bool = True
    ) -> None:
        self.loaded: dict[VersionKey, Workflow] = {}
        """The code of every version that is loaded here."""
        self.current: dict[tuple[str, str], VersionKey] = {}
        """By tenant and workflow: the version that new runs get."""
        self.specs: dict[VersionKey, WorkflowSpec] = {}
        """The specs of all versions that were loaded or read."""
        self.starting: Counter[VersionKey] = Counter()
        """How many runs of each version are being created: the version stays, though no store knows of them yet."""
        self.schedules_on_hold: set[tuple[str, str]] = set()
        """Workflows that are being replaced: their slots wait until it is certain which version stays."""
        self._older_code: OlderCode | None = None
        self._listeners: list[Callable[[], None]] = []
        self._version_store = versions
        self._clock = clock
        self._owner = owner
        """The process under which the store records what is loaded here; None outside a node."""
        self._decides_newest = decides_newest
        """Whether a version counts as newer for all nodes because it was loaded here; not on a worker."""
        self._seen_at: dict[VersionKey, datetime] = {}
        """When each known version was last loaded, here or on the node that stored it."""

    def load_older_by(self, loader: OlderCode) -> None:
        """Let a loader load the older versions of published packages that runs need."""
        self._older_code = loader

    def request_older(self, key: VersionKey) -> str:
        """Ask for an older version that a run needs; return what is wrong with it, "" if nothing is known."""
        return "" if self._older_code is None else self._older_code.request(key) or ""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener when code was discarded."""
        self._listeners.append(listener)

    async def set_current(self, tenant: str, workflow: Workflow, archive: CodeArchive = NO_ARCHIVE) -> VersionKey:
        """Make a workflow the current one of its name; runs of the version before keep that version.

        `archive` is the published archive that it comes from.
        """
        spec = workflow.wired().spec
        key = VersionKey(tenant, workflow.name, spec.version)
        known = None if self._decides_newest else await self._version_store.get(key)
        seen_at = self._clock.now() if known is None else known.seen_at
        source = "".join(linecache.getlines(workflow.location.file))
        version = WorkflowVersion(
            key=key,
            spec=msgspec.json.encode(spec),
            seen_at=seen_at,
            source=source,
            tags=workflow.tags,
            archive=archive,
            about=about_workflow(workflow),
        )
        await self._version_store.upsert(version, self._owner)
        self._seen_at[key] = version.seen_at
        self.loaded[key] = workflow
        self.specs[key] = spec
        self.current[tenant, workflow.name] = key
        return key

    async def add_older(self, tenant: str, workflow: Workflow) -> VersionKey:
        """Keep a version for the runs that need it, without making it the current one of its name."""
        spec = workflow.wired().spec
        key = VersionKey(tenant, workflow.name, spec.version)
        if key not in self.loaded:
            if (known := await self._version_store.get(key)) is not None:
                self._seen_at[key] = known.seen_at
            if self._owner is not None:
                await self._version_store.add_older(self._owner, key)
            self.loaded[key], self.specs[key] = workflow, spec
        return key

    async def remove_current(self, tenant: str, name: str) -> None:
        """Let no new run start; the versions of the workflow stay until they are discarded."""
        if self.current.pop((tenant, name), None) is not None and self._owner is not None:
            await self._version_store.retire(self._owner, tenant, name)

    def superseded(self) -> set[VersionKey]:
        """Return the known versions that are not current, and of which no run is being created.

        Only existing runs may need them.
        """
        return (self.loaded.keys() | self.specs.keys()) - set(self.current.values()) - (+self.starting).keys()

    async def discard(self, versions: set[VersionKey]) -> None:
        """Discard versions that no run needs; one that has become current stays, as does one with a run in creation.

        The caller must read `superseded` before it determines which versions runs need: a version that was superseded
        later may have a run that the caller has not seen.
        """
        unused = versions - set(self.current.values()) - (+self.starting).keys()
        if unused:
            kept = self.specs.keys() - unused
            unused -= {one for key in kept for one in handler_versions(key.tenant, self.specs[key])}
        unloaded = unused & self.loaded.keys()
        for key in unused:
            self.loaded.pop(key, None)
            self._seen_at.pop(key, None)
            self.specs.pop(key, None)
            self.starting.pop(key, None)
        if unloaded:
            for listener in self._listeners:
                listener()
            if self._owner is not None:
                await self._version_store.unload(self._owner, unloaded)

    async def collect(self, runs: Runs, in_use: Collection[VersionKey]) -> None:
        """Discard superseded versions that neither an active run needs nor the caller has `in_use`."""
        superseded, needed = self.superseded(), set(in_use)
        for tenant, workflow in sorted({(version.tenant, version.workflow) for version in superseded}):
            run_filter = RunFilter(tenant=tenant, workflow=workflow, states=active_states(), limit=_ACTIVE_RUN_LIMIT)
            active = await runs.find(run_filter)
            needed |= superseded if len(active) == _ACTIVE_RUN_LIMIT else {run.version_key for run in active}
        await self.discard(superseded - needed)

    # -- lookup

    def current_workflows(self) -> list[tuple[VersionKey, Workflow]]:
        """Return every loaded workflow in its current version."""
        return [(key, self.loaded[key]) for key in self.current.values()]

    def require_current(self, tenant: str, name: str) -> Workflow:
        """Return the current version of a workflow; RequestError if none is loaded."""
        version = self.current.get((tenant, name))
        if version is None or version not in self.loaded:
            raise self.not_loaded_error(tenant, name)
        return self.loaded[version]

    def not_loaded_error(self, tenant: str, name: str) -> RequestError:
        """Return the error for a workflow of which no version is current, with the names of those that are."""
        known = [workflow.name for key, workflow in self.current_workflows() if key.tenant == tenant]
        there_are = f"; loaded: {', '.join(map(repr, sorted(known)))}" if known else "; none is"
        message = f"workflow '{name}' is not loaded{did_you_mean(name, known) or there_are}"
        return NotFoundError("workflow", name, message, known)

    def newer_version(self, key: VersionKey) -> VersionKey | None:
        """Return the version that new runs of the workflow get here, if it was loaded after this one; else None."""
        current = self.current.get((key.tenant, key.workflow))
        if current is None or current == key:
            return None
        seen_at = self._seen_at.get(key)
        return current if seen_at is None or seen_at <= self._seen_at[current] else None

    def find_workflow(self, key: VersionKey) -> Workflow | None:
        """Return the code of a version; None if it is not loaded here."""
        return self.loaded.get(key)

    async def find_archive(self, key: VersionKey) -> CodeArchive:
        """Return the published archive that has the code of a version."""
        version = None if key in self.loaded else await self._version_store.get(key)
        return NO_ARCHIVE if version is None else version.archive

    async def load_spec(self, key: VersionKey) -> WorkflowSpec:
        """Return the spec of a version, even of one that is not loaded here."""
        if key not in self.specs:
            version = await self._version_store.get(key)
            if version is None:
                raise OperationError(f"version {key.version} of workflow '{key.workflow}' is not in the store")
            self._seen_at[key] = version.seen_at
            try:
                self.specs[key] = msgspec.json.decode(version.spec, type=WorkflowSpec)
            except msgspec.DecodeError as error:
                message = f"version {key.version} of workflow '{key.workflow}' cannot be read: {error}"
                raise OperationError(message) from error
        return self.specs[key]


async def load_version_switch(
    store: WorkflowStore, versions: WorkflowVersions, record: RunRecord, newest: VersionKey
) -> VersionSwitch:
    """Read what the switch of a run to another version needs to know."""
    counters: dict[str, tuple[int, int]] = {}
    for attempt in await store.runs.read_attempts(record.run.id):
        last, number = counters.get(attempt.key.task, (0, 0))
        counters[attempt.key.task] = max(last, attempt.key.attempt), max(number, attempt.number)
    return VersionSwitch(
        record=record,
        version=newest.version,
        new_spec=await versions.load_spec(newest),
        old_spec=await find_readable_spec(versions, record.run.version_key),
        attempt_counters=counters,
    )


async def find_readable_spec(versions: WorkflowVersions, key: VersionKey) -> WorkflowSpec | None:
    """Return the spec of a version; None if it is not stored, or can no longer be read."""
    try:
        return await versions.load_spec(key)
    except StoreError:
        raise
    except OperationError:
        return None


async def find_code_problem(versions: WorkflowVersions, key: VersionKey) -> str:
    """Return why the code of a version is not loaded from the registry; "" if it was not published there."""
    archive = await versions.find_archive(key)
    if not archive.digest:
        return ""
    return versions.request_older(key) or f"it is that of {archive.package} {archive.version}"


class LoadedCode(NamedTuple):
    """The versions that nodes which may be alive have loaded."""

    loaded: Collection[VersionKey]
    current: Collection[VersionKey]
    """Those of them that new runs get on some node."""
    live_nodes: int


async def read_loaded_code(store: WorkflowStore, liveness: ProcessLiveness) -> LoadedCode:
    """Read which code is loaded. A node of another host counts as alive until its row is deleted: do no harm.

    Workers do not count: a run needs a node that plans it. Versions are read before nodes: a node that registers
    between the two reads has none of these.
    """
    versions = await store.versions.list_loaded()
    owners = await store.owners.list_all()
    alive = {owner.id for owner in owners if owner.plans and not liveness.is_dead(owner)}
    held = [version for version in versions if version.owner in alive]
    current = {version.key for version in held if version.is_current}
    return LoadedCode({version.key for version in held}, current, len(alive))


def code_note(
    record: RunRecord, code: LoadedCode, newest: VersionKey, spec: WorkflowSpec | None, problem: str = ""
) -> str | None:
    """Return what to do about a run that waits for code that no node has; None if it does not.

    `spec` is the structure of the newest version, if it can be read; `problem` says why the code is not loaded.
    """
    has_code = record.run.version_key in code.loaded or newest == record.run.version_key
    if not waits_for_code(record, has_code=has_code):
        return None
    return missing_code_note(record.run, newest.version, [] if spec is None else missing_tasks(record, spec), problem)
