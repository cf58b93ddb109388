"""Unit costs: the processor time of one event and of one task run on each part of an installation.

They are the parameters of docs/explanation/scale.md. `--write` writes the tables of that page, as `make bench` does.

python -m benchmarks.bench_unit_costs [--quick] [--write]
"""

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

from websockets.asyncio.client import connect

import tidemill as tm
from benchmarks import bench_partitions
from benchmarks.bench_durability import Pushers, load
from benchmarks.bench_event_path import Engine
from benchmarks.bench_server import BATCH, TICK, pipeline, running
from benchmarks.capacity.crew_flow import WIDTH
from benchmarks.capacity.page import write_tables
from benchmarks.capacity.processor_time import tree_seconds
from benchmarks.market_maker import ledger, maker, market
from benchmarks.measure import keep, show
from tests.postgres import PostgresServer
from tidemill.kernel.settings import Settings

CHECKPOINTS = 4  # that write all keys
SELDOM = "1h"
SELDOM_STORED = {"checkpoint_interval": SELDOM}  # only when the benchmark waits for it
ROUNDS = 3
CREW_FILE = Path(__file__).parent / "capacity" / "crew_flow.py"


Measurement = Callable[[], Awaitable[dict[str, float]]]
"""Returns unit costs by name."""


def in_process(events: int) -> Measurement:
    """Events through the market maker, by handles."""

    async def measure() -> dict[str, float]:
        async with tm.Node(load=[market, maker]) as node:
            engine = Engine(node)
            engine.run(events // 10)
            began = process_time()
            engine.run(events)
            ledger.clear()
            return {"event": (process_time() - began) / events}

    return measure


def from_kafka(database: PostgresServer, *, quick: bool) -> Measurement:
    """Events of many keys that two hosts read from Kafka, with running state; then one of the hosts is killed.

    The cost of an event is measured without checkpoints, because the cost of a stored key is measured alone. The
    take-over is measured with them, because it restores from them.
    """

    async def measure() -> dict[str, float]:
        async with bench_partitions.child(bench_partitions.BROKER) as producer:
            assert producer.stdout is not None, "it is a pipe"
            servers = (await producer.stdout.readline()).decode().strip()
            hosts = partial(bench_partitions.measure, servers=servers, producer=producer, hosts=2)
            unstored = await hosts(await database.fresh_store(), quick=quick, checkpoint_interval=SELDOM)
            stored = await hosts(await database.fresh_store(), quick=True)
        cost = bench_partitions.median(unstored, "cpu us per event") / 1e6
        lease = Settings().lease_ttl  # on one machine a death is noticed at once, from another one by the lease
        return {"event_from_kafka": cost, "takeover": lease + stored["take-over s"]}

    return measure


def from_websocket(frames: int) -> Measurement:
    """Frames of many events, sent to a server in a process of its own."""

    async def measure() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            async with (
                running("node", f"sqlite:///{folder}/node.db") as server,
                connect(f"{server.socket_url}/ws/accumulators/ticks", compression=None) as socket,
            ):
                text = json.dumps({"seq": 1, "events": [{"sent_ns": 0, **TICK}] * BATCH})
                used = server.cpu_seconds()
                await pipeline(socket, text, frames)
                return {"event_from_websocket": (server.cpu_seconds() - used) / (frames * BATCH)}

    return measure


def committed(database: PostgresServer, events: int) -> Measurement:
    """Events that PostgreSQL commits before they are acknowledged, from many pushers at once."""

    async def measure() -> dict[str, float]:
        async with tm.Node(await database.fresh_store(), load=load("boundary", "sequential")) as node:
            pushers = Pushers(node, 512)
            await pushers.run(events // 10)
            own, other = process_time(), tree_seconds(database.pid)
            await pushers.run(events)
            own, other = process_time() - own, tree_seconds(database.pid) - other
            ledger.clear()
            return {"event_committed": own / events, "event_committed_database": other / events}

    return measure


def stored_keys(database: PostgresServer, keys: int) -> Measurement:
    """Checkpoints that write many keys with running state, each of which has changed."""

    async def measure() -> dict[str, float]:
        changes = [bench_partitions.Step(f"key {number}", number) for number in range(keys)]
        async with tm.Node(await database.fresh_store(), load=[_totals()], settings=SELDOM_STORED) as node:
            push = node.handle("steps")
            own = other = 0.0
            for checkpoint in range(CHECKPOINTS + 1):
                for change in changes:
                    push(change)
                began = process_time(), tree_seconds(database.pid)
                await node.settle()  # writes a checkpoint
                if checkpoint:  # the first one adds the rows
                    own, other = own + process_time() - began[0], other + tree_seconds(database.pid) - began[1]
        written = keys * CHECKPOINTS
        return {"key_stored": own / written, "key_stored_database": other / written}

    return measure


def _totals() -> tm.Reactor:
    @tm.passthrough(state=bench_partitions.Total)
    def steps(event: bench_partitions.Step, state: bench_partitions.Total) -> bench_partitions.Total:
        return bench_partitions.Total(state.count + 1, event.number)

    return tm.Reactor("totals", [steps], key="key", durability="interval", partitions=bench_partitions.PARTITIONS)


def by_workers(database: PostgresServer, runs: int) -> Measurement:
    """Task runs that a worker executes, planned by a node in this process."""

    async def measure() -> dict[str, float]:
        address = await database.fresh_store()
        name = address.rpartition("/")[2]
        async with tm.Node(address, load=[CREW_FILE]) as leader, _worker(address) as worker:
            await _run_crew(leader, 1)
            size = await database.execute(f"SELECT pg_database_size('{name}')")
            before = process_time(), tree_seconds(worker), tree_seconds(database.pid)
            await _run_crew(leader, runs)
            after = process_time(), tree_seconds(worker), tree_seconds(database.pid)
            grown = await database.execute(f"SELECT pg_database_size('{name}')") - size
        tasks = runs * (WIDTH + 1)
        costs = [(now - then) / tasks for then, now in zip(before, after, strict=True)]
        names = ("task_leader", "task_worker", "task_database")
        return {**dict(zip(names, costs, strict=True)), "task_bytes": grown / tasks}

    return measure


async def _run_crew(node: tm.Node, runs: int) -> None:
    started = [await node.start("crew") for _ in range(runs)]
    for run in started:
        (await run.wait()).raise_for_status()


@asynccontextmanager
async def _worker(address: str) -> AsyncIterator[int]:
    """Run a worker; yield its process id."""
    options = ("--store", address, "--load", str(CREW_FILE), "--concurrency", "8", "--log-level", "error", "-o", "json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidemill", "worker", *options, stdout=PIPE, cwd=Path(__file__).parents[1]
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        await process.stdout.readline()
        yield process.pid
    finally:
        process.terminate()
        await process.communicate()


async def measure_all(*, rounds: int, quick: bool) -> dict[str, float]:
    """Measure everything so many times, in turns; return the medians."""
    database = PostgresServer(fsync=True)
    await asyncio.to_thread(database.start)
    share = 10 if quick else 1
    measurements = [
        in_process(200_000 // share),
        from_kafka(database, quick=quick),
        from_websocket(2_000 // share),
        committed(database, 100_000 // share),
        stored_keys(database, 20_000 // share),
        by_workers(database, 100 // share),
    ]
    found: dict[str, list[float]] = {}
    try:
        for _ in range(rounds):
            for measure in measurements:
                for name, value in (await measure()).items():
                    found.setdefault(name, []).append(value)
    finally:
        await asyncio.to_thread(database.remove)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    """Measure, print, and keep the figures."""
    quick = "--quick" in sys.argv
    costs = asyncio.run(measure_all(rounds=1 if quick else ROUNDS, quick=quick))
    units = {"task_bytes": (1.0, "bytes"), "takeover": (1.0, "s")}
    rows = []
    for name, value in costs.items():
        factor, unit = units.get(name, (1e6, "us"))
        rows.append([name, f"{value * factor:,.1f} {unit}"])
    show("Unit costs", ["", "each"], rows)
    keep("unit_costs", costs)
    if "--write" in sys.argv:
        write_tables()


if __name__ == "__main__":
    main()
