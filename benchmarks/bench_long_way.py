"""The long way: what an event costs in every kind of reactor that is more than one plain synchronous graph.

Each kind is the market maker with one thing added, beside a bare loop that does the same work by hand.

python -m benchmarks.bench_long_way [--quick]
"""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

import tidemill as tm
from benchmarks.market_maker import (
    ACCUMULATE,
    SOURCES,
    Action,
    Book,
    Exposure,
    Price,
    Quote,
    audit,
    by_hand,
    combine,
    decide,
    exposure,
    hold,
    ledger,
    make_event,
    orderbook,
    place,
    pricing,
)
from benchmarks.measure import UNDISTURBED, keep, percentile, show, take_turns, verdict
from benchmarks.result_files import Verdict

CEILING = 2.5  # times the bare loop: 3.5 us beside 1.4 us
FOLLOWED_CEILING = 5.5
"""For a reactor that a workflow follows. After each firing it asks what the workflow takes of it, and builds the record
of the firing for that, with the id that a run would have. Other reactors build records when the log is read."""
SOURCE_LIST = (orderbook, pricing, exposure)
MAKER_NODES = (combine, decide, place, hold, audit)


class Depth(Book):
    """Best bid and ask, and how many there were."""

    at: int = 0
    bid: float = 0.0
    ask: float = 0.0
    total: int = 0


Latest = list[Any]
ByHand = Callable[[int, Latest], object]
"""Does the work of one firing by hand: it takes the source of the event and the latest boundaries."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of reactor: what the node loads, and the same work by hand."""

    name: str
    load: list[Any]
    by_hand: ByHand
    ceiling: float = CEILING
    """How many times the bare loop it may cost."""


