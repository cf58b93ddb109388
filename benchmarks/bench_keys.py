"""Keyed reactors: throughput by the number of keys, with and without a store, and memory per key.

python -m benchmarks.bench_keys [--quick]

The bare loop keeps the latest of each feed in a dictionary by key, and calls the same functions. The reactor has one
partition, or as many as by default, all in one process; bench_partitions measures many processes. `--quick` has a tenth
of the keys.
"""

import asyncio
import gc
import statistics
import sys
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import tidemill as tm
from benchmarks.market_maker import ACCUMULATE, PATTERN, SOURCES, by_hand, ledger, make_event, maker, market
from benchmarks.measure import keep, ratio, show, take_turns, verdict
from tidemill.graphs.keys import DEFAULT_PARTITIONS
from tidemill.graphs.state import KeyCounts

ROUNDS, QUICK_ROUNDS = 35, 15
EVENTS, QUICK_EVENTS = 10_000, 4_000
STORED = (1, 1000, 100_000)  # keys of the nodes with a store, where to meet a million takes minutes
STORED_TOGETHER = 10_000  # keys that become idle after one checkpoint
ACTIVE = 1000  # keys that the node with idle keys keeps in memory


def key_of(event: dict[str, Any], keys: int) -> int:
    """Return the key of an event: each key gets a whole pattern of events in turn."""
    number: int = event["t"] // len(PATTERN) % keys
    return number


class Contestant(ABC):
    """Handles the events of all keys, from the first on."""

    def __init__(self) -> None:
        self.number = 0

    @abstractmethod
    def handle(self, numbers: Iterable[int]) -> None:
        """Handle the events with these numbers."""

    def run(self, events: int) -> None:
        """Handle the next events."""
        self.handle(range(self.number, self.number + events))
        self.number += events

    def meet(self, keys: int) -> None:
        """Handle the first event of each feed for every key: from then on, each event fires."""
        events = keys * len(PATTERN)
        self.handle(number for number in range(events) if number % len(PATTERN) < len(SOURCES))
        self.number = events


