"""What every part of the workflow engine shares on one node: time, settings, store, figures, tasks, and who we are."""

from collections.abc import Callable, Collection, Mapping
from random import Random

import msgspec

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.figures import Figures
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.ports import Store
from tidemill.storage.run_ports import Owner, WorkflowStore
from tidemill.workflows.spec import TaskSpec

STORE_RETRY = Backoff(0.05, 1.0)
"""How long to wait for a store that failed before it is asked again."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of the workflow engine on one node."""

    store: WorkflowStore
    owner: Owner
    clock: Clock
    settings: Settings
    figures: Figures
    tasks: Tasks
    liveness: Liveness
    executor: str
    """Where tasks run that do not say."""
    pools: Mapping[str, int]
    is_alone: bool
    """Whether nobody else can change what is stored."""
    served: Collection[str] | None = None
    """The executors that tasks may name, if for all others the node's own stands in; None if none does."""
    make_spare: Callable[[], Store] | None = None
    """Makes another store of the same address, not opened yet; None if nobody else could claim what is held here."""
    chance: Random = msgspec.field(default_factory=Random)
    """Where the jitter of retries comes from."""

    def executor_of(self, task: TaskSpec) -> str:
        """Return where a task runs: at the executor that it names, or at the node's own."""
        named = task.executor
        return self.executor if named is None or (self.served is not None and named not in self.served) else named
