"""The workflows that this node can run, in every version that a run may still need."""

from collections.abc import Callable

import msgspec

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.storage.workflow_ports import Versions, WorkflowVersion
from tidemill.workflows.records import VersionKey
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.workflow import Workflow


class WorkflowVersions:
    """The current version of each workflow, by tenant and name, and older versions that are still needed."""

    def __init__(self, versions: Versions, clock: Clock) -> None:
        self._version_store = versions
        self._clock = clock
        self._current: dict[tuple[str, str], VersionKey] = {}
        self._loaded: dict[VersionKey, Workflow] = {}
        self._specs: dict[VersionKey, WorkflowSpec] = {}
        self.schedules_on_hold: set[tuple[str, str]] = set()
        """Workflows that are being exchanged: until it is certain which version stays, no slot is looked at."""
        self.on_collected: Callable[[], None] = lambda: None
        """Called when code was forgotten."""

    async def set_current(self, tenant: str, workflow: Workflow) -> VersionKey:
        """Make a workflow the one of its name; runs of the version before go on with that."""
        spec = workflow.wired().spec
        key = VersionKey(tenant, workflow.name, spec.version)
        encoded = msgspec.json.encode(spec)
        await self._version_store.upsert(WorkflowVersion(key=key, spec=encoded, seen_at=self._clock.now()))
        self._loaded[key] = workflow
        self._specs[key] = spec
        self._current[tenant, workflow.name] = key
        return key

    def remove_current(self, tenant: str, name: str) -> None:
        """Let no new run begin; its versions stay until `forget`."""
        self._current.pop((tenant, name), None)

    def discard(self, versions: set[VersionKey]) -> None:
        """Forget versions that nobody needs; one that is current by now stays.

        Whoever calls asked for those that were superseded first, and then who needs them: a version that was superseded
        since may have a run that was not asked about.
        """
        gone = versions - set(self._current.values())
        is_less = not gone.isdisjoint(self._loaded)
        for key in gone:
            self._loaded.pop(key, None)
            self._specs.pop(key, None)
        if is_less:
            self.on_collected()

    def superseded(self) -> set[VersionKey]:
        """Return the versions that are known here, but not current: only runs that have begun may need them."""
        return (self._loaded.keys() | self._specs.keys()) - set(self._current.values())

    def current_version(self, tenant: str, name: str) -> VersionKey | None:
        """Return the version that new runs get."""
        return self._current.get((tenant, name))

    def current_workflows(self) -> list[tuple[VersionKey, Workflow]]:
        """Return every loaded workflow in its current version."""
        return [(key, self._loaded[key]) for key in self._current.values()]

    def find_workflow(self, key: VersionKey) -> Workflow | None:
        """Return the code of a version, if it is loaded here."""
        return self._loaded.get(key)

    def require_workflow(self, tenant: str, name: str, version: str) -> Workflow:
        """Return the code of a version; OperationError if it is not loaded here."""
        found = self._loaded.get(VersionKey(tenant, name, version))
        if found is None:
            raise OperationError(f"version {version} of workflow '{name}' is not loaded here")
        return found

    def loaded_workflows(self, tenant: str) -> list[Workflow]:
        """Return the code of a tenant's workflows, in every version that is loaded here."""
        return [workflow for key, workflow in self._loaded.items() if key.tenant == tenant]

    def loaded_versions(self) -> list[VersionKey]:
        """Return every version whose code is loaded here."""
        return list(self._loaded)

    async def load_spec(self, key: VersionKey) -> WorkflowSpec:
        """Return the structure of a version, also of one that is not loaded here."""
        if key not in self._specs:
            version = await self._version_store.get(key)
            if version is None:
                raise OperationError(f"version {key.version} of workflow '{key.workflow}' is not in the store")
            try:
                self._specs[key] = msgspec.json.decode(version.spec, type=WorkflowSpec)
            except msgspec.DecodeError as error:
                message = f"version {key.version} of workflow '{key.workflow}' cannot be read: {error}"
                raise OperationError(message) from error
        return self._specs[key]
