"""Step 2: triggers that are polled. Whoever is in office asks those that loaded workflows name."""

from tidemill.engine.registry import Registry
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step


class PollTriggers(Step):
    """The declarations of a package's triggers."""

    title = "triggers"
    takes_time = False

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def put(self, exchange: Exchange) -> None:
        for trigger in exchange.after.triggers:
            self._registry.add_trigger(exchange.tenant, trigger)

    async def take_back(self, exchange: Exchange) -> None:
        for name, held in exchange.held_triggers.items():
            if held is None:
                self._registry.drop_trigger(exchange.tenant, name)
            else:
                self._registry.add_trigger(exchange.tenant, held)

    async def retire(self, exchange: Exchange) -> None:
        for name in exchange.gone_triggers:
            self._registry.drop_trigger(exchange.tenant, name)
