"""What every part of the workflow engine shares on one node: time, settings, store, figures, tasks, and who we are."""

from collections.abc import Callable, Collection, Mapping
from random import Random

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.metrics import WorkflowMetrics
from tidemill.engine.workflows.process_identity import ProcessLiveness
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Owner, WorkflowStore
from tidemill.workflows.spec import TaskSpec

STORE_RETRY = Backoff(0.05, 1.0)
"""How long to wait for a store that failed before it is asked again."""


class WorkflowRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of the workflow engine on one node."""

    store: WorkflowStore
    owner: Owner
    clock: Clock
    settings: Settings
    metrics: WorkflowMetrics
    tasks: TaskScope
    liveness: ProcessLiveness
    default_executor: str
    """Where tasks run that do not say."""
    pools: Mapping[str, int]
    is_single_node: bool
    """Whether nobody else can change what is stored."""
    served_executors: Collection[str] | None = None
    """The executors that tasks may name, if for all others the node's own stands in; None if none does."""
    make_heartbeat_store: Callable[[], Store] | None = None
    """Makes another store of the same address, not opened yet; None if nobody else could claim what is held here."""
    rng: Random = msgspec.field(default_factory=Random)
    """Where the jitter of retries comes from."""

    def executor_for(self, task: TaskSpec) -> str:
        """Return where a task runs: at the executor that it names, or at the node's own."""
        named = task.executor
        return (
            self.default_executor
            if named is None or (self.served_executors is not None and named not in self.served_executors)
            else named
        )