class Bare(Contestant):
    """The floor: keep the latest of each feed by key, and call the functions."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        self.keys = keys
        self.states: dict[int, list[Any]] = {}

    def handle(self, numbers: Iterable[int]) -> None:
        keys, states = self.keys, self.states
        for number in numbers:
            source, event = make_event(number, number)
            key = key_of(event, keys)
            latest = states.get(key)
            if latest is None:
                latest = states[key] = [None, None, None]
            latest[source] = ACCUMULATE[source](event)
            if None not in latest:
                by_hand(*latest)


class Engine(Contestant):
    """Tidemill through `node.handle`."""

    def __init__(self, node: tm.Node) -> None:
        super().__init__()
        self.handles = [node.handle(name) for name in SOURCES]

    def handle(self, numbers: Iterable[int]) -> None:
        handles = self.handles
        for number in numbers:
            source, event = make_event(number, number)
            handles[source](event)


def keyed_market(keys: int, partitions: int = 1) -> list[Any]:
    """Return the market maker with keys."""
    reactor = tm.Reactor("market", market.accumulators, key=lambda event: key_of(event, keys), partitions=partitions)
    graph = tm.Graph("market_maker", reactor=reactor)
    for node in maker.nodes:
        graph.node(node.function.call)
    return [reactor, graph]


async def throughput(keys: int, store: str | None, *, quick: bool, partitions: int = 1) -> dict[str, Any]:
    """Run events of every key through a bare loop and the engine, in turns; the first events of a key do not count."""
    ledger.clear()
    async with tm.Node(store, load=keyed_market(keys, partitions), settings={"active_keys": 10_000_000}) as node:
        bare, engine = Bare(keys), Engine(node)
        for contestant in (bare, engine):
            contestant.meet(keys)
        await node.settle()
        gc.collect()
        seconds: dict[str, list[float]] = {"bare": [], "tidemill": []}
        events = QUICK_EVENTS if quick else EVENTS
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            for name, values in take_turns({"bare": bare.run, "tidemill": engine.run}, events=events, rounds=1).items():
                seconds[name] += values
            await asyncio.sleep(0)  # a checkpoint may begin
    return {"keys": keys, "partitions": partitions, "store": store is not None, "seconds": seconds}


async def active_bytes(keys: int) -> float:
    """Return the memory that a node without a store takes for each key."""
    async with tm.Node(load=keyed_market(keys)) as node:
        gc.collect()
        tracemalloc.start()
        Engine(node).meet(keys)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return taken / keys


async def opened_bytes(store: str, keys: int) -> tuple[int, KeyCounts]:
    """Return the memory that a node takes when it has opened a store, and the number of its keys."""
    gc.collect()
    tracemalloc.start()
    async with tm.Node(store, load=keyed_market(keys), settings={"active_keys": ACTIVE}) as node:
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        counts = node.reactor("market").state().keys
    tracemalloc.stop()
    assert counts is not None, "it has a key"
    return taken, counts


async def memory(keys: int, folder: str) -> dict[str, Any]:
    """Measure the memory of a node, per active key without a store, and per idle key with one.

    A tenth of the keys is active: their size does not depend on their number, and watching them takes minutes.
    """
    figures: dict[str, Any] = {"keys": keys, "bytes per active key": await active_bytes(keys // 10)}
    idle, seldom = f"sqlite:///{folder}/idle.db", {"checkpoint_interval": "1h"}  # each key is written once, idle
    async with tm.Node(idle, load=keyed_market(keys), settings={"active_keys": ACTIVE, **seldom}) as node:
        for first in range(0, keys, STORED_TOGETHER):
            for source in range(len(SOURCES)):  # with all of them a key has nothing left to do
                numbers = range(source + first * len(PATTERN), (first + STORED_TOGETHER) * len(PATTERN), len(PATTERN))
                made = [make_event(number, number) for number in numbers]
                assert {one for one, _ in made} == {source}, "the pattern begins with one event of each source"
                await node.push_many(SOURCES[source], [event for _, event in made])
            await node.settle()
            ledger.clear()
    empty, _ = await opened_bytes(f"sqlite:///{folder}/empty.db", keys)
    opened, counts = await opened_bytes(idle, keys)
    figures |= {"active": counts.active, "stored": counts.stored}
    figures["bytes per idle key"] = (opened - empty) / counts.stored
    async with tm.Node(idle, load=keyed_market(keys), settings={"active_keys": ACTIVE}) as node:
        began = perf_counter()
        for number in range(0, ACTIVE * len(PATTERN), len(PATTERN)):
            await node.push(SOURCES[0], make_event(number, number)[1])
        figures["us per cold key"] = (perf_counter() - began) / ACTIVE * 1e6
    return figures


async def main(*, quick: bool) -> None:
    """Run everything, and keep the figures."""
    counts = (1, 1000, 100_000 if quick else 1_000_000)
    with TemporaryDirectory() as folder:
        runs = [await throughput(keys, None, quick=quick) for keys in counts]
        runs.append(await throughput(1000, None, quick=quick, partitions=DEFAULT_PARTITIONS))
        runs += [await throughput(keys, f"sqlite:///{folder}/{keys}.db", quick=quick) for keys in STORED]
        sizes = await memory(counts[-1], folder)
    rows = [
        [
            f"{one['keys']:,}",
            str(one["partitions"]),
            "sqlite" if one["store"] else "none",
            f"{1 / statistics.median(one['seconds']['tidemill']):,.0f}",
            f"{ratio(one['seconds']['bare'], one['seconds']['tidemill']):.2f}",
        ]
        for one in runs
    ]
    show("Keyed market maker", ["keys", "partitions", "store", "events/s", "of the bare loop"], rows)
    show("Memory", ["", ""], [[name, f"{value:,.0f}"] for name, value in sizes.items()])
    verdicts = [
        verdict(
            f"share of the bare loop, 1,000 keys, partitions={one['partitions']}",
            ratio(one["seconds"]["bare"], one["seconds"]["tidemill"]),
            0.5,
            at_least=True,
            is_ratio=True,
        )
        for one in (runs[1], runs[len(counts)])
    ]
    throughputs = [
        {
            **{name: value for name, value in one.items() if name != "seconds"},
            "of the bare loop": ratio(one["seconds"]["bare"], one["seconds"]["tidemill"]),
        }
        for one in runs
    ]
    keep("keys", {"throughput": throughputs, "memory": sizes, "verdicts": verdicts})


if __name__ == "__main__":
    asyncio.run(main(quick="--quick" in sys.argv))
