"""What every part of the workflow engine shares on one node: time, settings, store, figures, tasks, and who we are."""

from collections.abc import Mapping
from random import Random

import msgspec

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.figures import Figures
from tidemill.engine.workflows.owners import Liveness
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.run_ports import Owner, WorkflowStore


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
    chance: Random = msgspec.field(default_factory=Random)
    """Where the jitter of retries comes from."""
