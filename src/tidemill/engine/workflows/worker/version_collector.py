"""Tidying: versions of workflows that are not current, and that no active run needs, are forgotten."""

from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.storage.workflow_ports import RunFilter
from tidemill.workflows.states import active_states

_ACTIVE_RUN_LIMIT = 1000  # active runs of one workflow: of which versions they are is then not asked any further


class VersionCollector:
    """Asks the store what is still needed of the library."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, attempts: LocalAttempts) -> None:
        self._runs = runtime.store.runs
        self._versions = versions
        self._attempts = attempts

    async def collect(self) -> None:
        """Forget the versions of workflows that no run needs any more."""
        old = self._versions.superseded()
        needed = {held.run.version_key for held in self._attempts.claimed.values()}
        for tenant, workflow in {(version.tenant, version.workflow) for version in old}:
            wanted = RunFilter(tenant=tenant, workflow=workflow, states=active_states(), limit=_ACTIVE_RUN_LIMIT)
            active = await self._runs.find(wanted)
            needed |= old if len(active) == _ACTIVE_RUN_LIMIT else {run.version_key for run in active}
        self._versions.discard(old - needed)
