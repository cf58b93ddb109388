"""Pushes: awaited one by one, and many at once, beside a bare loop over the same functions.

The contestants take the same events of the market maker in turns; making the events does not count. A push of many
events has those of one feed, because it goes to one accumulator. Shares compare the 5th percentiles of short rounds:
what another process takes away during a round is no cost of a push. The second part compares pushes of many events with
single ones, by kind of reactor. The durable part writes each event to SQLite before it is acknowledged.

python -m benchmarks.bench_pushes [--quick]
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import tidemill as tm
from benchmarks.bare_driver import ROWS_PER_COMMIT, BareDriver
from benchmarks.bench_durability import load
from benchmarks.bench_journal import MEMORY
from benchmarks.bench_long_way import Kind, two_graphs, when_all, with_context, with_state
from benchmarks.market_maker import ACCUMULATE, SOURCES, by_hand, ledger, make_event, maker, market
from benchmarks.measure import console, keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict

BATCH = 1_000
"""Events of all feeds together in one round."""
WARM_UP = 2  # events before all three feeds have spoken
SHARE_OF_DRIVER = 0.12
"""Of the rows that the bare driver writes: it neither checks nor evaluates an event."""

Event = dict[str, Any]
Contestant = Callable[["Round"], Awaitable[None]]


class Round:
    """The events of one round: in order, and by feed."""

    def __init__(self, first: int) -> None:
        self.ordered = [make_event(number, number) for number in range(first, first + BATCH)]
        self.named = [(SOURCES[source], event) for source, event in self.ordered]
        self.by_feed = [
            (name, [event for source, event in self.ordered if source == index]) for index, name in enumerate(SOURCES)
        ]


def rounds_of(count: int) -> Iterator[Round]:
    """Yield rounds with growing numbers."""
    return (Round(number * BATCH) for number in range(count))


def bare_loop() -> Contestant:
    """Keep the latest of each feed and call the functions."""
    latest: list[Any] = [None, None, None]

    async def run(one: Round) -> None:
        for source, event in one.ordered:
            latest[source] = ACCUMULATE[source](event)
            if None not in latest:
                by_hand(*latest)

    return run


def awaited(node: tm.Node) -> Contestant:
    """Await the push of each event."""
    push = node.push

    async def run(one: Round) -> None:
        for name, event in one.named:
            await push(name, event)

    return run


def many(node: tm.Node) -> Contestant:
    """Await one push for the events of each feed."""
    push_many = node.push_many

    async def run(one: Round) -> None:
        for name, events in one.by_feed:
            summary = await push_many(name, events)
            assert not summary.problems, summary.problems

    return run


def handled(node: tm.Node) -> Contestant:
    """Push the events of each feed by its handle, without await."""
    pushes = {name: node.handle(name).many for name in SOURCES}

    async def run(one: Round) -> None:
        for name, events in one.by_feed:
            summary = pushes[name](events)
            assert not summary.problems, summary.problems

    return run


async def in_memory(rounds: int) -> dict[str, list[float]]:
    """Let each way push the same events in turns; return seconds per event, round by round."""
    ledger.clear()
    async with tm.Node(load=[market, maker]) as node:
        ways: dict[str, Contestant] = {
            "bare loop": bare_loop(),
            "await node.push": awaited(node),
            "await node.push_many": many(node),
            "handle.many": handled(node),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for one in rounds_of(rounds):
            for name, run in ways.items():
                began = perf_counter()
                await run(one)
                seconds[name].append((perf_counter() - began) / BATCH)
        fires = node.reactor("market").state().fires
    assert fires == (len(ways) - 1) * rounds * BATCH - WARM_UP, "an event was not evaluated"
    return seconds


def report_in_memory(seconds: dict[str, list[float]]) -> list[Verdict]:
    """Show the ways beside the bare loop."""
    steady = {name: percentile(values, 0.05) for name, values in seconds.items()}
    shares = {name: steady["bare loop"] / value for name, value in steady.items()}
    rows = [[name, f"{1 / one:,.0f}", f"{one * 1e6:.2f}", f"{shares[name]:.2f}"] for name, one in steady.items()]
    show("Pushes of the market maker, in memory", ["", "events/s", "us/event", "of the bare loop"], rows)
    floors = {"await node.push": 0.3, "await node.push_many": 0.55, "handle.many": 0.55}
    return [
        verdict(f"{name}, share of the bare loop", shares[name], floor, at_least=True, is_ratio=True)
        for name, floor in floors.items()
    ]


NOT_SLOWER = 1.05  # with what the clock of a process adds by chance
SINGLE = {"await node.push_many": "await node.push", "handle.many": "handle"}
"""The ways to push many events, and the same events one by one."""


def single_ways(node: tm.Node) -> dict[str, Contestant]:
    """Push the events of each feed one by one, awaited and by its handle."""
    push, handles = node.push, {name: node.handle(name) for name in SOURCES}

    async def run_awaited(one: Round) -> None:
        for name, events in one.by_feed:
            for event in events:
                await push(name, event)

    async def run_handled(one: Round) -> None:
        for name, events in one.by_feed:
            handle = handles[name]
            for event in events:
                handle(event)

    return {"await node.push": run_awaited, "handle": run_handled}


async def beside_single(kind: Kind, rounds: int) -> dict[str, float]:
    """Let each way push the same events of one kind of reactor in turns; return seconds per event."""
    ledger.clear()
    async with tm.Node(load=kind.load) as node:
        ways = {**single_ways(node), "await node.push_many": many(node), "handle.many": handled(node)}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for one in rounds_of(rounds):
            for name, run in ways.items():
                began = process_time()
                await run(one)
                seconds[name].append((process_time() - began) / BATCH)
    return {name: percentile(values, 0.05) for name, values in seconds.items()}


async def by_kind(rounds: int) -> list[Verdict]:
    """Show that pushes of many events are not slower than single ones, whatever the reactor has."""
    rows, verdicts = [], []
    for kind in (two_graphs(), with_context(), with_state(), when_all()):
        seconds = await beside_single(kind, rounds)
        rows.append([kind.name, *(f"{one * 1e6:.2f}" for one in seconds.values())])
        verdicts += [
            verdict(
                f"{kind.name}: {many}, times {single}",
                seconds[many] / seconds[single],
                NOT_SLOWER,
                at_least=False,
                is_ratio=True,
            )
            for many, single in SINGLE.items()
        ]
    show("CPU us of an event, by kind of reactor", ["", *seconds], rows)
    return verdicts


class Durable(NamedTuple):
    """What one event costs, in seconds, round by round; and the bare driver, which took turns with it."""

    wall: list[float]
    cpu: list[float]
    driver: BareDriver

    @property
    def share_of_driver(self) -> float:
        """The rate of events per second of CPU beside that of the driver's rows: other processes change neither."""
        return ratio(self.driver.cpu, self.cpu)


