"""A market maker on simulated feeds, with a live view in the terminal.

    tidemill dev examples                           beside the other examples, reloaded when you change it
    python examples/market_maker.py                 until you press Ctrl-C
    python examples/market_maker.py --seconds 10    for a while
    python examples/market_maker.py --store sqlite:///market.db    and continue there next time, even after kill -9
    python examples/market_maker.py --code          show the function that the graph was compiled to

Three feeds are streams, one is polled. For each new book or price, one compiled function decides whether to trade. The
exchange returns fills, and a window of its own ticks shows the trend.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import tidemill as tm

# -- data --------------------------------------------------------------------------------------------------------------


class Book(tm.Boundary):
    """Best bid and ask."""

    bid: float
    ask: float


class Price(tm.Boundary):
    """The fair price of our model."""

    fair: float


class Fill(tm.Boundary):
    """An order that was executed."""

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


# -- the simulated market ----------------------------------------------------------------------------------------------


class Market:
    """A price on a random walk, with quotes around it: a few hundred books a second, fewer prices."""

    def __init__(self) -> None:
        self.chance = random.Random(7)
        self.mid = 100.0

    def books(self) -> "Feed":
        """Follow the order book."""
        return Feed(self, 0.004, self._book)

    def prices(self) -> "Feed":
        """Follow the prices of a model that knows a little more than the market."""
        return Feed(self, 0.02, lambda: Price(round(self.mid + self.chance.gauss(0, 0.02), 3)))

    def _book(self) -> Book:
        self.mid += self.chance.gauss(0, 0.01)
        half = self.chance.uniform(0.01, 0.04)
        return Book(round(self.mid - half, 3), round(self.mid + half, 3))


class Feed:
    """One feed of the market, as a source; it continues from its last price."""

    def __init__(self, market: Market, pause: float, quote: Callable[[], Book | Price]) -> None:
        self._market = market
        self._pause = pause
        self._quote = quote

    async def start(self, reached: float | None) -> AsyncIterator[tuple[Book | Price, float]]:
        """Yield quotes, each with its price as the checkpoint."""
        self._market.mid = reached or self._market.mid
        while True:
            await asyncio.sleep(self._pause)
            yield self._quote(), self._market.mid


class Exchange:
    """Fills one order in five, and is the source of these fills."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._fills: deque[Fill] = deque(maxlen=100)

    def place(self, order: Trade) -> None:
        """Accept an order."""
        if self._market.chance.random() < 0.2:
            self._fills.append(Fill(order.side, order.price))

    async def start(self, reached: int | None) -> AsyncIterator[tuple[Fill, int]]:
        """Connect, and return the following fills: there may be none for a long time."""
        return self._follow(reached or 0)

    async def _follow(self, number: int) -> AsyncIterator[tuple[Fill, int]]:
        """Yield fills, each with its number."""
        while True:
            while self._fills:
                number += 1
                yield self._fills.popleft(), number
            await asyncio.sleep(0.01)


world = Market()
exchange = Exchange(world)

# -- where it comes from -----------------------------------------------------------------------------------------------


@tm.stream(world.books())
def orderbook(event: Book) -> Book | None:
    """Let sane books through; a crossed book says nothing."""
    return event if event.bid < event.ask else None


@tm.stream(world.prices())
def pricing(event: Price) -> Price:
    """Take every price of the model."""
    return event


@tm.stream(exchange, state=Exposure)
def exposure(event: Fill, state: Exposure) -> Exposure:
    """Add up fills."""
    return Exposure(state.position + event.side, round(state.cash - event.side * event.price, 2))


@tm.polling(every="2s")
async def limits() -> Limits:
    """Ask the risk desk."""
    return Limits(position=20)


ticks = tm.window("ticks", Tick, capacity=200)

market = tm.Reactor("market", [orderbook, pricing, exposure, limits, ticks], when=tm.any_of(orderbook, pricing))

# -- what is decided ---------------------------------------------------------------------------------------------------

maker = tm.Graph("market_maker", reactor=market)


@maker.node
def edge(orderbook: Book, pricing: Price) -> float:
    """Return how much better than the market we know it, in spreads."""
    mid = (orderbook.bid + orderbook.ask) / 2
    return (pricing.fair - mid) / (orderbook.ask - orderbook.bid)


@maker.node
def decide(edge: float, orderbook: Book, exposure: Exposure | None, limits: Limits | None) -> Trade | Hold:
    """Trade when the edge is worth it and the risk desk lets us."""
    if abs(edge) < 0.6:
        return Hold("no edge")
    side = 1 if edge > 0 else -1
    position = exposure.position if exposure else 0
    if abs(position + side) > (limits.position if limits else 5):
        return Hold("limit reached")
    return Trade(side, orderbook.ask if side > 0 else orderbook.bid)


@maker.node
def order(decide: Trade) -> Trade:
    """Hand the order to the exchange."""
    exchange.place(decide)
    return decide


@maker.node
def waiting(decide: Hold) -> str:
    """Say why nothing was done."""
    return decide.reason


@maker.node(feeds=ticks)
def tick(decide: Trade | Hold, orderbook: Book) -> Tick:
    """Remember every decision."""
    return Tick((orderbook.bid + orderbook.ask) / 2, isinstance(decide, Trade))


