"""Several nodes: a task whose pool is the bottleneck must take hardly longer on three nodes than on one.

python -m benchmarks.bench_nodes [--quick]
"""

import asyncio
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import tidemill as tm
from benchmarks.measure import keep, show, verdict
from tests.postgres import PostgresServer

QUICK = "--quick"
ELEMENTS, SLOTS, SECONDS = 20 if QUICK in sys.argv else 60, 2, 0.08
IDEAL = ELEMENTS / SLOTS * SECONDS
FOLLOWER = "follower"

crowd = tm.Workflow("crowd")


@crowd.task
def numbers() -> list[int]:
    """Return the elements."""
    return list(range(ELEMENTS))


@crowd.task(each=numbers, pool="narrow")
async def work(numbers: int) -> int:
    """Occupy a slot of the pool for a while."""
    await asyncio.sleep(SECONDS)
    return numbers


async def follow(address: str) -> None:
    """Run a node until the input ends."""
    async with tm.Node(address, load=[crowd]):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def followers(address: str, count: int) -> AsyncIterator[None]:
    """Run so many nodes on a store, each in a process of its own."""
    command = (sys.executable, "-m", "benchmarks.bench_nodes", *sys.argv[1:], FOLLOWER, address)
    processes: list[Process] = []
    try:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            processes.append(process)
            assert process.stdout is not None, "it is a pipe"
            await process.stdout.readline()
        yield
    finally:
        for process in processes:
            await process.communicate(b"")  # ends its input, and so the node


async def measure(address: str, nodes: int, rounds: int) -> list[float]:
    """Return the seconds of runs on so many nodes."""
    async with tm.Node(address, load=[crowd], pools={"narrow": SLOTS}) as leader, followers(address, nodes - 1):
        took = []
        for _ in range(rounds):
            began = perf_counter()
            run = await leader.start("crowd")
            (await run.wait()).raise_for_status()
            took.append(perf_counter() - began)
        return took


async def run(*, quick: bool) -> dict[int, list[float]]:
    """Measure one node and three, each on a database of its own."""
    server = PostgresServer()
    await asyncio.to_thread(server.start)
    try:
        return {count: await measure(await server.fresh_store(), count, 1 if quick else 3) for count in (1, 3)}
    finally:
        await asyncio.to_thread(server.remove)


def main() -> None:
    """Measure, and write the figures."""
    if FOLLOWER in sys.argv:
        asyncio.run(follow(sys.argv[-1]))
        return
    took = asyncio.run(run(quick=QUICK in sys.argv))
    rows = [[str(count), f"{statistics.median(times):.2f}"] for count, times in took.items()]
    show(f"{ELEMENTS} elements in a pool of {SLOTS} on PostgreSQL, {IDEAL:g} s without overhead", ["nodes", "s"], rows)
    slowdown = statistics.median(took[3]) / statistics.median(took[1])
    verdicts = [verdict("three nodes to one, in a full pool", slowdown, 1.25, at_least=False, is_ratio=True)]
    keep("nodes", {"verdicts": verdicts})


if __name__ == "__main__":
    main()
