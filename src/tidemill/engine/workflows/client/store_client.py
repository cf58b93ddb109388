"""Makes a workflow client on a store without a node: the nodes on the store pick up its changes."""

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.process_identity import HostLiveness, current_owner
from tidemill.engine.workflows.runtime import PoolSizes, StoreSharing, WorkflowRuntime
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.telemetry.node_events import NodeEvents

EXECUTOR_NAMES = (InProcess.name, Subprocess.name)
"""The executors that every node has."""


def make_store_client(store: WorkflowStore, clock: Clock, settings: Settings, *, executor: str) -> WorkflowClient:
    """Return a workflow client on an open store; `executor` runs the tasks that name none."""
    runtime = WorkflowRuntime(
        store=store,
        owner=current_owner(clock.now()),
        clock=clock,
        settings=settings,
        metrics=WorkflowMetrics(settings.metric_series),
        node_events=NodeEvents(clock),
        tasks=TaskScope(),
        liveness=HostLiveness(),
        default_executor=executor,
        pools=PoolSizes(store.pools),
        sharing=StoreSharing(is_shared=True),
    )
    versions, leader = WorkflowVersions(store.versions, clock), LeaderState(RunNotifier())
    starter = RunStarter(runtime, versions, leader)
    return WorkflowClient(runtime, versions, leader, starter, is_node=False)
