"""What every running part of a graph shares: clock, settings, tasks, supervisor, keeper, followers."""

import asyncio
import random
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from tidemill.engine.graphs.durability_backend import DurabilityBackend, NoDurability
from tidemill.engine.graphs.restart_state import Overseer
from tidemill.engine.tasks import TaskScope
from tidemill.graphs.result import Firing
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings

DeliveryCallback = Callable[[str | None], None]
"""Called when a follower has had a firing, with None, or will never have it, with the reason."""


class FiringSubscribers(Protocol):
    """The workflows that reactors' firings start."""

    def workflows_for(self, tenant: str, reactor: str) -> frozenset[str]:
        """Return which workflows a reactor's firings start."""

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: DeliveryCallback) -> None:
        """Tell a workflow of a firing; what it was told before comes before this."""


class NoSubscribers(FiringSubscribers):
    """Firings start nothing."""

    def workflows_for(self, tenant: str, reactor: str) -> frozenset[str]:  # noqa: ARG002
        return frozenset()

    def deliver(self, tenant: str, workflow: str, firing: Firing, done: DeliveryCallback) -> None:  # noqa: ARG002
        raise AssertionError("nobody follows, so nobody is told")


class InFlight:
    """How much work is under way that `settle` should wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.busy = asyncio.Event()

    def __enter__(self) -> None:
        self.count += 1
        self.busy.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1
        if not self.count:
            self.busy.clear()


class GraphRuntime:
    """The surroundings of accumulators and reactors on one node."""

    supervisor: Overseer
    durability: DurabilityBackend
    subscribers: FiringSubscribers

    def __init__(self, *, clock: Clock, settings: Settings, tasks: TaskScope) -> None:
        self.clock = clock
        self.settings = settings
        self.tasks = tasks
        self.durability = NoDurability()
        self.subscribers = NoSubscribers()
        self.is_starting_up = False  # while a node loads what it was given, nothing fires: a graph may be yet to come
        self.connects_sources = True  # False on test nodes: streams are live without their broker
        self.in_flight = InFlight()
        self.rng = random.Random()