def _declare(name: str, *, sources: tuple[Any, ...] = SOURCE_LIST, **options: Any) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor with the market maker as its graph."""
    reactor = tm.Reactor(name, sources, **options)
    graph = tm.Graph(f"{name}_maker", reactor=reactor)
    for node in MAKER_NODES:
        graph.node(node)
    return reactor, graph


def _fire(_: int, latest: Latest) -> Action:
    return by_hand(*latest)


def two_graphs() -> Kind:
    """A second graph reads one of the feeds."""
    reactor, graph = _declare("two")
    other = tm.Graph("two_other", reactor=reactor)

    @other.node
    def spread(orderbook: Book) -> float:
        return orderbook.ask - orderbook.bid

    def fire(_: int, latest: Latest) -> None:
        by_hand(*latest)
        spread(latest[0])

    return Kind("two graphs", [reactor, graph, other], fire)


def with_context() -> Kind:
    """A node takes the context of the firing."""
    reactor, graph = _declare("context")

    @graph.node
    def stamp(ctx: tm.Context, orderbook: Book) -> int:  # noqa: ARG001 - only that it is there is measured
        return orderbook.at

    def fire(_: int, latest: Latest) -> None:
        by_hand(*latest)
        stamp(None, latest[0])

    return Kind("tm.Context", [reactor, graph], fire)


def with_window() -> Kind:
    """A node reads the newest 16 results of another one."""
    recent = tm.window("recent", float, capacity=16)
    reactor, graph = _declare("windowed", sources=(*SOURCE_LIST, recent))

    @graph.node(feeds=recent)
    def middle(combine: Quote) -> float:
        return combine.mid

    @graph.node
    def drift(recent: list[float], pricing: Price) -> float:
        return pricing.fair - recent[0] if recent else 0.0

    kept: deque[float] = deque(maxlen=16)

    def fire(_: int, latest: Latest) -> None:
        drift(list(kept), latest[1])
        by_hand(*latest)
        kept.append(middle(combine(*latest)))

    return Kind("window", [reactor, graph], fire)


def beside_a_batch() -> Kind:
    """The reactor has a batch, which every firing flushes."""

    @tm.batch(every=3600.0)
    def fills(events: list[float]) -> float:
        return sum(events)

    reactor, graph = _declare("batched", sources=(*SOURCE_LIST, fills))
    return Kind("beside a batch", [reactor, graph], _fire)


def when_all(name: str = 'when="all"', **options: Any) -> Kind:
    """The reactor fires when all three feeds have spoken."""
    reactor, graph = _declare(f"all_{options.get('strategy', 'latest')}", when="all", **options)
    fresh: set[int] = set()

    def fire(source: int, latest: Latest) -> None:
        fresh.add(source)
        if len(fresh) == 3:
            fresh.clear()
            by_hand(*latest)

    return Kind(name, [reactor, graph], fire)


def with_state() -> Kind:
    """The accumulator of the order book keeps a running state."""

    @tm.passthrough(state=Depth)
    def orderbook(event: dict, state: Depth) -> Depth:
        return Depth(event["t"], event["bid"], event["ask"], state.total + 1)

    reactor, graph = _declare("stateful", sources=(orderbook, pricing, exposure))
    newest = Depth()

    def fire(source: int, latest: Latest) -> None:
        nonlocal newest
        if source == 0:
            book = latest[0]
            newest = Depth(book.at, book.bid, book.ask, newest.total + 1)
        by_hand(newest, latest[1], latest[2])

    return Kind("running state", [reactor, graph], fire)


def followed() -> Kind:
    """A workflow follows a node that returns nothing most of the time."""
    reactor, graph = _declare("followed")

    @graph.node
    def alarm(exposure: Exposure) -> Action | None:
        return Action(exposure.at, "alarm", 0.0) if exposure.position > exposure.limit * 10 else None

    follower = tm.Workflow("on_alarm", triggers=[tm.on_output(graph, "alarm")])

    @follower.task
    def note() -> None: ...

    def fire(_: int, latest: Latest) -> None:
        by_hand(*latest)
        alarm(latest[2])

    return Kind("followed by a workflow", [reactor, graph, follower], fire, FOLLOWED_CEILING)


KINDS = (
    two_graphs,
    with_context,
    with_window,
    beside_a_batch,
    when_all,
    lambda: when_all('when="all", sequential', strategy="sequential"),
    with_state,
    followed,
)


async def measure(kind: Kind, rounds: int, events: int) -> dict[str, list[float]]:
    """Let the bare loop and the engine handle the same events in turns; return seconds per event."""
    ledger.clear()
    latest: Latest = [None, None, None]
    async with tm.Node(load=kind.load) as node:
        handles = [node.handle(name) for name in SOURCES]

        def bare(events: int) -> None:
            for number in range(events):
                source, event = make_event(number, number)
                latest[source] = ACCUMULATE[source](event)
                kind.by_hand(source, latest)

        def engine(events: int) -> None:
            for number in range(events):
                source, event = make_event(number, number)
                handles[source](event)

        for number in range(3):
            source, event = make_event(number, number)
            latest[source] = ACCUMULATE[source](event)
            handles[source](event)
        seconds: dict[str, list[float]] = {"bare": [], "tidemill": []}
        for _ in range(rounds):
            turn = take_turns({"bare": bare, "tidemill": engine}, events=events, rounds=1)
            await asyncio.sleep(0)
            for name, values in turn.items():
                seconds[name] += values
        fires = node.reactor(kind.load[0].name).state().fires
    assert fires > 0, f"{kind.name}: nothing fired"
    return seconds


def report(found: list[tuple[Kind, dict[str, list[float]]]]) -> list[Verdict]:
    """Show the cost of an event of each kind, and whether it keeps its ceiling."""
    rows, multiples = [], []
    for kind, seconds in found:
        bare, ours = (percentile(seconds[one], UNDISTURBED) * 1e6 for one in ("bare", "tidemill"))
        rows.append([kind.name, f"{bare:.2f}", f"{ours:.2f}", f"{ours / bare:.2f}"])
        multiples.append((kind, ours / bare))
    show("An event, by kind of reactor", ["", "bare us", "tidemill us", "times the bare loop"], rows)
    return [
        verdict(f"{kind.name}, times the bare loop", multiple, kind.ceiling, at_least=False, is_ratio=True)
        for kind, multiple in multiples
    ]


def main() -> None:
    """Run all, print a table, write the figures."""
    quick = "--quick" in sys.argv
    rounds, events = (20, 1_000) if quick else (150, 1_000)
    gc.collect()
    found = [(kind, asyncio.run(measure(kind, rounds, events))) for kind in [make() for make in KINDS]]
    keep("long_way", {"verdicts": report(found)})


if __name__ == "__main__":
    main()
