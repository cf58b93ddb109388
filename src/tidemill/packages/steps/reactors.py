"""Step 3: reactors with their accumulators. New ones come up and hold still; what goes on is exchanged in step 5."""

from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import Offer, reactor_key
from tidemill.engine.registry import PackageState, Registry
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step


class Reactors(Step):
    """What runs for a package's reactors."""

    title = "reactors"
    takes_time = True

    def __init__(self, scheduler: GraphScheduler, registry: Registry) -> None:
        self._scheduler = scheduler
        self._registry = registry

    async def put(self, exchange: Exchange) -> None:
        if exchange.staged is not None:
            await self._scheduler.bring_up(exchange.staged)

    async def take_back(self, exchange: Exchange) -> None:
        staged = exchange.staged
        if staged is None:
            return
        for name, managed in staged.fresh.items():
            if self._scheduler.is_same(exchange.tenant, managed.reactor.definition):
                await self._scheduler.unload_reactor(exchange.tenant, name, frozenset(managed.subscribers))
        await self._bring_back(exchange, set(staged.leaving))

    async def _bring_back(self, exchange: Exchange, left: set[str]) -> None:
        """Let reactors of the version before come up again, with the graphs that were bound to them."""
        if not left:
            return
        tenant = exchange.tenant
        back = left.intersection(self._registry.reactors(tenant))  # they never left, or an earlier try came that far
        keys = {(tenant, name) for name in left}
        graphs = tuple(one for one in exchange.before.graphs if reactor_key(one, tenant) in keys)
        offer = Offer(
            tenant=tenant,
            reactors=tuple(one for one in exchange.before.reactors if one.name in left),
            graphs=graphs,
            before=PackageState(reactors=tuple(sorted(back)), graphs=tuple(one.name for one in graphs)),
            shared=exchange.before.shared & left,
        )
        staged = self._scheduler.stage(offer)
        await self._scheduler.bring_up(staged)
        await self._scheduler.rebind(staged)
        self._scheduler.open_up()

    async def retire(self, exchange: Exchange) -> None:
        """A version that comes has let those leave that it does not go on with: only an unload finds any here."""
        kept = {one.name for one in exchange.after.reactors}
        loaded = set(self._registry.reactors(exchange.tenant))
        for name in [one.name for one in exchange.before.reactors if one.name not in kept and one.name in loaded]:
            await self._scheduler.unload_reactor(exchange.tenant, name)
