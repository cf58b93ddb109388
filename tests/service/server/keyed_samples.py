"""A keyed reactor for tests of the server, its clients and its commands."""

from typing import Any

import tidemill as tm


class Trade(tm.Boundary):
    """A price of a symbol at a venue."""

    symbol: str
    price: float
    venue: str = ""


def keyed_market() -> list[Any]:
    """Return reactor `market` with a state for each key, and a graph that doubles prices.

    The key is the symbol; with a venue it is a tuple, and of digits a number.
    """

    @tm.passthrough
    def trades(event: Trade) -> Trade:
        return event

    market = tm.Reactor("market", [trades], key=_key_of, partitions=4)
    maker = tm.Graph("maker", reactor=market)

    @maker.node
    def double(trades: Trade) -> float:
        if trades.price < 0:
            raise ValueError("negative price")
        return trades.price * 2

    return [market, maker]


def _key_of(event: Trade) -> Any:
    if event.venue:
        return event.venue, event.symbol
    return int(event.symbol) if event.symbol.isdecimal() else event.symbol
