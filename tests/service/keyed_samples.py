"""A keyed reactor that tests share between nodes, and what its graph has seen of each key."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tidemill as tm
from tidemill.engine.graphs.partitions.sharing import running_numbers

PARTITIONS = 8


class Order(tm.Boundary):
    """An event with a key."""

    key: str
    number: int


class KeyedSample(NamedTuple):
    """Reactor `orders` with graph `ledger`, and the numbers that the graph has seen, by key."""

    reactor: tm.Reactor
    graph: tm.Graph
    seen: dict[str, list[int]]

    @property
    def load(self) -> list[Any]:
        """Return what a node has to load."""
        return [self.reactor, self.graph]


def ignore(order: Order) -> None:
    """Do nothing with an order."""


def keyed(act: Callable[[Order], Any] = ignore, **options: Any) -> KeyedSample:
    """Return reactor `orders` over passthrough `placed` with graph `ledger`, which records each order by its key."""

    @tm.passthrough
    def placed(event: Order) -> Order | None:
        return None if event.number < 0 else event

    arguments: dict[str, Any] = {"strategy": "sequential", "key": "key", "partitions": PARTITIONS}
    reactor = tm.Reactor("orders", [placed], **(arguments | options))
    graph = tm.Graph("ledger", reactor=reactor)
    seen: dict[str, list[int]] = {}

    @graph.node
    def enter(placed: Order) -> int:
        seen.setdefault(placed.key, []).append(placed.number)
        act(placed)
        return placed.number

    return KeyedSample(reactor, graph, seen)


def running_partitions(node: tm.Node) -> list[int]:
    """Return the partitions of `orders` that a node runs now, and has neither lost nor is about to hand over."""
    scheduler = node._scheduler
    loaded = scheduler.loaded.keyed.get(("public", "orders"))
    numbers = [] if loaded is None else running_numbers(scheduler.loaded, loaded)
    return [number for number in numbers if loaded is not None and scheduler.loaded.runs(loaded.reactor_part(number))]


def order(key: str, number: int) -> dict[str, Any]:
    """Return an event as a caller sends it."""
    return {"key": key, "number": number}
