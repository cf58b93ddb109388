"""The services that all running parts of graphs share: clock, settings, tasks, supervisor, durability, subscribers."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

from tidemill.engine.graphs.durability.backend import DurabilityBackend, NoDurability
from tidemill.engine.graphs.sources.reader import SourceReader, open_reader
from tidemill.engine.graphs.supervisor import Supervisor
from tidemill.engine.tasks import TaskScope
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.result import Firing
from tidemill.graphs.subscription import FailedDelivery, GraphNodeOutput, Subscription
from tidemill.kernel.clock import Clock
from tidemill.kernel.masking import SecretMask
from tidemill.kernel.settings import Settings
from tidemill.telemetry import events
from tidemill.telemetry.node_events import NodeEvents
from tidemill.telemetry.tracing import TraceContext

DeliveryCallback = Callable[[FailedDelivery | None], None]
"""Called with None when a subscription has received a firing, or with the reason why it never will."""

OpenReader = Callable[[Accumulator, str, Settings, Clock], SourceReader | None]
FindAccumulator = Callable[[str, str], Any]
"""Returns the running accumulator of a tenant and a name, a `RunningAccumulator`, or None."""
HealthFilter = Callable[[str, str, AccumulatorHealth], AccumulatorHealth]
"""Takes an accumulator's tenant, name and new health, and returns the health that it gets."""


class FiringSubscribers(Protocol):
    """The workflows that reactors' firings start."""

    def subscriptions_to(self, tenant: str, reactor: str) -> frozenset[Subscription]:
        """Return the subscriptions of workflows to a reactor."""

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Call a listener with a tenant and a reactor when the subscriptions to the reactor have changed."""

    def deliver(
        self,
        tenant: str,
        subscription: Subscription,
        firing: Firing,
        output: GraphNodeOutput | None,
        done: DeliveryCallback,
        trace: TraceContext | None = None,
    ) -> None:
        """Deliver a firing of a tenant's reactor, or a value that a node returned in it.

        Deliveries to one subscription keep their order. `trace` is the span of the push that led to the firing.
        """

    async def start(
        self, tenant: str, subscription: Subscription, firing: Firing, output: GraphNodeOutput | None
    ) -> Any:
        """Start the run of a firing that could not be delivered; return its handle, or None if it starts none now."""


class NoSubscribers(FiringSubscribers):
    """Firings start no workflows."""

    def subscriptions_to(self, tenant: str, reactor: str) -> frozenset[Subscription]:  # noqa: ARG002
        return frozenset()

    def listen(self, listener: Callable[[str, str], None]) -> None:
        pass

    def deliver(
        self,
        tenant: str,  # noqa: ARG002
        subscription: Subscription,  # noqa: ARG002
        firing: Firing,  # noqa: ARG002
        output: GraphNodeOutput | None,  # noqa: ARG002
        done: DeliveryCallback,  # noqa: ARG002
        trace: TraceContext | None = None,  # noqa: ARG002
    ) -> None:
        raise AssertionError("there are no subscribers to deliver to")

    async def start(
        self,
        tenant: str,  # noqa: ARG002
        subscription: Subscription,  # noqa: ARG002
        firing: Firing,  # noqa: ARG002
        output: GraphNodeOutput | None,  # noqa: ARG002
    ) -> Any:
        raise AssertionError("there are no subscribers to start runs of")


class InFlight:
    """Counts the work in progress that `settle` waits for."""

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


def keep_health(tenant: str, name: str, health: AccumulatorHealth) -> AccumulatorHealth:  # noqa: ARG001
    """Return the health that an accumulator has."""
    return health


class GraphRuntime:
    """The services that accumulators and reactors of one node share."""

    def __init__(
        self,
        *,
        clock: Clock,
        settings: Settings,
        tasks: TaskScope,
        durability: DurabilityBackend | None = None,
        node_events: NodeEvents | None = None,
        subscribers: FiringSubscribers | None = None,
        mask: SecretMask | None = None,
        open_reader: OpenReader = open_reader,
        health_filter: HealthFilter = keep_health,
    ) -> None:
        self.mask = mask or SecretMask()
        self.node_events = node_events or NodeEvents(clock)
        self.clock = clock
        self.settings = settings
        self.tasks = tasks
        self.durability: DurabilityBackend = durability or NoDurability()
        self.supervisor = Supervisor(clock, settings, tasks, self.durability, self.node_events)
        self.subscribers: FiringSubscribers = subscribers or NoSubscribers()
        self.open_reader = open_reader  # it returns None: the stream is live without reading its source
        self.health_filter = health_filter
        self.is_starting_up = False  # nothing fires while the node loads: a graph may still be missing
        self.find_accumulator: FindAccumulator = lambda tenant, name: None  # noqa: ARG005 - until the scheduler is built
        self.in_flight = InFlight()
        self.keyed_reactors = 0  # that run on this node, and share its memory for keys
        self.push_traces: dict[tuple[str, str], TraceContext] = {}
        """By reactor whose firings start runs: the span of the last traced push, until a firing takes it."""
        self.rng = random.Random()

    @contextmanager
    def starting_up(self) -> Iterator[None]:
        """Let nothing fire meanwhile: the node loads."""
        self.is_starting_up = True
        try:
            yield
        finally:
            self.is_starting_up = False

    def publish_dead_letter(self, tenant: str, dead_letter: DeadLetter) -> None:
        """Publish a new dead letter to the event feed, without its content."""
        facts = {"kind": dead_letter.kind, "source": dead_letter.source, "error": dead_letter.error}
        self.node_events.publish(events.DEAD_LETTER_ADDED, tenant, dead_letter=dead_letter.id, **facts)
