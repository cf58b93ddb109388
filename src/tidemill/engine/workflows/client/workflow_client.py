"""The workflow client: everything that a node, the CLI or a server does with workflows and runs, one object per noun.

A client is built on a node, where it uses what the node knows, or on a bare store, where the leader picks up its
changes. Methods about workflows and runs take the caller first, and see only what belongs to the caller's tenant.
"""

from collections.abc import Callable
from datetime import datetime

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.backfills import BackfillRunner
from tidemill.engine.workflows.client.calendar import CalendarEntries, read_calendar
from tidemill.engine.workflows.client.catalog import WorkflowCatalog
from tidemill.engine.workflows.client.changes import RunChanges
from tidemill.engine.workflows.client.explainer import RunExplainer
from tidemill.engine.workflows.client.nodes import StoreNodes
from tidemill.engine.workflows.client.overview import WorkflowOverview, read_overview
from tidemill.engine.workflows.client.pool_operations import PoolOperations
from tidemill.engine.workflows.client.runs import RunReader
from tidemill.engine.workflows.client.wait_operations import WaitOperations
from tidemill.engine.workflows.client.waiting import WaitingWork, find_waiting
from tidemill.engine.workflows.client.watcher import RunWatcher
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.versions import WorkflowVersions, read_loaded_code
from tidemill.workflows.definition import Trigger


class WorkflowClient:
    """The objects that read and change the workflows and runs of a store."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        leader: LeaderState,
        starter: RunStarter,
        *,
        is_node: bool,
        find_trigger: Callable[[str, str], Trigger | None] = lambda tenant, name: None,  # noqa: ARG005
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self.catalog = WorkflowCatalog(runtime, versions, leader, find_trigger, is_node=is_node)
        self.runs = RunReader(runtime, versions, leader, self.catalog)
        self.changes = RunChanges(runtime, versions, leader, starter, self.runs)
        self.explainer = RunExplainer(runtime, versions, leader, self.runs)
        self.watcher = RunWatcher(runtime, leader, self.runs, is_node=is_node)
        self.backfills = BackfillRunner(runtime, versions, starter, self.changes)
        self.pools = PoolOperations(runtime, versions, leader)
        self.waits = WaitOperations(runtime, leader, self.runs.load_record)
        self.nodes = StoreNodes(runtime, leader)

    async def overview(self, caller: Caller) -> WorkflowOverview:
        """Return what the workflows of the tenant do: what runs, fails, is late, and comes next."""
        return await read_overview(self.catalog, self._store.runs, caller)

    async def waiting(self, caller: Caller) -> list[WaitingWork]:
        """Return what has waited for long for code, a pool, a worker, a slot or an answer; the longest first."""
        code = await read_loaded_code(self._store, self._runtime.liveness)
        return await find_waiting(self._store.runs, caller.tenant, code.loaded, self._clock.now())

    async def calendar(self, caller: Caller, start: datetime, end: datetime) -> CalendarEntries:
        """Return the slots of all schedules of the tenant in [start, end]."""
        return await read_calendar(self.catalog, self._store.runs, caller, start, end)
