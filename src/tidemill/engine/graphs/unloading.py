"""Unloading: stops a reactor, then accumulators that no other reactor uses, and forgets their names."""

import logging
from functools import partial

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.activation import Activation, drain_and_stop
from tidemill.engine.graphs.loaded_graphs import LoadedGraphs
from tidemill.engine.graphs.metrics import accumulator_collector, reactor_collector
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.registry import Registry
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


def publish_loading(runtime: GraphRuntime, event: str, tenant: str, reactor: str) -> None:
    """Log that a reactor was loaded or unloaded, and publish it to the event feed."""
    logger.info(event, extra={"reactor": reactor, "tenant": tenant})
    runtime.node_events.publish(event, tenant, reactor=reactor)


class GraphUnloader:
    """Takes reactors out of what a node has loaded."""

    def __init__(
        self,
        loaded: LoadedGraphs,
        activation: Activation,
        registry: Registry,
        metrics: Metrics,
        runtime: GraphRuntime,
    ) -> None:
        self._loaded = loaded
        self._activation = activation
        self._registry = registry
        self._metrics = metrics
        self._runtime = runtime

    async def unload(self, managed: ManagedGraph) -> None:
        """Stop a reactor and the accumulators that no other reactor uses, save its state, and forget their names."""
        tenant = managed.reactor.tenant
        leaving = await self._stop(managed)
        if managed.reactor.definition.is_partition:
            return
        staying = {f"accumulators/{one.name}" for one in managed.accumulators if one not in leaving}
        self._registry.drop_endpoints(tenant, [one for one in managed.endpoints if one not in staying])
        for one in leaving:
            self._registry.accumulators.drop(tenant, one.name)
        for graph in managed.subscribers:
            self.forget_graph(tenant, graph)
        self._registry.drop_reactor(tenant, managed.reactor.name)

    async def _stop(self, managed: ManagedGraph) -> list[RunningAccumulator]:
        """Stop a reactor, and the accumulators that no other reactor uses; return these."""
        tenant, loaded = managed.reactor.tenant, self._loaded
        others = [one for one in loaded.managed.values() if one is not managed]
        leaving = [one for one in managed.accumulators if not any(one in other.accumulators for other in others)]
        if self._activation.ends_unsaved(managed.reactor):
            managed.reactor.activate()  # what it has taken meanwhile fires now or never
        await drain_and_stop(self._runtime, managed, leaving)
        await self._save_and_forget(managed.reactor)
        for one in leaving:
            self._metrics.retire(accumulator_collector(one))
            loaded.drop_accumulator(tenant, one.name)
            one.emitter.departed_reactors.clear()
            one.redirect_handles(partial(loaded.accumulator, tenant, one.name))
        self._metrics.retire(reactor_collector(managed.reactor))
        del loaded.managed[tenant, managed.reactor.name]
        return leaving

    async def _save_and_forget(self, reactor: RunningReactor) -> None:
        if reactor.is_unsaved_reset or reactor.is_fenced:
            self._runtime.durability.forget(reactor)
        else:
            await self._runtime.durability.save_and_forget(reactor)
        self._activation.unfinished.discard(reactor)

    def forget_keyed(self, keyed: PartitionedReactor) -> None:
        """Forget a keyed reactor, whose partitions have stopped."""
        tenant = keyed.tenant
        self._registry.drop_endpoints(tenant, keyed.endpoints)
        for name in keyed.definition.accumulator_names:
            self._registry.accumulators.drop(tenant, name)
        self._loaded.drop_keyed(keyed)
        for graph in keyed.subscribers:
            self.forget_graph(tenant, graph)
        self._registry.drop_reactor(tenant, keyed.name)

    def forget_graph(self, tenant: str, name: str) -> None:
        """Forget a graph that is bound to no reactor of its tenant."""
        if not self._loaded.is_bound(tenant, name) and self._registry.graphs.drop(tenant, name):
            logger.info(events.GRAPH_UNBOUND, extra={"graph": name})
