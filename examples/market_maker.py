"""A market maker on simulated feeds, with a live view in the terminal.

    python examples/market_maker.py                 until you press Ctrl-C
    python examples/market_maker.py --seconds 10    for a while
    python examples/market_maker.py --store sqlite:///market.db    and go on there next time, even after kill -9
    python examples/market_maker.py --code          show the function that the graph was compiled to

Three feeds are pushed, one is polled; whenever any of them has news, one compiled function decides whether to trade.
Its own ticks come back as a window, from which it reads the trend.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
from datetime import UTC

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import tidemill as tm

# -- what travels ------------------------------------------------------------------------------------------------------


class Book(tm.Boundary):
    """Best bid and ask."""

    bid: float
    ask: float


class Price(tm.Boundary):
    """What our model holds to be fair."""

    fair: float


class Fill(tm.Boundary):
    """An order that was executed."""

    side: int
    price: float


class Exposure(tm.Boundary):
    """Where we stand after all fills so far."""

    position: int = 0
    cash: float = 0.0


class Limits(tm.Boundary):
    """How far we may go."""

    position: int


class Trade(tm.Boundary):
    """An order worth placing."""

    side: int
    price: float


class Hold(tm.Boundary):
    """No order, and why."""

    reason: str


class Tick(tm.Boundary):
    """One decision, for the record."""

    mid: float
    traded: bool


# -- where it comes from -----------------------------------------------------------------------------------------------


@tm.passthrough
def orderbook(event: Book) -> Book | None:
    """Let sane books through; a crossed book says nothing."""
    return event if event.bid < event.ask else None


@tm.passthrough
def pricing(event: Price) -> Price:
    """Take every price of the model."""
    return event


@tm.passthrough(state=Exposure)
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
    """Hand the order to the exchange; here it is only returned."""
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


# -- the world, simulated ----------------------------------------------------------------------------------------------


async def simulate_market(node: tm.Node, chance: random.Random) -> None:
    """Push books and prices along a random walk, a few hundred a second."""
    mid = 100.0
    while True:
        for _ in range(5):
            mid += chance.gauss(0, 0.01)
            half = chance.uniform(0.01, 0.04)
            await node.push("orderbook", Book(round(mid - half, 3), round(mid + half, 3)))
        await node.push("pricing", {"fair": round(mid + chance.gauss(0, 0.02), 3)})
        await asyncio.sleep(0.02)


async def simulate_exchange(node: tm.Node, chance: random.Random) -> None:
    """Fill one order in five, and push the fill."""
    while True:
        firing = await node.reactor("market").next_firing()
        placed = firing.results["market_maker"].outputs.get("order")
        if placed is not None and chance.random() < 0.2:
            await node.push("exposure", Fill(placed.side, placed.price))


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
    """Run node, feeds and view together; return how the reactor stood at the end."""
    chance = random.Random(seed)
    async with tm.Node(store=store, load=[market, maker]) as node:
        greet(node.reactor("market").state(), console)
        try:
            async with asyncio.TaskGroup() as tasks:
                feeds = [
                    tasks.create_task(simulate_market(node, chance), name="feeds"),
                    tasks.create_task(simulate_exchange(node, chance), name="exchange"),
                ]
                await show(node, console, seconds)
                for feed in feeds:
                    feed.cancel()
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
