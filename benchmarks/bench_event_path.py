"""The event path: throughput and latency of the engine, beside a bare loop over the same functions.

python -m benchmarks.bench_event_path [--quick]
"""

import asyncio
import gc
import statistics
import sys
from collections.abc import Callable
from time import perf_counter, perf_counter_ns
from typing import Any

import tidemill as tm
from benchmarks.market_maker import (
    ACCUMULATE,
    SOURCES,
    Book,
    Exposure,
    Price,
    by_hand,
    ledger,
    make_event,
    maker,
    market,
)
from benchmarks.measure import keep, percentile, ratio, show, take_turns, verdict
from benchmarks.result_files import Verdict

WARM_UP = 2  # events before all three feeds have spoken
CALLED_CEILING = 1.95  # times the nodes by hand; an object that does no more than call them takes 1.5, see design 0081
HELD_CEILING = 1.4  # as above; a function that is called by keyword takes 1.08


class Bare:
    """The floor: keep the latest of each feed and call the functions."""

    def __init__(self, by_hand: Callable[..., object] = by_hand) -> None:
        self.latest: list[Any] = [None, None, None]
        self.number = 0
        self.by_hand = by_hand

    def run(self, events: int) -> None:
        latest, by_hand = self.latest, self.by_hand
        for number in range(self.number, self.number + events):
            source, event = make_event(number, number)
            latest[source] = ACCUMULATE[source](event)
            if number >= WARM_UP:
                by_hand(*latest)
        self.number += events


class Engine:
    """Tidemill through `node.handle`."""

    def __init__(self, node: tm.Node) -> None:
        self.handles = [node.handle(name) for name in SOURCES]
        self.number = 0

    def run(self, events: int) -> None:
        handles = self.handles
        for number in range(self.number, self.number + events):
            source, event = make_event(number, number)
            handles[source](event)
        self.number += events


class Queue:
    """The usual alternative: a producer, an asyncio.Queue, a consumer."""

    def __init__(self) -> None:
        self.latest: list[Any] = [None, None, None]
        self.number = 0

    async def run(self, events: int) -> None:
        queue: asyncio.Queue[tuple[int, int, dict[str, Any]]] = asyncio.Queue(1024)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._produce(queue, events))
            tasks.create_task(self._consume(queue, events))
        self.number += events

    async def _produce(self, queue: "asyncio.Queue[tuple[int, int, dict[str, Any]]]", events: int) -> None:
        for number in range(self.number, self.number + events):
            await queue.put((number, *make_event(number, number)))

    async def _consume(self, queue: "asyncio.Queue[tuple[int, int, dict[str, Any]]]", events: int) -> None:
        latest = self.latest
        for _ in range(events):
            number, source, event = await queue.get()
            latest[source] = ACCUMULATE[source](event)
            if number >= WARM_UP:
                by_hand(*latest)


light = tm.Graph("light", reactor="market")


@light.node
def edge(orderbook: Book, pricing: Price) -> float:
    return pricing.fair - orderbook.bid


@light.node
def is_open(edge: float, exposure: Exposure) -> bool:
    return edge > 0.0 and exposure.position < exposure.limit


def light_by_hand(orderbook: Book, pricing: Price, exposure: Exposure) -> bool:
    """Call the nodes of the lighter graph."""
    return is_open(edge(orderbook, pricing), exposure)


async def lighter_nodes(rounds: int, events: int) -> list[Verdict]:
    """The same events through two nodes that do almost nothing, so that the engine is most of what an event costs."""
    async with tm.Node(load=[market, light]) as node:
        contestants = {"bare": Bare(light_by_hand).run, "tidemill": Engine(node).run}
        seconds = take_turns(contestants, events=events, rounds=rounds)
        fires = node.reactor("market").state().fires
    assert fires == rounds * events - WARM_UP, "an event was not evaluated"
    share = ratio(seconds["bare"], seconds["tidemill"])
    rows = [[name, f"{statistics.median(values) * 1e6:.2f}"] for name, values in seconds.items()]
    show("Every event evaluated, by nodes that do almost nothing", ["", "us/event"], rows)
    return [verdict("lighter nodes, share of the bare loop", share, 0.55, at_least=True, is_ratio=True)]


async def throughput(rounds: int, events: int) -> dict[str, Any]:
    """Every event evaluated, as fast as possible: bare loop, engine and queue in turns."""
    ledger.clear()
    async with tm.Node(load=[market, maker]) as node:
        bare, engine, queue = Bare(), Engine(node), Queue()
        seconds: dict[str, list[float]] = {"bare": [], "tidemill": [], "queue": []}
        for _ in range(rounds):
            turn = take_turns({"bare": bare.run, "tidemill": engine.run}, events=events, rounds=1)
            began = perf_counter()
            await queue.run(events)
            turn["queue"] = [(perf_counter() - began) / events]
            for name, values in turn.items():
                seconds[name] += values
        state = node.reactor("market").state()
    assert state.fires == rounds * events - WARM_UP, "an event was not evaluated"
    return {"seconds": seconds, "evaluations": ledger.evaluations}


