"""The cost of durability: events per second and latency of each mode on each database, beside a node without a store.

The market maker through `node.handle`, which yields to the event loop after every 200 events so that checkpoints can be
taken; then durability="boundary" through `node.push` from many concurrent tasks, each waiting for its commit. The raw
commit rate of each database is measured in the same run: it is the ceiling.

python -m benchmarks.bench_durability [--quick]
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg

import tidemill as tm
from benchmarks.bare_driver import PAYLOAD
from benchmarks.market_maker import SOURCES, exposure, ledger, make_event, maker, orderbook, pricing
from benchmarks.measure import console, keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict
from tests.postgres import PostgresServer

CHUNK = 200  # events between two turns of the loop
PUSHERS = (1, 64, 512)


def load(durability: Any, strategy: Any) -> list[Any]:
    """Return the market maker with this durability."""
    accumulators = [orderbook, pricing, exposure]
    return [tm.Reactor("market", accumulators, strategy=strategy, durability=durability, capacity=100_000), maker]


class Handles:
    """Pushes through the synchronous fast path."""

    def __init__(self, node: tm.Node) -> None:
        self._handles = [node.handle(name) for name in SOURCES]
        self._number = 0
        self.waited: list[float] = []

    async def run(self, events: int) -> None:
        handles = self._handles
        for first in range(self._number, self._number + events, CHUNK):
            for number in range(first, first + CHUNK):
                source, event = make_event(number, number)
                handles[source](event)
            began = perf_counter()
            await asyncio.sleep(0)
            self.waited.append(perf_counter() - began)
        self._number += events


class Pushers:
    """Pushes with an acknowledgement, from many tasks at once."""

    def __init__(self, node: tm.Node, count: int) -> None:
        self._node = node
        self._count = count
        self._number = 0
        self.waited: list[float] = []

    async def run(self, events: int) -> None:
        numbers = iter(range(self._number, self._number + events))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._count):
                tasks.create_task(self._push(numbers))
        self._number += events

    async def _push(self, numbers: Any) -> None:
        for number in numbers:
            source, event = make_event(number, number)
            began = perf_counter()
            receipt = await self._node.push(SOURCES[source], event)
            self.waited.append(perf_counter() - began)
            assert receipt.accepted, receipt


async def in_turns(contestants: dict[str, Any], events: int, rounds: int) -> dict[str, list[float]]:
    """Let every contestant handle `events` in each round; return seconds per event, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            began = perf_counter()
            await contestant.run(events)
            seconds[name].append((perf_counter() - began) / events)
    return seconds


async def fast_path(stores: dict[str, Callable[[], Awaitable[str]]], rounds: int, events: int) -> list[Verdict]:
    """none, interval and fire through handles, beside a node without a store."""
    async with AsyncExitStack() as nodes:
        contestants = {"no store": Handles(await nodes.enter_async_context(tm.Node(load=load(None, "latest"))))}
        for database, address in stores.items():
            for durability in ("none", "interval", "fire"):
                node = tm.Node(store=await address(), load=load(durability, "latest"))
                contestants[f"{durability}, {database}"] = Handles(await nodes.enter_async_context(node))
        ledger.clear()
        seconds = await in_turns(contestants, events, rounds)
    bare = seconds["no store"]
    rows = [
        [
            name,
            f"{1 / statistics.median(values):,.0f}",
            f"{percentile(contestants[name].waited, 0.99) * 1e6:,.0f}",
            f"{ratio(bare, values):.2f}",
        ]
        for name, values in seconds.items()
    ]
    show(
        f"Through handles, a turn of the loop every {CHUNK} events",
        ["", "events/s", "p99 of a turn, us", "of no store"],
        rows,
    )
    return [
        verdict(
            f"interval on {database}, share of no store",
            ratio(bare, seconds[f"interval, {database}"]),
            0.9,
            at_least=True,
            is_ratio=True,
        )
        for database in stores
    ]


