"""Read-only views of reactors and accumulators, for tests that check more than the public API shows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Key
from tidemill.graphs.state import Recovery

if TYPE_CHECKING:
    from tidemill.node import Node


class GraphProbe:
    """Shows the running reactors and accumulators of one node."""

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded

    @classmethod
    def of(cls, node: "Node") -> "GraphProbe":
        """Return the probe of any node; test nodes have it as `node.probe.graphs`."""
        return cls(node._scheduler)

    @property
    def reactors(self) -> Iterable[RunningReactor]:
        """All running reactors."""
        return self._loaded.reactors

    def reactor(self, name: str, tenant: str = "public") -> RunningReactor:
        """Return a running reactor."""
        return self._loaded.reactor(tenant, name)

    def active_keys(self, reactor: str) -> set[Any]:
        """Return the keys of a keyed reactor that are in memory."""
        running = [one.firing_loop for one in self.reactors if one.definition.declared_name == reactor]
        return {key for loop in running if isinstance(loop, KeyedFiringLoop) for key in loop.keys.active}

    def accumulator(self, name: str, tenant: str = "public") -> RunningAccumulator:
        """Return a running accumulator."""
        return self._loaded.accumulator(tenant, name)

    def reactor_keys(self) -> set[Key]:
        """Return tenant and name of every running reactor."""
        return self._loaded.running_keys()[0]

    def accumulator_keys(self) -> set[Key]:
        """Return tenant and name of every running accumulator."""
        return self._loaded.running_keys()[1]

    def is_running(self, reactor: str) -> bool:
        """Return whether some tenant's reactor of this name runs."""
        return reactor in {name for _, name in self.reactor_keys()}

    def targets_of(self, accumulator: str) -> list[str]:
        """Return the reactors that an accumulator delivers to, in order."""
        return [target.name for target, _ in self.accumulator(accumulator).emitter.targets]

    def recoveries(self) -> list[Recovery]:
        """Return all recoveries of the node, oldest first."""
        return [recovery for _, recovery in self._scheduler.runtime.supervisor.recoveries]

    def has_fast_path(self, reactor: str) -> bool:
        """Return whether the reactor fires boundaries straight from their push now."""
        loop = self.reactor(reactor).firing_loop
        return bool(loop.fast_path_state.credit)

    def close_fast_path(self, reactor: str) -> None:
        """Let a reactor take every boundary by the slow path, until its graphs change."""
        running = self.reactor(reactor)
        loop = running.firing_loop
        loop.fast.forget_graphs()
        for one in running.accumulators:
            one.close_fast_path()

    def undelivered(self, reactor: str) -> list[set[str]]:
        """Return, per firing in the outbox, the workflows that have not received it."""
        return [{one.workflow for one in entry.undelivered} for entry in self.reactor(reactor).outbox.entries]

    def in_delivery(self, reactor: str) -> list[set[str]]:
        """Return, per firing in the outbox, the workflows whose delivery is in progress."""
        return [{one.workflow for one in entry.in_delivery} for entry in self.reactor(reactor).outbox.entries]

    def queued_values(self, reactor: str) -> list[object]:
        """Return the values in a reactor's queue, oldest first."""
        return [value for _, value, _ in self.reactor(reactor).firing_loop.inputs.queue]

    def cached_values(self, reactor: str) -> list[Any]:
        """Return the cached inputs of a reactor as they are, not as JSON."""
        return list(self.reactor(reactor).firing_loop.inputs.cache)

    @property
    def scheduler(self) -> GraphScheduler:
        """The scheduler itself, for tests that make one of its steps fail."""
        return self._scheduler

    def task_names(self) -> list[str]:
        """Return the names of the node's background tasks."""
        return self._scheduler.runtime.tasks.names

    def metric_total_count(self) -> int:
        """Return how many totals of removed collectors the node keeps."""
        return self._scheduler.metrics.total_count

    def collector_count(self) -> int:
        """Return how many metrics collectors the node has."""
        return self._scheduler.metrics.collector_count

    async def write_checkpoint(self) -> None:
        """Write the pending changes now."""
        await self._scheduler.runtime.durability.write()
