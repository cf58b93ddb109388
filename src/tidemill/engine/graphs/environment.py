"""What every running part of a graph shares: clock, settings, tasks, supervisor, keeper, followers."""

import asyncio
import random
from types import TracebackType

from tidemill.engine.graphs.followers import Followers, NoFollowers
from tidemill.engine.graphs.keeping import Keeper, NoKeeper
from tidemill.engine.graphs.supervision import Overseer
from tidemill.engine.service import Tasks
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings


class Activity:
    """How much work is under way that `settle` should wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()

    def __enter__(self) -> None:
        self.count += 1
        self.begun.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1
        if not self.count:
            self.begun.clear()


class Environment:
    """The surroundings of accumulators and reactors on one node."""

    supervisor: Overseer
    keeper: Keeper
    followers: Followers

    def __init__(self, *, clock: Clock, settings: Settings, tasks: Tasks) -> None:
        self.clock = clock
        self.settings = settings
        self.tasks = tasks
        self.keeper = NoKeeper()
        self.followers = NoFollowers()
        self.is_opening = False  # while a node loads what it was given, nothing fires: a graph may be yet to come
        self.connects = True  # False on test nodes: streams are live without their broker
        self.activity = Activity()
        self.chance = random.Random()
