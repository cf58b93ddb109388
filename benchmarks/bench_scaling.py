"""Scaling: an event must not pay for accumulators and nodes that it does not touch.

python -m benchmarks.bench_scaling [--quick]
"""

import asyncio
import statistics
import sys
from collections.abc import Callable
from typing import Any

import tidemill as tm
from benchmarks.measure import keep, ratio, show, take_turns, verdict

SIZES = (1, 10, 100)


def _function(name: str, parameters: str, body: str) -> Callable[..., Any]:
    """Create a function as an author would write it."""
    namespace: dict[str, Any] = {}
    exec(f"def {name}({parameters}) -> float:\n    return {body}\n", namespace)
    return namespace[name]


def with_accumulators(count: int) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor with many accumulators, whose graph reads the first only."""
    sources = [tm.passthrough(_function(f"feed_{number}", "event: float", "event + 1.0")) for number in range(count)]
    reactor = tm.Reactor(f"wide_{count}", sources)
    graph = tm.Graph(f"wide_graph_{count}", reactor=reactor)
    graph.node(_function("double", "feed_0: float", "feed_0 * 2.0"))
    return reactor, graph


def with_branches(count: int) -> tuple[tm.Reactor, tm.Graph]:
    """Return a graph of many nodes behind a route that is not taken."""
    graph = tm.Graph(f"branchy_graph_{count}")

    @tm.passthrough
    def value(event: float) -> float:
        return event

    reactor = tm.Reactor(f"branchy_{count}", [value])
    graph.reactor = reactor

    @graph.node(ignores=[str])
    def choose(value: float) -> float | int | str:
        return value

    graph.node(_function("taken", "choose: float", "choose * 2.0"))
    graph.node(_function("other_0", "choose: int", "choose + 1.0"))
    for number in range(1, count):
        graph.node(_function(f"other_{number}", f"other_{number - 1}: float", f"other_{number - 1} + 1.0"))
    return reactor, graph


def with_chain(count: int) -> tuple[tm.Reactor, tm.Graph]:
    """Return a graph that is a chain of many nodes, all of which run."""

    @tm.passthrough
    def value(event: float) -> float:
        return event

    reactor = tm.Reactor(f"chain_{count}", [value])
    graph = tm.Graph(f"chain_graph_{count}", reactor=reactor)
    graph.node(_function("node_0", "value: float", "value + 1.0"))
    for number in range(1, count):
        graph.node(_function(f"node_{number}", f"node_{number - 1}: float", f"node_{number - 1} + 1.0"))
    return reactor, graph


async def measure(make: Callable[[int], tuple[tm.Reactor, tm.Graph]], feed: str, rounds: int) -> dict[int, list[float]]:
    """Return seconds per event for each size, measured in turns."""
    async with _Nodes() as nodes:
        contestants = {}
        for size in SIZES:
            reactor, graph = make(size)
            node = await nodes.add(reactor, graph)
            handle = node.handle(feed)
            handle(1.0)
            contestants[str(size)] = _pusher(handle)
        seconds = take_turns(contestants, events=1_000, rounds=rounds)
    return {int(size): values for size, values in seconds.items()}


def _pusher(handle: Callable[[Any], Any]) -> Callable[[int], None]:
    def run(events: int) -> None:
        for _ in range(events):
            handle(1.0)

    return run


class _Nodes:
    """Several nodes at once, so that sizes can be measured in turns."""

    def __init__(self) -> None:
        self._open: list[tm.Node] = []

    async def __aenter__(self) -> "_Nodes":
        return self

    async def add(self, *load: Any) -> tm.Node:
        node = tm.Node(load=load)
        await node.__aenter__()
        self._open.append(node)
        return node

    async def __aexit__(self, *_: object) -> None:
        for node in self._open:
            await node.__aexit__(None, None, None)


def main() -> None:
    """Run all, print tables, write the figures."""
    rounds = 20 if "--quick" in sys.argv else 150
    verdicts = []
    for title, make, feed in (
        ("accumulators that the event does not touch", with_accumulators, "feed_0"),
        ("nodes behind an untaken route", with_branches, "value"),
    ):
        seconds = asyncio.run(measure(make, feed, rounds))
        rows = [[str(size), f"{statistics.median(values) * 1e9:,.0f}"] for size, values in seconds.items()]
        show(f"Cost per event with 1, 10, 100 {title}", ["", "ns/event"], rows)
        growth = ratio(seconds[100], seconds[1])
        verdicts.append(verdict(f"100 against 1 {title}", growth, 1.1, at_least=False, is_ratio=True))
    seconds = asyncio.run(measure(with_chain, "value", rounds))
    rows = [
        [str(size), f"{statistics.median(v) * 1e9:,.0f}", f"{statistics.median(v) / size * 1e9:,.0f}"]
        for size, v in seconds.items()
    ]
    show("Cost per event with 1, 10, 100 nodes that all run", ["", "ns/event", "ns/node"], rows)
    keep("scaling", {"verdicts": verdicts})


if __name__ == "__main__":
    main()
