"""The workload: a market maker on three feeds, as a user would write it.

    orderbook, pricing, exposure  ->  combine -> decide -> (place | hold) -> audit

Boundaries are typed, the decision routes by union type. The same functions are called by hand in the bare loop, so
that a ratio shows the cost of the engine and nothing else.
"""

import random
from typing import Any

import tidemill as tm

# Ten events: six of the order book, three prices, one exposure; the first three are one of each.
PATTERN = (0, 1, 2, 0, 0, 1, 0, 1, 0, 0)
SOURCES = ("orderbook", "pricing", "exposure")
RING = 4093


class Book(tm.Boundary):
    """Best bid and ask."""

    at: int
    bid: float
    ask: float


class Price(tm.Boundary):
    """The fair price of the model."""

    at: int
    fair: float
    volatility: float


class Exposure(tm.Boundary):
    """Our position, and its limit."""

    at: int
    position: float
    limit: float


class Quote(tm.Boundary):
    """All three feeds at one moment."""

    at: int
    mid: float
    spread: float
    fair: float
    position: float
    limit: float


class Trade(tm.Boundary):
    """An order worth placing."""

    at: int
    side: float
    price: float


class Hold(tm.Boundary):
    """No order, and why."""

    at: int
    reason: str


class Action(tm.Boundary):
    """The action taken."""

    at: int
    name: str
    price: float


@tm.passthrough
def orderbook(event: dict) -> Book:
    return Book(event["t"], event["bid"], event["ask"])


@tm.passthrough
def pricing(event: dict) -> Price:
    return Price(event["t"], event["fair"], event["vol"])


@tm.passthrough
def exposure(event: dict) -> Exposure:
    return Exposure(event["t"], event["position"], event["limit"])


market = tm.Reactor("market", [orderbook, pricing, exposure], when="any", strategy="latest")
maker = tm.Graph("market_maker", reactor=market)


class Ledger:
    """The record of the terminal node: evaluations, orders, a checksum, and an optional observer."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.evaluations = self.orders = 0
        self.checksum = 0.0
        self.on_audit: Any = None


ledger = Ledger()


@maker.node
def combine(orderbook: Book, pricing: Price, exposure: Exposure) -> Quote:
    bid, ask = orderbook.bid, orderbook.ask
    at = max(orderbook.at, pricing.at, exposure.at)
    return Quote(at, (bid + ask) * 0.5, ask - bid, pricing.fair, exposure.position, exposure.limit)


@maker.node
def decide(combine: Quote) -> Trade | Hold:
    edge = combine.fair - combine.mid
    if abs(edge) > 0.6 * combine.spread:
        side = 1.0 if edge > 0 else -1.0
        if abs(combine.position + side) <= combine.limit:
            return Trade(combine.at, side, combine.mid + 0.25 * edge)
    return Hold(combine.at, "edge")


@maker.node
def place(decide: Trade) -> Action:
    return Action(decide.at, "place", decide.price * decide.side)


@maker.node
def hold(decide: Hold) -> Action:
    return Action(decide.at, "hold", 0.0)


@maker.node
def audit(place: Action | None, hold: Action | None) -> Action:
    book = ledger
    action = place or hold
    assert action is not None
    book.evaluations += 1
    if action.name == "place":
        book.orders += 1
        book.checksum += action.price
    if book.on_audit is not None:
        book.on_audit(action.at)
    return action


def by_hand(orderbook: Book, pricing: Price, exposure: Exposure) -> Action:
    """Call the nodes as a hand-written program would, without an engine."""
    decision = decide(combine(orderbook, pricing, exposure))
    if type(decision) is Trade:
        return audit(place(decision), None)
    return audit(None, hold(decision))


ACCUMULATE = tuple(one.function.call for one in (orderbook, pricing, exposure) if one.function)


def _random_walk() -> tuple[list[float], list[float], list[float], list[float]]:
    chance = random.Random(7)
    mid = 100.0
    bids, asks, fairs, positions = [], [], [], []
    for _ in range(RING):
        mid += chance.uniform(-0.02, 0.02)
        half = chance.uniform(0.01, 0.05)
        bids.append(round(mid - half, 4))
        asks.append(round(mid + half, 4))
        fairs.append(round(mid + chance.uniform(-0.08, 0.08), 4))
        positions.append(float(chance.randint(-60, 60)))
    return bids, asks, fairs, positions


BIDS, ASKS, FAIRS, POSITIONS = _random_walk()


def make_event(number: int, stamp: int) -> tuple[int, dict[str, Any]]:
    """Return event `number` as (index of its source, payload), stamped."""
    source = PATTERN[number % 10]
    k = number % RING
    if source == 0:
        return 0, {"t": stamp, "bid": BIDS[k], "ask": ASKS[k]}
    if source == 1:
        return 1, {"t": stamp, "fair": FAIRS[k], "vol": 0.2}
    return 2, {"t": stamp, "position": POSITIONS[k], "limit": 50.0}
