"""A market maker on simulated feeds: five inputs, one decision per quote, position and profit as it trades.

    tidemill dev examples --pool warehouse=1    run it, with the other examples
    tidemill graph code examples/market_maker.py    show the function that the graph is compiled to

Books arrive sixty times a second, prices of our model ten times. For each of them one compiled function decides
whether to trade. The exchange returns fills, the risk desk changes the limit now and then, and a window of the graph's
own ticks shows the trend.

The connection of the model breaks every few minutes: the reactor is degraded for four seconds, decides with the last
price, and recovers by itself. And now and then the model sends a price that is not a number: the event becomes a dead
letter, and the next price is processed.

Change THRESHOLD while it runs, and save: the next quote is judged by the new code, and the position is kept.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import tidemill as tm

THRESHOLD = 0.8
"""The distance of our price from the market, in spreads, above which we trade."""

# -- data --------------------------------------------------------------------------------------------------------------


class Book(tm.Boundary):
    """Best bid and ask."""

    bid: float
    ask: float

    @property
    def mid(self) -> float:
        """The price between the two."""
        return (self.bid + self.ask) / 2


class Price(tm.Boundary):
    """The fair price of our model."""

    fair: float


class Fill(tm.Boundary):
    """An order that was executed; side is +1 for a purchase and -1 for a sale."""

    side: int
    price: float


class Exposure(tm.Boundary):
    """Position and cash after all fills so far."""

    position: int = 0
    cash: float = 0.0


class Limits(tm.Boundary):
    """The largest position we may hold."""

    position: int


class Trade(tm.Boundary):
    """An order worth placing."""

    side: int
    price: float


class Hold(tm.Boundary):
    """No order, and why."""

    reason: str


class Tick(tm.Boundary):
    """One decision, for the history."""

    mid: float
    traded: bool


class Result(tm.Boundary):
    """What we hold, and what it has earned."""

    position: int
    profit: float


# -- the simulated market ----------------------------------------------------------------------------------------------


class Market:
    """A value that wanders around 100, and a mid price that follows it: a model that knows the value earns."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self.value = 100.0
        self.mid = 100.0

    def move(self) -> None:
        """Let the value wander, and the price follow."""
        self.value += self._chance.gauss(0, 0.02) + 0.001 * (100 - self.value)
        self.mid += 0.02 * (self.value - self.mid)


class Books:
    """The order book, as a source: it moves the market, and its checkpoint is the price that it has reached."""

    def __init__(self, market: Market, seed: int = 7) -> None:
        self._market = market
        self._chance = random.Random(seed)

    async def start(self, reached: float | None) -> AsyncIterator[tuple[Book, float]]:
        """Yield sixty books a second, three at a time."""
        if reached is not None:
            self._market.mid = self._market.value = reached
        while True:
            await asyncio.sleep(0.05)
            for _ in range(3):
                self._market.move()
                yield self._book(), self._market.mid

    def _book(self) -> Book:
        half = self._chance.uniform(0.01, 0.03)
        return Book(round(self._market.mid - half, 3), round(self._market.mid + half, 3))


class Model:
    """Our price model, as a source of JSON over a connection that is not perfect; its checkpoint counts the prices."""

    FIRST_GARBLED, GARBLED_EVERY = 150, 1_500
    FIRST_BREAK, BREAK_EVERY = 400, 2_000
    """Prices until the first incident of a kind, and from one to the next: at ten a second, some minutes."""

    def __init__(self, market: Market, seed: int = 7) -> None:
        self._market = market
        self._chance = random.Random(seed)
        self._is_broken = False

    async def start(self, reached: int | None) -> AsyncIterator[tuple[bytes, int]]:
        """Connect, and yield ten prices a second. When this raises, Tidemill calls it again, with the checkpoint."""
        if self._is_broken:
            await asyncio.sleep(3)
            self._is_broken = False
        number = reached or 0
        while True:
            await asyncio.sleep(0.1)
            number += 1
            yield self._price(number), number
            if number % self.BREAK_EVERY == self.FIRST_BREAK:
                self._is_broken = True
                raise ConnectionError("the price model has closed the connection")

    def _price(self, number: int) -> bytes:
        if number % self.GARBLED_EVERY == self.FIRST_GARBLED:
            return b'{"fair": "n/a"}'
        return b'{"fair": %.3f}' % (self._market.value + self._chance.gauss(0, 0.005))


