"""Step 5: graphs that are bound to reactors; with them newer versions of reactors that go on, in one step."""

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import Offer, reactor_key
from tidemill.engine.registry import PackageState
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step


class BoundGraphs(Step):
    """The bindings of a package's graphs."""

    title = "graphs of reactors"
    takes_time = True

    def __init__(self, scheduler: GraphScheduler) -> None:
        self._scheduler = scheduler

    async def put(self, exchange: Exchange) -> None:
        if exchange.staged is not None:
            await self._scheduler.rebind(exchange.staged)

    async def take_back(self, exchange: Exchange) -> None:
        """Let what went on go on as it was; the graphs of reactors that left come back with these, in step 3."""
        left = set() if exchange.staged is None else set(exchange.staged.leaving)
        reactors = tuple(one for one in exchange.before.reactors if one.name not in left)
        gone = {(exchange.tenant, name) for name in left}
        graphs = tuple(one for one in exchange.before.graphs if reactor_key(one, exchange.tenant) not in gone)
        if reactors or graphs:
            names = dict.fromkeys(one.name for one in (*exchange.before.graphs, *exchange.after.graphs))
            now = PackageState(reactors=tuple(one.name for one in reactors), graphs=tuple(names))
            shared = exchange.before.shared - left
            offer = Offer(tenant=exchange.tenant, reactors=reactors, graphs=graphs, before=now, shared=shared)
            await self._scheduler.rebind(self._scheduler.stage(offer))
        back = {one.name for one in graphs}
        for graph in exchange.after.graphs:
            if graph.name not in back:
                self._scheduler.unbind_graph(exchange.tenant, graph.name)

    async def retire(self, exchange: Exchange) -> None:
        kept = {one.name for one in (*exchange.after.triggerless, *exchange.after.graphs)}
        for graph in exchange.before.graphs:
            if graph.name not in kept:
                self._scheduler.unbind_graph(exchange.tenant, graph.name)