async def durable(parent: Path | None, rounds: int) -> Durable:
    """Push many events at a time with durability="boundary", in turns with the bare driver."""
    ledger.clear()
    wall, cpu = [], []
    with tempfile.TemporaryDirectory(dir=parent) as name, closing(BareDriver(Path(name))) as driver:
        async with tm.Node(store=f"sqlite:///{name}/node.db", load=load("boundary", "sequential")) as node:
            run = many(node)
            for one in rounds_of(rounds):
                began, began_cpu = perf_counter(), process_time()
                await run(one)
                wall.append((perf_counter() - began) / BATCH)
                cpu.append((process_time() - began_cpu) / BATCH)
                driver.run(BATCH)
    return Durable(wall, cpu, driver)


def report_durable(in_memory: Durable, on_disk: Durable) -> list[Verdict]:
    """Show the rate of durable pushes, and what an event costs."""
    title = f'await node.push_many with durability="boundary" on SQLite, {BATCH:,} events of three feeds at a time'
    rows = [
        [
            name,
            f"{1 / statistics.median(one.wall):,.0f}",
            f"{statistics.median(one.cpu) * 1e6:.1f}",
            f"{one.share_of_driver:.2f}",
        ]
        for name, one in (("a file in memory", in_memory), ("a file on the disk", on_disk))
    ]
    show(title, ["push_many", "events/s", "CPU us/event", "of the bare driver, by CPU"], rows)
    console.print(f"  The bare driver commits {ROWS_PER_COMMIT} rows. The rates need a disk that nothing else uses.")
    rate, cpu = 1 / statistics.median(on_disk.wall), statistics.median(on_disk.cpu) * 1e6
    share = in_memory.share_of_driver
    what = "durable push_many, a file in memory, share of the bare driver by CPU"
    return [
        verdict("durable push_many, events/s", rate, 55_000, at_least=True),
        verdict("durable push_many, CPU us/event", cpu, 17, at_least=False),
        verdict(what, share, SHARE_OF_DRIVER, at_least=True, is_ratio=True),
    ]


async def run(*, quick: bool) -> dict[str, Any]:
    """Run everything, print tables, return the figures."""
    seconds = await in_memory(60 if quick else 600)
    verdicts = report_in_memory(seconds) + await by_kind(40 if quick else 200)
    rounds = 30 if quick else 300
    verdicts += report_durable(await durable(MEMORY, rounds), await durable(None, rounds))
    return {"verdicts": verdicts}


def main() -> None:
    """Measure, and write the figures."""
    keep("pushes", asyncio.run(run(quick="--quick" in sys.argv)))


if __name__ == "__main__":
    main()
