"""The pipeline: six steps that load a package, and the same six backwards.

    1 schedules   2 triggers   3 reactors   4 graphs without a reactor   5 graphs of reactors   6 workflows

Each step may rely on those before it: a graph finds its reactor, a workflow its triggers and the graphs that it calls.
Nothing starts by itself before the end: schedules are armed as the last act of step 6, and reactors hold still until
everything is in place.

    load      put 1..6; if one fails, take_back from there to 1, and everything is as it was
    reload    the same, beside the older version, where that can be; then retire 6..1 what the newer one has no more
    unload    retire 6..1 with nothing to come

A step may fail on the way back too, when the store is away, say. What is left to do is then owed: it is tried again, in
the same order, with growing delays, until it is done, and the package can be neither loaded nor unloaded meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from tidemill.engine.service import Tasks
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.packages.exchange import Exchange
from tidemill.packages.ledger import Ledger
from tidemill.packages.steps.step import Step
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Way = Literal["put", "take_back", "retire"]
Key = tuple[str, str]


class Walk:
    """Calls steps, and knows whether something is on its way to the store meanwhile, or from it."""

    def __init__(self) -> None:
        self.is_in_touch = False
        self.is_busy = False
        """Whether a step is being taken, whatever it waits for."""

    async def go(self, way: Way, step: Step, exchange: Exchange) -> None:
        """Take a step, this way."""
        work: Awaitable[None] = getattr(step, way)(exchange)
        self.is_busy = True
        try:
            await (work if step.takes_time else self.write(work))
        finally:
            self.is_busy = False

    async def write(self, work: Awaitable[None]) -> None:
        """Do what takes no time but the store's."""
        self.is_in_touch = True
        try:
            await work
        finally:
            self.is_in_touch = False


class Debt:
    """What is left to do on the way back: the steps, next one first, and what follows when they are done."""

    def __init__(self, exchange: Exchange, way: Way, steps: Sequence[Step], end: Callable[[], Awaitable[None]]) -> None:
        self.exchange = exchange
        self.steps = list(steps)
        self._way = way
        self._end = end
        self.failures = 0
        self.error: Exception | None = None

    async def pay(self, walk: "Walk") -> bool:
        """Go on where it stopped; return whether everything is done."""
        try:
            while self.steps:
                await walk.go(self._way, self.steps[0], self.exchange)
                del self.steps[0]
            await walk.write(self._end())
        except Exception as error:  # whatever a step meets, the others are still owed
            self.failures += 1
            self.error = error
            logger.exception(events.PACKAGE_OWED, extra=self.facts)
            return False
        return True

    @property
    def facts(self) -> dict[str, str | int]:
        """What is said about it."""
        title = self.steps[0].title if self.steps else "ledger"
        return {"package": self.exchange.name, "tenant": self.exchange.tenant, "step": title, "failures": self.failures}


class Pipeline:
    """Takes packages through the steps, one at a time."""

    def __init__(
        self,
        steps: Sequence[Step],
        ledger: Ledger,
        tasks: Tasks,
        clock: Clock,
        backoff: Backoff,
        paid: Callable[[], None] = lambda: None,
    ) -> None:
        """`paid` is called when something is done that was owed."""
        self.steps = tuple(steps)
        self._ledger = ledger
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._paid = paid
        self._debts: dict[Key, Debt] = {}
        self._walk = Walk()
        self.turn = asyncio.Lock()
        """Whoever changes packages holds it: what was checked still holds when it is done."""

    @property
    def is_in_touch(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self._walk.is_in_touch

    @property
    def is_busy(self) -> bool:
        """Whether a step is being taken."""
        return self._walk.is_busy

    def owes(self, tenant: str, name: str) -> bool:
        """Return whether something of a package is still to be put back, or to be taken away."""
        return (tenant, name) in self._debts

    async def load(self, exchange: Exchange) -> None:
        """Put a package in place, or leave everything as it was."""
        await self._settle(exchange)
        begun: list[Step] = []
        await self._walk.write(self._ledger.loading(exchange))
        try:
            for step in self.steps:
                begun.insert(0, step)
                await self._walk.go("put", step, exchange)
            await self._walk.write(self._ledger.loaded(exchange))
        except BaseException as error:
            await self._go_back(exchange, begun, error)
            raise
        await self._pay(Debt(exchange, "retire", self.steps[::-1], _nothing))

    async def _go_back(self, exchange: Exchange, begun: Sequence[Step], error: BaseException) -> None:
        debt = Debt(exchange, "take_back", begun, lambda: self._ledger.kept(exchange))
        if not await self._pay(debt):
            error.add_note(f"and it could not be put back as it was yet: {debt.error}; that is tried again")

    async def unload(self, exchange: Exchange, end: Callable[[], None]) -> None:
        """Take a package away, and call `end` when nothing is left of it; what fails is owed."""
        await self._settle(exchange)
        await self._walk.write(self._ledger.unloading(exchange))

        async def done() -> None:
            await self._ledger.gone(exchange)
            end()

        debt = Debt(exchange, "retire", self.steps[::-1], done)
        if not await self._pay(debt):
            raise OperationError(f"package '{exchange.name}' is not unloaded yet: {debt.error}; it is tried again")

    # -- what is owed

    async def _settle(self, exchange: Exchange) -> None:
        """See to it that nothing is owed about a package before it changes again."""
        debt = self._debts.get((exchange.tenant, exchange.name))
        if debt is not None and not await self._pay(debt):
            raise OperationError(f"package '{exchange.name}' is still being taken away: {debt.error}")

    async def _pay(self, debt: Debt) -> bool:
        key = debt.exchange.tenant, debt.exchange.name
        if await debt.pay(self._walk):
            self._debts.pop(key, None)
            return True
        if key not in self._debts:
            self._debts[key] = debt
            self._tasks.start(f"package {debt.exchange.name}: owed", self._pay_off(debt))
        return False

    async def _pay_off(self, debt: Debt) -> None:
        """Try again until it is done, by this or by whoever wants to change the package."""
        key = debt.exchange.tenant, debt.exchange.name
        while self._debts.get(key) is debt:
            await self._clock.sleep(self._backoff.delay(debt.failures))
            async with self.turn:
                if self._debts.get(key) is debt and await self._pay(debt):
                    self._paid()


async def _nothing() -> None:
    """Nothing follows."""
