"""A reactor for browser tests: quiet until someone pushes, with a feed that a file breaks."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import tidemill as tm

FEED_LOST = Path(os.environ["TIDEMILL_TEST_FEED_LOST"])
"""While this file exists, the feed has no connection."""


class Book(tm.Boundary):
    """Best bid and ask."""

    bid: float
    ask: float


class Fair(tm.Boundary):
    """The fair price of our model."""

    price: float


class Buy(tm.Boundary):
    """An order worth placing."""

    price: float


class Wait(tm.Boundary):
    """No order, and why."""

    reason: str


class Model:
    """The feed of fair prices: one price for each connection."""

    async def start(self, reached: int | None) -> AsyncIterator[tuple[Fair, int]]:
        """Connect, or fail as long as the feed is lost."""
        if FEED_LOST.exists():
            raise ConnectionError("the model does not answer")
        return self._prices(reached or 0)

    async def _prices(self, reached: int) -> AsyncIterator[tuple[Fair, int]]:
        yield Fair(100.0), reached + 1
        while not FEED_LOST.exists():  # noqa: ASYNC110 - another process makes the file
            await asyncio.sleep(0.05)
        raise ConnectionError("the model hung up")


@tm.stream(Model())
def model(event: Fair) -> Fair:
    """Take every price."""
    return event


@tm.passthrough
def book(event: Book) -> Book:
    """Take every book."""
    return event


@tm.passthrough
def parcels(event: Book) -> Book:
    """Take every parcel; none ever comes."""
    return event


stockroom = tm.Reactor("stockroom", [parcels], when=tm.any_of(parcels))
shop = tm.Reactor("shop", [book, model], when=tm.any_of(book), owner="desk", description="Prices of one shop.")
trader = tm.Graph("trader", reactor=shop, description="Buys below the fair price.")


@trader.node
def decide(book: Book, model: Fair) -> Buy | Wait:
    """Buy what is cheaper than it should be."""
    if book.bid > book.ask:
        print("bid", book.bid, "is above ask", book.ask)
        logging.getLogger("checks").warning("a crossed book")
        raise ValueError("the book is crossed")
    return Buy(book.ask) if book.ask < model.price else Wait("too dear")


@trader.node
def order(decide: Buy) -> Buy:
    """Place an order."""
    return decide


@trader.node
def idle(decide: Wait) -> str:
    """Return why there is none."""
    return decide.reason


class Quote(tm.Boundary):
    """A price of one instrument."""

    symbol: str
    price: float


@tm.passthrough
def quotes(event: Quote) -> Quote:
    """Take every quote."""
    return event


tickers = tm.Reactor("tickers", [quotes], key="symbol")
watch = tm.Graph("watch", reactor=tickers)


@watch.node
def seen(quotes: Quote) -> float:
    """Return the price."""
    return quotes.price
