"""Step 4: graphs without a reactor, which workflows call."""

from tidemill.engine.registry import Registry
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step


class TriggerlessGraphs(Step):
    """The declarations of a package's graphs that are only called."""

    title = "graphs without a reactor"
    takes_time = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def put(self, exchange: Exchange) -> None:
        for graph in exchange.after.triggerless:
            self._registry.add_graph(exchange.tenant, graph)

    async def take_back(self, exchange: Exchange) -> None:
        for name, held in exchange.held_graphs.items():
            if held is None:
                self._registry.drop_graph(exchange.tenant, name)
            else:
                self._registry.add_graph(exchange.tenant, held)

    async def retire(self, exchange: Exchange) -> None:
        kept = {one.name for one in (*exchange.after.triggerless, *exchange.after.graphs)}
        for graph in exchange.before.triggerless:
            if graph.name not in kept:
                self._registry.drop_graph(exchange.tenant, graph.name)
