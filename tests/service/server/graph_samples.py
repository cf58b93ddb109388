"""Graphs for tests of the server: a market whose node routes by class, and fails on purpose."""

from typing import Any

import tidemill as tm


class Quote(tm.Boundary):
    """An event of the order book."""

    bid: float
    ask: float = 0.0


def market(**options: Any) -> list[Any]:
    """Return reactor `market` over accumulator `orderbook`, and graph `maker`, whose node fails on a bid of 13."""

    @tm.passthrough
    def orderbook(event: Quote) -> Quote | None:
        return None if event.bid < 0 else event

    reactor = tm.Reactor("market", [orderbook], **options)
    maker = tm.Graph("maker", reactor=reactor)

    @maker.node
    def price(orderbook: Quote) -> float:
        if orderbook.bid == 13:
            raise ValueError("unlucky")
        return orderbook.bid

    return [reactor, maker]


def double() -> tm.Graph:
    """Return graph `double`, which is only called."""
    graph = tm.Graph("double")

    @graph.node
    def out(number: int) -> int:
        return 2 * number

    return graph
