"""Faults of sources: accumulators that lose their connection."""

from collections.abc import Iterable

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.health import AccumulatorHealth


class Disconnector:
    """Disconnects accumulators of one node from their sources, and reconnects them.

    The accumulators named in `at_start` start disconnected, in every tenant.
    """

    def __init__(self, runtime: GraphRuntime, at_start: Iterable[str] = ()) -> None:
        self._at_start = frozenset(at_start)
        self._is_disconnected: dict[tuple[str, str], bool] = {}
        runtime.health_filter = self._filter_health

    def _filter_health(self, tenant: str, name: str, health: AccumulatorHealth) -> AccumulatorHealth:
        is_disconnected = self._is_disconnected.get((tenant, name), name in self._at_start)
        return AccumulatorHealth.DISCONNECTED if is_disconnected and health.is_healthy else health

    def disconnect(self, accumulator: RunningAccumulator) -> None:
        """Disconnect an accumulator from its source."""
        self._is_disconnected[accumulator.tenant, accumulator.name] = True
        if accumulator.health is not AccumulatorHealth.FAILED:
            accumulator.set_health(AccumulatorHealth.DISCONNECTED)

    def reconnect(self, accumulator: RunningAccumulator) -> None:
        """Reconnect an accumulator to its source."""
        self._is_disconnected[accumulator.tenant, accumulator.name] = False
        if accumulator.down_reason is None:
            accumulator.set_health(accumulator.started_health)
