"""Partitions on several hosts: events per second of 1, 2 and 4 processes, and how soon the share of a dead one runs on.

python -m benchmarks.bench_partitions [--quick]

The hosts share a PostgreSQL, and read one topic of librdkafka's mock of Kafka, which runs in a process of its own. All
of them share the cores of this machine: more hosts than cores left over cannot be faster, only cost more.
"""

import asyncio
import json
import os
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import perf_counter, process_time
from typing import Any, NamedTuple

import tidemill as tm
from benchmarks.measure import console, keep, show
from tests.postgres import PostgresServer
from tests.system.brokers import KafkaCluster
from tidemill.graphs.keys import partition_of

HOSTS = (1, 2, 4)
PARTITIONS = 4  # as many as a topic of the mock has
KEYS = [f"key {number}" for number in range(1000)]
SETTINGS = {"lease_ttl": "3s", "rebalance_delay": "200ms"}
CHECKPOINT_INTERVAL = "1s"
EVENTS, QUICK_EVENTS = 100_000, 20_000
ROUNDS, QUICK_ROUNDS = 3, 1
BATCH = 20_000  # events that the producer hands over at once: each time it waits for their delivery
PATIENCE = 120.0  # seconds for one number of hosts
LOOK_INTERVAL = 0.02
HOST, BROKER = "host", "broker"


class Step(tm.Boundary, frozen=True):
    """An event of a key."""

    key: str
    number: int


class Total(tm.Boundary, frozen=True):
    """What a key has seen."""

    count: int = 0
    last: int = 0


def counters(servers: str, topic: str) -> list[Any]:
    """Return a keyed reactor on a topic, which counts the events of each key."""

    @tm.stream(tm.Kafka(topic=topic, servers=servers), state=Total)
    def steps(event: Step, state: Total) -> Total:
        return Total(state.count + 1, event.number)

    reactor = tm.Reactor("counters", [steps], key="key", partitions=PARTITIONS, durability="interval")
    graph = tm.Graph("mean", reactor=reactor)

    @graph.node
    def mean(steps: Total) -> float:
        return steps.last / steps.count

    return [reactor, graph]


class HostReport(NamedTuple):
    """What a host says of itself."""

    partitions: list[int]
    """Those that it runs, if all of them are live."""
    events: int
    cpu_seconds: float


# -- the processes


async def host(address: str, servers: str, topic: str, checkpoint_interval: str) -> None:
    """Host partitions, and answer each line of the input with a report, until it ends."""
    settings = {**SETTINGS, "checkpoint_interval": checkpoint_interval}
    async with tm.Node(address, load=counters(servers, topic), settings=settings) as node:
        while await asyncio.to_thread(sys.stdin.readline):
            state = node.reactor("counters").state()
            running = [one.number for one in state.partitions] if state.health == "live" else []
            events = state.accumulators["steps"].events if running else 0
            print(json.dumps(HostReport(running, events, process_time())), flush=True)


def broker() -> None:
    """Run a mock of Kafka. Each line of the input is a topic and a number of events to produce."""
    cluster = KafkaCluster()
    print(cluster.servers, flush=True)
    homes = {key: partition_of(key, PARTITIONS) for key in KEYS}
    for line in sys.stdin:
        topic, events = line.split()
        for start in range(0, int(events), BATCH):
            batches: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
            for number in range(start, min(start + BATCH, int(events))):
                key = KEYS[number % len(KEYS)]
                batches[homes[key]].append(json.dumps({"key": key, "number": number}).encode())
            for partition, payloads in batches.items():
                cluster.produce(topic, *payloads, partition=partition)
        print("produced", flush=True)


@asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[Process]:
    """Run this module as a process of another role."""
    command = (sys.executable, "-m", "benchmarks.bench_partitions", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def ask(process: Process, line: str = "") -> str:
    """Send a line to a process, and return its answer."""
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    process.stdin.write(f"{line}\n".encode())
    answer = await process.stdout.readline()
    assert answer, f"process {process.pid} has ended"
    return answer.decode().strip()


# -- measuring


async def reports(hosts: Sequence[Process]) -> list[HostReport]:
    """Ask all hosts."""
    return [HostReport(*json.loads(answer)) for answer in await asyncio.gather(*map(ask, hosts))]


async def until_shared(hosts: Sequence[Process]) -> list[HostReport]:
    """Wait until the hosts run all partitions, each once, and about as many each; return their reports."""
    while True:
        found = await reports(hosts)
        counts = [len(one.partitions) for one in found]
        running = sorted(number for one in found for number in one.partitions)
        if running == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1:
            return found
        await asyncio.sleep(LOOK_INTERVAL)


async def process_events(hosts: Sequence[Process], producer: Process, topic: str, events: int) -> dict[str, float]:
    """Produce events, and wait until the hosts have processed them."""
    before = await until_shared(hosts)
    goal = sum(one.events for one in before) + events
    began = perf_counter()
    await ask(producer, f"{topic} {events}")
    while sum(one.events for one in await reports(hosts)) < goal:  # noqa: ASYNC110 - only other processes know
        await asyncio.sleep(LOOK_INTERVAL)
    seconds = perf_counter() - began
    after = await reports(hosts)
    used = sum(one.cpu_seconds for one in after) - sum(one.cpu_seconds for one in before)
    return {"events/s": events / seconds, "cpu us per event": used / events * 1e6}


async def measure(
    address: str,
    servers: str,
    producer: Process,
    *,
    hosts: int,
    quick: bool,
    checkpoint_interval: str = CHECKPOINT_INTERVAL,
) -> dict[str, Any]:
    """Measure so many hosts on a store of their own; then kill the first of them, if others can take over."""
    topic, events = f"steps-{hosts}-{checkpoint_interval}", QUICK_EVENTS if quick else EVENTS
    role = HOST, address, servers, topic, checkpoint_interval
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        await ask(producer, f"{topic} {PARTITIONS}")  # creates the topic
        processes = [await stack.enter_async_context(child(*role)) for _ in range(hosts)]
        rounds = QUICK_ROUNDS if quick else ROUNDS
        figures = [await process_events(processes, producer, topic, events) for _ in range(rounds)]
        taken_over = None
        if hosts > 1:
            began = perf_counter()
            processes[0].kill()
            await until_shared(processes[1:])
            taken_over = perf_counter() - began
    return {"hosts": hosts, "take-over s": taken_over, "rounds": figures}


async def run(*, quick: bool) -> list[dict[str, Any]]:
    """Measure each number of hosts."""
    server = PostgresServer()
    await asyncio.to_thread(server.start)
    try:
        async with child(BROKER) as producer:
            assert producer.stdout is not None, "it is a pipe"
            servers = (await producer.stdout.readline()).decode().strip()
            return [
                await measure(await server.fresh_store(), servers, producer, hosts=count, quick=quick)
                for count in HOSTS
            ]
    finally:
        await asyncio.to_thread(server.remove)


def median(measured: dict[str, Any], figure: str) -> float:
    """Return the median of a figure over the rounds."""
    return statistics.median(one[figure] for one in measured["rounds"])


def main() -> None:
    """Measure, show and keep the figures; or act as one of the processes."""
    match sys.argv[1:]:
        case [role, address, servers, topic, checkpoint_interval] if role == HOST:
            asyncio.run(host(address, servers, topic, checkpoint_interval))
        case [role] if role == BROKER:
            broker()
        case options:
            present(asyncio.run(run(quick="--quick" in options)))


def present(runs: list[dict[str, Any]]) -> None:
    """Show the figures, and write them."""
    single = median(runs[0], "events/s")
    for one in runs:
        one["ratio to one host"] = median(one, "events/s") / single
    rows = [
        [
            str(one["hosts"]),
            f"{median(one, 'events/s'):,.0f}",
            f"{one['ratio to one host']:.2f}",
            f"{median(one, 'cpu us per event'):.1f}",
            "" if one["take-over s"] is None else f"{one['take-over s']:.2f}",
        ]
        for one in runs
    ]
    columns = ["hosts", "events/s", "of one host", "processor us per event", "s until taken over"]
    show(f"{PARTITIONS} partitions from Kafka, interval, on PostgreSQL", columns, rows)
    cores = os.cpu_count()
    console.print(f"  {cores} cores for the hosts, PostgreSQL and Kafka; lease_ttl {SETTINGS['lease_ttl']}")
    kept = [
        {
            "hosts": one["hosts"],
            "of one host": one["ratio to one host"],
            **{figure: median(one, figure) for figure in ("events/s", "cpu us per event")},
            "take-over s": one["take-over s"],
        }
        for one in runs
    ]
    keep("partitions", {"runs": kept})


if __name__ == "__main__":
    main()
