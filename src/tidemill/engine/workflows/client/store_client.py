"""The workflows of a store without a node: to look at and to command from elsewhere, for whoever runs them to see."""

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.client.backfills import BackfillRunner
from tidemill.engine.workflows.client.operations import RunOperations
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.process_identity import HostLiveness, current_owner
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import is_storable
from tidemill.kernel.settings import Settings
from tidemill.storage.workflow_ports import RunFilter, WorkflowStore
from tidemill.workflows.lookup import unknown_run

SEARCH_LIMIT = 10_000  # runs among which one is looked for by a part of its id


class StoreClient:
    """Everything about workflows that needs a store and nothing else."""

    def __init__(self, store: WorkflowStore, clock: Clock, settings: Settings, *, actor: str, executor: str) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.versions = WorkflowVersions(store.versions, clock)
        liveness = HostLiveness()
        self.operations = RunOperations(store, self.versions, clock, actor=actor, liveness=liveness)
        environment = WorkflowRuntime(
            store=store,
            owner=current_owner(clock.now()),
            clock=clock,
            settings=settings,
            metrics=WorkflowMetrics(),
            tasks=TaskScope(),
            liveness=liveness,
            default_executor=executor,
            pools={},
            is_single_node=False,
        )
        self.backfills = BackfillRunner(environment, RunStarter(environment, self.versions), self.operations)

    async def resolve_run_id(self, part: str, tenant: str) -> str:
        """Return the id of a run from its id, or from so much of its beginning or end that only one has it."""
        if not is_storable(part):
            raise unknown_run(part)
        if await self.store.runs.load([part]):
            return part
        rows = await self.store.runs.find(RunFilter(tenant=tenant, limit=SEARCH_LIMIT))
        found = [row.id for row in rows if part and (row.id.startswith(part) or row.id.endswith(part))]
        if len(found) == 1:
            return found[0]
        if not found:
            raise unknown_run(part)
        message = f"{len(found)} runs have an id that begins or ends with '{part}': give more of it"
        raise RequestError(message, code="ambiguous_run", status=409, run=part)
