"""Faults of graphs: accumulators that lose their connection, and a scheduler that stops as kill -9 would stop it."""

from collections.abc import Iterable
from functools import partial

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.partitions import PartitionName


class Disconnector:
    """Disconnects accumulators of one node from their sources, and reconnects them.

    The accumulators named in `at_start` start disconnected, in every tenant.
    """

    def __init__(self, runtime: GraphRuntime, at_start: Iterable[str] = ()) -> None:
        self._at_start = frozenset(at_start)
        self._is_disconnected: dict[tuple[str, str], bool] = {}
        runtime.health_filter = self._filter_health

    def _filter_health(self, tenant: str, name: str, health: AccumulatorHealth) -> AccumulatorHealth:
        declared = _declared(name)
        is_disconnected = self._is_disconnected.get((tenant, declared), declared in self._at_start)
        return AccumulatorHealth.DISCONNECTED if is_disconnected and health.is_healthy else health

    def disconnect(self, accumulators: Iterable[RunningAccumulator]) -> None:
        """Disconnect an accumulator, or all partitions of one, from its source."""
        for one in accumulators:
            self._is_disconnected[one.tenant, _declared(one.name)] = True
            if one.health is not AccumulatorHealth.FAILED:
                one.set_health(AccumulatorHealth.DISCONNECTED)

    def reconnect(self, accumulators: Iterable[RunningAccumulator]) -> None:
        """Reconnect an accumulator, or all partitions of one, to its source."""
        for one in accumulators:
            self._is_disconnected[one.tenant, _declared(one.name)] = False
            if one.down_reason is None:
                one.set_health(one.started_health)


def _declared(name: str) -> str:
    """Return the name of an accumulator without the number of its partition."""
    partition = PartitionName.parse(name)
    return name if partition is None else partition.name


def crash_graphs(scheduler: GraphScheduler) -> None:
    """Leave all graphs as a kill of the process would: nothing fires, nothing is delivered, handles fail."""
    scheduler.is_closed = True
    for reactor in scheduler.reactors:
        reactor.stop_firing()
    for one in scheduler.accumulators:
        one.redirect_handles(partial(scheduler.accumulator, one.tenant, one.name))
