"""The workflows of a store without a node: to look at and to command from elsewhere, for whoever runs them to see."""

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.backfilling import Backfilling
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.figures import Figures
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.operations import Operations
from tidemill.engine.workflows.owners import HostLiveness, this_process
from tidemill.engine.workflows.starting import Starter
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.kernel.storable import is_storable
from tidemill.storage.run_ports import RunFilter, WorkflowStore
from tidemill.workflows.naming import unknown_run

SEARCHED = 10_000  # runs among which one is looked for by a part of its id


class Control:
    """Everything about workflows that needs a store and nothing else."""

    def __init__(self, store: WorkflowStore, clock: Clock, settings: Settings, *, actor: str, executor: str) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.library = Library(store.versions, clock)
        liveness = HostLiveness()
        self.operations = Operations(store, self.library, clock, actor=actor, liveness=liveness)
        environment = Environment(
            store=store,
            owner=this_process(clock.now()),
            clock=clock,
            settings=settings,
            figures=Figures(),
            tasks=Tasks(),
            liveness=liveness,
            executor=executor,
            pools={},
            is_alone=False,
        )
        self.backfilling = Backfilling(environment, Starter(environment, self.library), self.operations)

    async def run_id(self, part: str, tenant: str) -> str:
        """Return the id of a run from its id, or from so much of its beginning or end that only one has it."""
        if not is_storable(part):
            raise unknown_run(part)
        if await self.store.runs.load([part]):
            return part
        rows = await self.store.runs.find(RunFilter(tenant=tenant, limit=SEARCHED))
        found = [row.id for row in rows if part and (row.id.startswith(part) or row.id.endswith(part))]
        if len(found) == 1:
            return found[0]
        if not found:
            raise unknown_run(part)
        message = f"{len(found)} runs have an id that begins or ends with '{part}': give more of it"
        raise RequestError(message, code="ambiguous_run", status=409, run=part)
