"""The sources that this node reads for all partitions of keyed reactors: their health, recoveries and restarts."""

from collections.abc import Callable

from msgspec.structs import asdict

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.client.operations import schema_of
from tidemill.engine.graphs.client.values import HealthReport
from tidemill.engine.graphs.handle import accumulator_state
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.graphs.health import UnhealthyPart
from tidemill.graphs.state import AccumulatorState, Recovery
from tidemill.graphs.views import AccumulatorDetails


class RelayedSources:
    """What a node shows of the sources that it reads, and does with them, by tenant and reactor."""

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler
        self._loaded = scheduler.loaded

    def _readers(self, tenant: str, reactor: str) -> list[RunningAccumulator]:
        return [relay.reader for relay in self._scheduler.sharing.relays.of((tenant, reactor))]

    def states(self, tenant: str, reactor: str) -> list[AccumulatorState]:
        """Return the states of the readers, under the names that their accumulators are declared with."""
        return [accumulator_state(one) for one in self._readers(tenant, reactor)]

    def details(self, tenant: str, reactor: str, accumulator: str) -> list[AccumulatorDetails]:
        """Return the state of the reader of one accumulator, if this node has it."""
        return [
            AccumulatorDetails(
                **asdict(accumulator_state(one)),
                reactors=[reactor],
                event_schema=schema_of(one.definition.event_type),
                boundary_schema=schema_of(one.definition.boundary_type),
            )
            for one in self._readers(tenant, reactor)
            if one.name == accumulator
        ]

    def report(self, tenant: str, reactor: str) -> HealthReport:
        """Return what is wrong with the sources."""
        unhealthy = [
            UnhealthyPart(
                kind="accumulator",
                name=one.name,
                health=str(one.health),
                since=one.health_since,
                reason=one.unhealthy_reason or f"it is {one.health}",
            )
            for one in self._readers(tenant, reactor)
            if not one.health.is_healthy
        ]
        return HealthReport(unhealthy=unhealthy, dead_letters={})

    def recoveries(self, tenant: str, reactor: str) -> list[Recovery]:
        """Return the recoveries of the readers that this node has or had, and the gaps of their sources."""
        if (keyed := self._loaded.keyed.get((tenant, reactor))) is None:
            return []
        names = keyed.definition.accumulator_names
        recorded = self._scheduler.runtime.supervisor.recoveries
        return [one for of, one in recorded if of == tenant and one.component == "accumulator" and one.name in names]

    def restart(self, tenant: str, reactor: str, accumulator: str) -> None:
        """Restart the reader of an accumulator, if this node has it."""
        self._restart(tenant, reactor, lambda reader: reader.name == accumulator)

    def restart_failed(self, tenant: str, reactor: str) -> None:
        """Restart the readers that have failed."""
        self._restart(tenant, reactor, lambda reader: reader.health == "failed")

    def _restart(self, tenant: str, reactor: str, is_wanted: Callable[[RunningAccumulator], bool]) -> None:
        for relay in self._scheduler.sharing.relays.of((tenant, reactor)):
            if relay.is_started and is_wanted(relay.reader):
                self._scheduler.runtime.supervisor.restart(relay.reader)