class Exchange:
    """Fills one order in five, and is the source of these fills; its checkpoint counts them."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self._fills: asyncio.Queue[Fill] = asyncio.Queue()

    def place(self, order: Trade) -> None:
        """Accept an order."""
        if self._chance.random() < 0.2:
            self._fills.put_nowait(Fill(order.side, order.price))

    async def start(self, reached: int | None) -> AsyncIterator[tuple[Fill, int]]:
        """Connect, and return the fills that follow: the stream is live before the first of them."""
        return self._follow(reached or 0)

    async def _follow(self, number: int) -> AsyncIterator[tuple[Fill, int]]:
        while True:
            fill = await self._fills.get()
            number += 1
            yield fill, number


class RiskDesk:
    """Decides how much we may hold."""

    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)

    def limit(self) -> int:
        """Return the limit of now: usually the same, sometimes half of it."""
        return self._chance.choices([10, 5], weights=[4, 1])[0]


world, exchange, risk_desk = Market(), Exchange(), RiskDesk()

# -- accumulators: events in, typed values out -------------------------------------------------------------------------


@tm.stream(Books(world))
def orderbook(event: Book) -> Book | None:
    """Drop crossed books."""
    return event if event.bid < event.ask else None


@tm.stream(Model(world))
def pricing(event: Price) -> Price:
    """Take every price that can be read."""
    return event


@tm.stream(exchange, state=Exposure)
def exposure(event: Fill, state: Exposure) -> Exposure:
    """Add up fills; the sum is kept in the store."""
    return Exposure(state.position + event.side, round(state.cash - event.side * event.price, 3))


@tm.polling(every="5s")
async def limits() -> Limits:
    """Ask the risk desk."""
    return Limits(risk_desk.limit())


ticks = tm.window("ticks", Tick, capacity=50)

market = tm.Reactor("market", [orderbook, pricing, exposure, limits, ticks], when=tm.any_of(orderbook, pricing))

# -- the graph: called for each book and each price --------------------------------------------------------------------

maker = tm.Graph("market_maker", reactor=market)


@maker.node
def edge(orderbook: Book, pricing: Price) -> float:
    """Return the distance of the fair price from the market, in spreads."""
    return (pricing.fair - orderbook.mid) / (orderbook.ask - orderbook.bid)


@maker.node
def decide(edge: float, orderbook: Book, exposure: Exposure | None, limits: Limits | None) -> Trade | Hold:
    """Trade when the edge is large enough and the limit allows it; one share, until the limit is known."""
    if abs(edge) < THRESHOLD:
        return Hold("no edge")
    side = 1 if edge > 0 else -1
    position = exposure.position if exposure else 0
    if position * side >= (limits.position if limits else 1):
        return Hold("limit reached")
    return Trade(side, orderbook.ask if side > 0 else orderbook.bid)


@maker.node
def order(decide: Trade) -> Trade:
    """Send the order to the exchange; runs only if `decide` returned a Trade."""
    exchange.place(decide)
    return decide


@maker.node
def waiting(decide: Hold) -> str:
    """Say why there is no order; runs only if `decide` returned a Hold."""
    return decide.reason


@maker.node
def result(exposure: Exposure | None, orderbook: Book) -> Result:
    """Value the position at the market."""
    held = exposure or Exposure()
    return Result(held.position, round(held.cash + held.position * orderbook.mid, 2))


@maker.node(feeds=ticks)
def tick(decide: Trade | Hold, orderbook: Book) -> Tick:
    """Record every decision."""
    return Tick(round(orderbook.mid, 4), isinstance(decide, Trade))


@maker.node
def trend(ticks: list[Tick]) -> float:
    """Return how far the price has moved over the window."""
    return round(ticks[-1].mid - ticks[0].mid, 4) if ticks else 0.0
