"""The pipeline: six steps that load a package, and the same six backwards.

    1 schedules   2 triggers   3 reactors   4 graphs without a reactor   5 graphs of reactors   6 workflows

Each step may rely on those before it: a graph finds its reactor, a workflow its triggers and the graphs that it calls.
Nothing starts by itself before the end: schedules are armed as the last act of step 6, and reactors hold still until
everything is in place.

    load      put 1..6; if one fails, take_back from there to 1, and everything is as it was
    reload    the same, beside the older version, where that can be; then retire 6..1 what the newer one has no more
    unload    retire 6..1 with nothing to come

A step may fail on the way back too, when the store is away, say. What is left to do is then owed: it is tried again, in
the same order, with growing delays, until it is done. Until then its names are its own: whoever wants to change one of
them, or relies on one, settles that first.

Loads have turns. An unload needs one only to begin: from then on it is owed, so that nobody else touches its names, and
what takes its time to end keeps nobody waiting.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from tidemill.engine.service import Tasks
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.claims import Claim, held_by, named_by
from tidemill.packages.exchange import Exchange
from tidemill.packages.holdings import NOTHING
from tidemill.packages.ledger import Ledger
from tidemill.packages.steps.step import Step
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Way = Literal["put", "take_back", "retire"]
Verb = Callable[[Exchange], Awaitable[None]]
Key = tuple[str, str]


class Walk:
    """Calls steps, and knows whether something is on its way to the store meanwhile, or from it."""

    def __init__(self) -> None:
        self._writing = 0
        self._walking = 0

    @property
    def is_in_touch(self) -> bool:
        """Whether something is on its way to the store, or from it."""
        return self._writing > 0

    @property
    def is_busy(self) -> bool:
        """Whether a step is being taken, whatever it waits for."""
        return self._walking > 0

    async def go(self, way: Way, step: Step, exchange: Exchange) -> None:
        """Take a step, this way."""
        verbs: dict[Way, Verb] = {"put": step.put, "take_back": step.take_back, "retire": step.retire}
        work = verbs[way](exchange)
        self._walking += 1
        try:
            await (work if step.takes_time else self.write(work))
        finally:
            self._walking -= 1

    async def write(self, work: Awaitable[None]) -> None:
        """Do what takes no time but the store's."""
        self._writing += 1
        try:
            await work
        finally:
            self._writing -= 1


