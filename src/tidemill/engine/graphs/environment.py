"""What every running part of a graph shares: clock, settings, tasks, supervisor."""

import random
from dataclasses import dataclass, field
from types import TracebackType

from tidemill.engine.graphs.supervision import Overseer
from tidemill.engine.service import Tasks
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings


class Activity:
    """How much work is under way that `settle` should wait for."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1


@dataclass(slots=True, kw_only=True)
class Environment:
    """The surroundings of accumulators and reactors on one node."""

    clock: Clock
    settings: Settings
    tasks: Tasks
    connects: bool = True  # False on test nodes: streams are live without their broker
    activity: Activity = field(default_factory=Activity)
    chance: random.Random = field(default_factory=random.Random)
    supervisor: Overseer = field(init=False)
