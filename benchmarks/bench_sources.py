"""Events per second of each source of files and of the network, without a store and with every event committed.

Each source delivers the same small events to a sequential reactor with one graph. The servers of the network run in
processes of their own. The pushes of one task, `await node.push(...)`, are measured in the same run: no source that
delivers event by event can be faster.

python -m benchmarks.bench_sources [--quick]
"""

import asyncio
import csv
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow
from pyarrow import parquet

import tidemill as tm
from benchmarks.measure import keep, show
from tests.system.brokers import free_port
from tests.system.source_harness import ServerProcess

EVENTS = 50_000
QUICK_EVENTS = 5_000


class Reading(tm.Boundary):
    """One event."""

    number: int
    celsius: float


def rows(count: int) -> list[dict[str, Any]]:
    """Return the events."""
    return [{"number": number, "celsius": 20.0 + number % 10} for number in range(count)]


def write_ndjson(folder: Path, count: int) -> Path:
    """Write the events as lines."""
    path = folder / "rows.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)))
    return path


def write_csv(folder: Path, count: int) -> None:
    """Write the events as CSV."""
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["number", "celsius"])
        writer.writeheader()
        writer.writerows(rows(count))


@asynccontextmanager
async def served(protocol: str, path: Path, make: Callable[[int], tm.Source]) -> AsyncIterator[tm.Source]:
    """Serve the lines of a file, and return a source on them."""
    port = free_port()
    command = [sys.executable, "-m", "tests.system.feed_server", protocol, str(port), str(path)]
    server = ServerProcess(port, command)
    await server.start()
    try:
        yield make(port)
    finally:
        server.kill()


@asynccontextmanager
async def sources(folder: Path, count: int) -> AsyncIterator[dict[str, tm.Source]]:
    """Return the sources by name, each with `count` events."""
    lines = write_ndjson(folder, count)
    write_csv(folder, count)
    parquet.write_table(pyarrow.Table.from_pylist(rows(count)), folder / "rows.parquet", row_group_size=10_000)

    def websocket(port: int) -> tm.Source:
        return tm.sources.WebSocket(f"ws://127.0.0.1:{port}", subscribe={"after": 0}, sequence="seq")

    def events(port: int) -> tm.Source:
        return tm.sources.ServerSentEvents(f"http://127.0.0.1:{port}/")

    async with served("websocket", lines, websocket) as socket, served("sse", lines, events) as stream:
        yield {
            "Tail": tm.sources.Tail(lines),
            "Folder, NDJSON": tm.sources.Folder(folder, format="ndjson"),
            "Folder, CSV": tm.sources.Folder(folder, format="csv"),
            "Folder, Parquet": tm.sources.Folder(folder, format="parquet"),
            "WebSocket": socket,
            "server-sent events": stream,
        }


def load(source: tm.Source, durability: Any) -> list[Any]:
    """Return a reactor on a source, with one graph."""

    @tm.stream(source)
    def readings(event: Reading) -> Reading:
        return event

    reactor = tm.Reactor("boiler", [readings], strategy="sequential", durability=durability)
    graph = tm.Graph("watch", reactor=reactor)

    @graph.node
    def show_celsius(readings: Reading) -> float:
        return readings.celsius

    return [reactor, graph]


async def measure(source: tm.Source, count: int, store: str | None) -> float:
    """Return the events per second of a source, from its first event on."""
    durability = None if store is None else "boundary"
    async with tm.Node(store=store, load=load(source, durability)) as node:
        began = first = 0.0
        while (emitted := node.reactor("boiler").state().accumulators["readings"].emitted) < count:
            if emitted and not began:
                began, first = perf_counter(), emitted
            await asyncio.sleep(0.002)
        return (count - first) / (perf_counter() - began) if began else float("inf")


class Silent:
    """A source that is connected, and delivers nothing."""

    async def start(self, checkpoint: Any) -> AsyncIterator[Any]:  # noqa: ARG002 - part of the interface
        """Connect."""
        return self._deliveries()

    async def _deliveries(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None


async def measure_pushes(count: int, store: str | None) -> float:
    """Return the pushes per second of one task."""
    durability = None if store is None else "boundary"
    async with tm.Node(store=store, load=load(Silent(), durability)) as node:
        began = perf_counter()
        for row in rows(count):
            await node.push("readings", row)
        return count / (perf_counter() - began)


async def main(*, is_quick: bool) -> None:
    """Measure every source."""
    count = QUICK_EVENTS if is_quick else EVENTS
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with sources(folder, count) as found:
            for number, (title, source) in enumerate(found.items()):
                committed = await measure(source, count, f"sqlite:///{folder}/{number}.db")
                figures[title] = {"no store": await measure(source, count, None), "boundary": committed}
        pushed = await measure_pushes(count // 10, f"sqlite:///{folder}/pushes.db")
        figures["pushes of one task"] = {"no store": await measure_pushes(count, None), "boundary": pushed}
    table = [[title, *(f"{rate:,.0f}" for rate in rates.values())] for title, rates in figures.items()]
    show(f"Events per second, {count:,} events", ["", "no store", 'durability="boundary", SQLite'], table)
    keep("sources", {"events per second": figures})


if __name__ == "__main__":
    asyncio.run(main(is_quick="--quick" in sys.argv))