class Debt:
    """What is left to do on the way back: the steps, next one first, and what follows when they are done."""

    def __init__(self, exchange: Exchange, way: Way, steps: Sequence[Step], end: Callable[[], Awaitable[None]]) -> None:
        self.exchange = exchange
        self.key = exchange.tenant, exchange.name
        self.steps = list(steps)
        self.way = way
        self.claims = held_by(exchange)
        """The names that nobody else touches until it is paid."""
        self.is_leaving = way == "retire" and exchange.after is NOTHING
        """Whether the package is to be gone."""
        self._end = end
        self._is_paid = False
        self._paying = asyncio.Lock()
        self.failures = 0
        self.error: Exception | None = None
        self.collector: asyncio.Task[None] | None = None
        """What tries again, later and later."""

    async def pay(self, walk: Walk) -> bool:
        """Go on where it stopped, one at a time; return whether everything is done."""
        async with self._paying:
            try:
                while self.steps:
                    await walk.go(self.way, self.steps[0], self.exchange)
                    del self.steps[0]
                if not self._is_paid:
                    await walk.write(self._end())
                    self._is_paid = True
            except Exception as error:  # whatever a step meets, the others are still owed
                self.failures += 1
                self.error = error
                logger.exception(events.PACKAGE_OWED, extra=self.facts)
                return False
            return True

    async def rest(self) -> None:
        """Return when nobody is paying it."""
        async with self._paying:
            pass

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
        paid: Callable[[], Awaitable[None]],
    ) -> None:
        """`paid` is called when something is done at last that was owed, and nobody asked for it."""
        self.steps = tuple(steps)
        self._ledger = ledger
        self._tasks = tasks
        self._clock = clock
        self._backoff = backoff
        self._paid = paid
        self._debts: dict[Key, Debt] = {}
        self._walk = Walk()
        self._is_abandoned = False
        self._is_closed = False
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

    def check_open(self) -> None:
        """Refuse to change anything on a node that is about to end; whoever waits for a turn asks when it has come."""
        if self._is_closed:
            raise RequestError("the node is not running any more", code="not_running", status=409)

    # -- there and back

    async def load(self, exchange: Exchange) -> None:
        """Put a package in place, or leave everything as it was; nothing is owed about it."""
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
        await self._pay(Debt(exchange, "retire", self.steps[::-1], lambda: self._ledger.settled(exchange)))

    async def _go_back(self, exchange: Exchange, begun: Sequence[Step], error: BaseException) -> None:
        if self._is_abandoned:
            return
        debt = Debt(exchange, "take_back", begun, lambda: self._ledger.kept(exchange))
        if not await self._pay(debt):
            error.add_note(f"and it could not be put back as it was yet: {debt.error}; that is tried again")

    async def begin_unload(self, exchange: Exchange, end: Callable[[], None]) -> Debt:
        """Begin to take a package away; `end` is called when nothing is left of it. From now on that is owed."""
        await self._walk.write(self._ledger.unloading(exchange))

        async def done() -> None:
            await self._ledger.gone(exchange)
            end()

        debt = Debt(exchange, "retire", self.steps[::-1], done)
        self._debts[debt.key] = debt
        return debt

    async def unload(self, debt: Debt) -> None:
        """Take a package away that is to be gone, without a turn; what fails is tried again."""
        if not await self._pay(debt):
            raise OperationError(f"package '{debt.exchange.name}' is not unloaded yet: {debt.error}; it is tried again")

    def abandon(self) -> None:
        """Put nothing back from now on: leave everything as the death of the process would."""
        self._is_abandoned = True

    def close(self) -> None:
        """Let nobody begin anything any more: who has a turn ends it."""
        self._is_closed = True

    async def rest(self) -> None:
        """Return when nothing is being taken away; whoever calls has the turn."""
        for debt in tuple(self._debts.values()):
            await debt.rest()

    # -- what is owed

    def owed(self, tenant: str, name: str) -> Debt | None:
        """Return what is owed about a package."""
        return self._debts.get((tenant, name))

    def leaving(self) -> frozenset[Claim]:
        """Return the names of packages that are to be gone, but are not yet."""
        return frozenset(claim for debt in self._debts.values() if debt.is_leaving for claim in debt.claims)

    def in_the_way(self, exchange: Exchange) -> Debt | None:
        """Return what is owed about names that this is about, or that it relies on; see Guards about what leaves."""
        held, named = held_by(exchange), named_by(exchange)
        found = (one for one in self._debts.values() if one.claims & (held if one.is_leaving else held | named))
        return next(found, None)

    async def settle(self, debt: Debt) -> None:
        """See to it that something is no longer owed; whoever calls has no turn, and asks again when it has one."""
        if not await self._settled(debt):
            what = "put back as it was" if debt.way == "take_back" else "taken away"
            name = debt.exchange.name
            raise OperationError(f"package '{name}' is still being {what}: {debt.error}; that is tried again")

    async def _settled(self, debt: Debt) -> bool:
        if debt.is_leaving:
            return not self._is_closed and await self._pay(debt)
        async with self.turn:  # what is put back comes up, and must not let go of what others hold still
            return not self._is_closed and await self._pay(debt)

    async def _pay(self, debt: Debt) -> bool:
        is_paid = False
        try:
            is_paid = await debt.pay(self._walk)
        finally:
            if not is_paid:  # also if this was cut off
                self._owe(debt)
        if is_paid and self._debts.get(debt.key) is debt:
            del self._debts[debt.key]
        if is_paid and debt.collector is not None and debt.collector is not asyncio.current_task():
            debt.collector.cancel()
        return is_paid

    def _owe(self, debt: Debt) -> None:
        self._debts[debt.key] = debt
        if debt.collector is None and not self._tasks.is_closed:
            debt.collector = self._tasks.start(f"package {debt.exchange.name}: owed", self._pay_off(debt))

    async def _pay_off(self, debt: Debt) -> None:
        """Try again until it is done; whoever wants to change the package before that does it instead."""
        while self._debts.get(debt.key) is debt:
            await self._clock.sleep(self._backoff.delay(debt.failures))
            await self._settled(debt)
        await self._paid()