async def acknowledged(stores: dict[str, Callable[[], Awaitable[str]]], rounds: int, events: int) -> dict[str, float]:
    """Boundary, sequential: every event committed before it is acknowledged, beside the same pushes without a store."""
    rows, best = [], {}
    for database, address in {"no store": None, **stores}.items():
        for count in PUSHERS:
            store = None if address is None else await address()
            async with tm.Node(store=store, load=load("boundary", "sequential")) as node:
                pushers = Pushers(node, count)
                number = max(CHUNK, events if count > 1 else events // 20)
                seconds = (await in_turns({"": pushers}, number, rounds))[""]
            rate = 1 / statistics.median(seconds)
            best[database] = max(best.get(database, 0.0), rate)
            waited = (percentile(pushers.waited, share) * 1e3 for share in (0.5, 0.99))
            rows.append([database, str(count), f"{rate:,.0f}", *(f"{one:,.2f}" for one in waited)])
    columns = ["", "pushers", "events/s", "p50 until acknowledged, ms", "p99, ms"]
    show('durability="boundary", sequential, acknowledged after the commit', columns, rows)
    return best


async def raw_sqlite(folder: Path, seconds: float) -> list[tuple[int, float]]:
    """Return rows per second of the bare driver, for some numbers of rows per commit."""

    def measure(batch: int) -> float:
        with closing(sqlite3.connect(folder / f"raw{batch}.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE raw (number INTEGER PRIMARY KEY, payload BLOB)")
            number, began = 0, perf_counter()
            while perf_counter() - began < seconds:
                connection.execute("BEGIN IMMEDIATE")
                rows = [(number + one, PAYLOAD) for one in range(batch)]
                connection.executemany("INSERT INTO raw VALUES (?, ?)", rows)
                connection.execute("COMMIT")
                number += batch
            return number / (perf_counter() - began)

    return [(batch, await asyncio.to_thread(measure, batch)) for batch in (1, 256)]


async def raw_postgres(url: str, seconds: float) -> list[tuple[int, float]]:
    """Return rows per second of the bare driver, for some numbers of rows per commit."""
    connection = await asyncpg.connect(url)
    found = []
    for batch in (1, 256):
        await connection.execute(f"CREATE TABLE raw{batch} (number bigint PRIMARY KEY, payload bytea)")
        statement = f"INSERT INTO raw{batch} SELECT * FROM unnest($1::bigint[], $2::bytea[])"
        number, began = 0, perf_counter()
        while perf_counter() - began < seconds:
            await connection.execute(statement, list(range(number, number + batch)), [PAYLOAD] * batch)
            number += batch
        found.append((batch, number / (perf_counter() - began)))
    await connection.close()
    return found


def report_raw(raw: dict[str, list[tuple[int, float]]]) -> None:
    """Show the ceilings."""
    rows = [
        [database, str(batch), f"{rate / batch:,.0f}", f"{rate:,.0f}"]
        for database, rates in raw.items()
        for batch, rate in rates
    ]
    show("The bare drivers: durable commits of one connection", ["", "rows/commit", "commits/s", "rows/s"], rows)


@asynccontextmanager
async def databases(folder: Path) -> AsyncIterator[dict[str, Callable[[], Awaitable[str]]]]:
    """Return how to get the address of a new, empty database of each kind."""
    made = iter(range(1_000))

    async def file() -> str:
        return f"sqlite:///{folder}/{next(made)}.db"

    server = PostgresServer(fsync=True)
    await asyncio.to_thread(server.start)
    try:
        yield {"SQLite": file, "PostgreSQL": server.fresh_database}
    finally:
        await asyncio.to_thread(server.remove)


async def run(*, quick: bool) -> list[Verdict]:
    """Run everything, print tables, return verdicts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with databases(folder) as stores:
            url = await stores["PostgreSQL"]()
            seconds = 0.1 if quick else 3.0
            raw = {"SQLite": await raw_sqlite(folder, seconds), "PostgreSQL": await raw_postgres(url, seconds)}
            report_raw(raw)
            verdicts = await fast_path(stores, *((2, 4_000) if quick else (60, 20_000)))
            best = await acknowledged(stores, *((1, 4_000) if quick else (7, 20_000)))
    console.print(
        f"  SQLite reaches {best['SQLite'] / dict(raw['SQLite'])[256]:.0%} of the bare driver's rows in groups of 256"
    )
    verdicts.append(verdict("boundary, sequential, SQLite, events/s", best["SQLite"], 20_000, at_least=True))
    return verdicts


def main() -> None:
    """Measure, and write the figures."""
    keep("durability", {"verdicts": asyncio.run(run(quick="--quick" in sys.argv))})


if __name__ == "__main__":
    main()