@maker.node
def trend(ticks: list[Tick]) -> float:
    """Return the slope of the mid price over the window."""
    if len(ticks) < 2:
        return 0.0
    return statistics.fmean(one.mid for one in ticks[len(ticks) // 2 :]) - ticks[0].mid


# -- the view ----------------------------------------------------------------------------------------------------------

HEALTH = {"live": "green", "socket_only": "green", "degraded": "yellow", "warming": "yellow", "failed": "red"}


def view(node: tm.Node, rate: float) -> Group:
    """Draw the reactor as it stands."""
    reactor = node.reactor("market")
    state, latency = reactor.state(), reactor.latency()
    head = Text.assemble(
        ("market ", "bold"),
        (f"{state.health}", HEALTH.get(state.health, "white")),
        f"   {state.fires:,} firings   {rate:,.0f}/s   ",
        f"p50 {latency.p50 * 1e6:.0f} us   p99 {latency.p99 * 1e6:.0f} us   ",
        f"{state.failures} failed   position {state.cache.get('exposure', {}).get('position', 0):+d}",
    )
    return Group(Panel(head), _sources(state), _firings(reactor), Text("Ctrl-C ends the demo", style="dim"))


def _sources(state: tm.ReactorState) -> Table:
    table = Table(title="Accumulators", title_justify="left", expand=True)
    for column in ("name", "kind", "health", "events", "last value"):
        table.add_column(column, justify="right" if column == "events" else "left", no_wrap=True)
    for name, one in state.accumulators.items():
        value = state.cache.get(name)
        shown = (
            f"{len(value)} ticks" if isinstance(value, list) else " ".join(f"{k}={v}" for k, v in (value or {}).items())
        )
        table.add_row(name, one.kind, Text(one.health, style=HEALTH.get(one.health, "white")), f"{one.events:,}", shown)
    return table


def _firings(reactor: tm.ReactorHandle) -> Table:
    table = Table(title="Newest firings", title_justify="left", expand=True)
    for column in ("at", "book", "decision", "trend", "took"):
        table.add_column(column, no_wrap=True, justify="right" if column == "took" else "left")
    for firing in reactor.firings(limit=8):
        outputs = firing.results["market_maker"].outputs
        book, placed = firing.inputs["orderbook"], outputs.get("order")
        decision = Text(outputs.get("waiting", "?"), style="dim")
        if placed is not None:
            decision = Text(f"{'buy' if placed.side > 0 else 'sell'} at {placed.price}", style="bold cyan")
        at = firing.at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
        slope = f"{outputs.get('trend', 0.0):+.3f}"
        table.add_row(at, f"{book.bid} / {book.ask}", decision, slope, f"{firing.duration * 1e6:.0f} us")
    return table


async def show(node: tm.Node, console: Console, seconds: float | None) -> None:
    """Refresh the view until time is up; without a terminal, print a line a second."""
    loop = asyncio.get_running_loop()
    ends = None if seconds is None else loop.time() + seconds
    with (
        Live(console=console, auto_refresh=False, transient=False)
        if console.is_terminal
        else contextlib.nullcontext() as live
    ):
        before, interval = 0, 0.25 if console.is_terminal else 1.0
        while ends is None or loop.time() < ends:
            await asyncio.sleep(min(interval, max(0.0, ends - loop.time())) if ends else interval)
            state = node.reactor("market").state()
            rate, before = (state.fires - before) / interval, state.fires
            if live is not None:
                live.update(view(node, rate), refresh=True)
            else:
                console.print(
                    f"market is {state.health}: {state.fires:,} firings, {rate:,.0f}/s, {state.failures} failed"
                )


def greet(state: tm.ReactorState, console: Console) -> None:
    """Say where the last run left off, if a store remembers one."""
    if state.cache.get("ticks"):
        position = state.cache.get("exposure", {}).get("position", 0)
        console.print(f"going on where the last run stopped: position {position:+d}, {len(state.cache['ticks'])} ticks")


async def run(seconds: float | None, seed: int, console: Console, store: str | None = None) -> tm.ReactorState:
    """Run node and view together; return how the reactor stood at the end."""
    world.chance.seed(seed)
    async with tm.Node(store=store, load=[market, maker]) as node:
        greet(node.reactor("market").state(), console)
        try:
            await show(node, console, seconds)
        except asyncio.CancelledError:
            console.print("stopping")
        return node.reactor("market").state()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long (default: at Ctrl-C)")
    parser.add_argument("--seed", type=int, default=7, help="seed of the random walk")
    parser.add_argument("--store", default=None, help="keep state here, such as sqlite:///market.db")
    parser.add_argument("--code", action="store_true", help="print the compiled graph and stop")
    options = parser.parse_args()
    console = Console()
    if options.code:
        console.print(maker.source_code, markup=False)
        return
    with contextlib.suppress(KeyboardInterrupt):
        state = asyncio.run(run(options.seconds, options.seed, console, options.store))
        console.print(
            f"{state.fires:,} firings, {state.failures} failed, {sum(state.dropped.values())} dropped; "
            f"position {state.cache.get('exposure', {}).get('position', 0):+d}"
        )


if __name__ == "__main__":
    main()