def report_throughput(figures: dict[str, Any]) -> list[Verdict]:
    """Show throughput and the ratio to the bare loop."""
    seconds = figures["seconds"]
    rows = [
        [
            name,
            f"{1 / statistics.median(values):,.0f}",
            f"{statistics.median(values) * 1e6:.2f}",
            f"{ratio(seconds['bare'], values):.2f}",
        ]
        for name, values in seconds.items()
    ]
    show("Every event evaluated (market maker)", ["", "events/s", "us/event", "of the bare loop"], rows)
    return [
        verdict(
            "share of the bare loop", ratio(seconds["bare"], seconds["tidemill"]), 0.7, at_least=True, is_ratio=True
        )
    ]


async def latency(seconds: float, rate: int = 1000) -> dict[str, list[float]]:
    """Pace events, in turns of a quarter second; record microseconds from just before the push to the terminal node."""
    ledger.clear()
    waited: dict[str, list[float]] = {"bare": [], "tidemill": []}
    async with tm.Node(load=[market, maker]) as node:
        handles = [node.handle(name) for name in SOURCES]
        latest: list[Any] = [None, None, None]

        def push_bare(source: int, event: dict[str, Any]) -> None:
            latest[source] = ACCUMULATE[source](event)
            if None not in latest:
                by_hand(*latest)

        def push(source: int, event: dict[str, Any]) -> None:
            handles[source](event)

        for _ in range(int(seconds * 4)):
            await _paced(push_bare, waited["bare"], rate)
            await _paced(push, waited["tidemill"], rate)
    ledger.clear()
    return waited


async def _paced(push: Callable[[int, dict[str, Any]], None], waited: list[float], rate: int) -> None:
    ledger.on_audit = lambda stamp: waited.append((perf_counter_ns() - stamp) / 1000)
    began = perf_counter()
    for number in range(rate // 4):
        await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
        source, event = make_event(number, perf_counter_ns())
        push(source, event)


def report_latency(waited: dict[str, list[float]]) -> list[Verdict]:
    """Show the percentiles of paced latency."""
    shares = (0.5, 0.99, 1.0)
    rows = [[name, *(f"{percentile(values, share):.1f}" for share in shares)] for name, values in waited.items()]
    show("Push to terminal node, paced at 1,000/s (us)", ["", "p50", "p99", "max"], rows)
    ours = waited["tidemill"][200:]
    return [
        verdict("paced push, p50 us", percentile(ours, 0.5), 10, at_least=False),
        verdict("paced push, p99 us", percentile(ours, 0.99), 60, at_least=False),
    ]


class ByKeyword:
    """An object that calls the nodes by hand: the least that an object costs which is called by keyword."""

    __slots__ = ()

    def __call__(self, *, orderbook: Book, pricing: Price, exposure: Exposure) -> object:
        """Call the nodes."""
        return by_hand(orderbook, pricing, exposure)


def direct_calls(rounds: int, events: int) -> list[Verdict]:
    """`graph(...)` beside the nodes called by hand, and beside an object that does no more than call them."""
    call_nodes = ByKeyword()
    _, book = make_event(0, 0)
    _, price = make_event(1, 1)
    _, held = make_event(2, 2)
    inputs = [accumulate(event) for accumulate, event in zip(ACCUMULATE, (book, price, held), strict=True)]
    orderbook, pricing, exposure = inputs

    def hand(count: int) -> None:
        for _ in range(count):
            by_hand(orderbook, pricing, exposure)

    def bare(count: int) -> None:
        for _ in range(count):
            call_nodes(orderbook=orderbook, pricing=pricing, exposure=exposure)

    def graph(count: int) -> None:
        for _ in range(count):
            maker(orderbook=orderbook, pricing=pricing, exposure=exposure)

    def held(count: int) -> None:
        call = maker.__call__
        for _ in range(count):
            call(orderbook=orderbook, pricing=pricing, exposure=exposure)

    graph(1)
    contestants = {"by hand": hand, "object(...)": bare, "graph(...)": graph, "graph.__call__, held": held}
    seconds = take_turns(contestants, events=events, rounds=rounds)
    hand_made = seconds["by hand"]
    rows = [
        [name, f"{statistics.median(values) * 1e9:,.0f}", f"{ratio(values, hand_made):.2f}"]
        for name, values in seconds.items()
    ]
    show("A graph called directly", ["", "ns/call", "of by hand"], rows)
    return [
        verdict(
            "graph(...), times by hand",
            ratio(seconds["graph(...)"], hand_made),
            CALLED_CEILING,
            at_least=False,
            is_ratio=True,
        ),
        verdict(
            "held, times by hand",
            ratio(seconds["graph.__call__, held"], hand_made),
            HELD_CEILING,
            at_least=False,
            is_ratio=True,
        ),
    ]


def main() -> None:
    """Run all, print tables, write the figures."""
    quick = "--quick" in sys.argv
    rounds, events = (20, 2_000) if quick else (150, 2_000)
    gc.collect()
    figures = asyncio.run(throughput(rounds, events))
    verdicts = report_throughput(figures)
    verdicts += asyncio.run(lighter_nodes(rounds, events))
    verdicts += direct_calls(rounds, 1_000)
    verdicts += report_latency(asyncio.run(latency(0.5 if quick else 8.0)))
    medians = {name: statistics.median(values) * 1e6 for name, values in figures["seconds"].items()}
    keep("event_path", {"verdicts": verdicts, "us per event": medians})


if __name__ == "__main__":
    main()
