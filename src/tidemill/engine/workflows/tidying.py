"""Tidying: versions of workflows that are not current, and that no active run needs, are forgotten."""

from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.operations import active_states
from tidemill.storage.run_ports import RunFilter

_MANY = 1000  # active runs of one workflow: of which versions they are is then not asked any further


class Tidying:
    """Asks the store what is still needed of the library."""

    def __init__(self, environment: Environment, library: Library, crew: Crew) -> None:
        self._runs = environment.store.runs
        self._library = library
        self._crew = crew

    async def tidy(self) -> None:
        """Forget the versions of workflows that no run needs any more."""
        old = self._library.superseded()
        needed = {held.run.version_key for held in self._crew.held.values()}
        for tenant, workflow in {(version.tenant, version.workflow) for version in old}:
            wanted = RunFilter(tenant=tenant, workflow=workflow, states=active_states(), limit=_MANY)
            active = await self._runs.find(wanted)
            needed |= old if len(active) == _MANY else {run.version_key for run in active}
        self._library.forget(old - needed)
