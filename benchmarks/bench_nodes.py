"""Several nodes: a task in a full pool takes hardly longer on three nodes, and a push at another node than the owner's.

The second part pushes at a node that does not own the reactor: the owner is a server in another process, and each push
is committed before it is acknowledged. The cores are those of both processes together.

python -m benchmarks.bench_nodes [--quick]
"""

import asyncio
import os
import statistics
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import tidemill as tm
from benchmarks.measure import keep, show, verdict
from benchmarks.result_files import Verdict
from tests.postgres import PostgresServer
from tidemill.server.app import make_server_app
from tidemill.server.serving import LOOPBACK, ServerNode, serving

QUICK = "--quick"
ELEMENTS, SLOTS, SECONDS = 20 if QUICK in sys.argv else 60, 2, 0.08
IDEAL = ELEMENTS / SLOTS * SECONDS
PUSHES, BATCHES, BATCH = (200, 20, 1_000) if QUICK in sys.argv else (1_000, 100, 1_000)
TICKS = os.sysconf("SC_CLK_TCK")
FOLLOWER, OWNER, HERMIT = "follower", "owner", "hermit"

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


class Tick(tm.Boundary):
    """An event."""

    number: int
    price: float


ticks = tm.passthrough("ticks", Tick)
feed = tm.Reactor("feed", [ticks], durability="boundary")


async def follow(address: str) -> None:
    """Run a node until the input ends."""
    async with tm.Node(address, load=[crowd]):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def own(address: str, *, takes_links: bool) -> None:
    """Serve the node that owns the reactor until the input ends."""
    node = ServerNode(address, load=[feed])
    async with node, serving(make_server_app(node, has_authentication=False), LOOPBACK, 0) as url:
        if takes_links:
            await node.take_links_at(url)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def processes(address: str, count: int, role: str = FOLLOWER) -> AsyncIterator[list[Process]]:
    """Run so many nodes on a store, each in a process of its own."""
    command = (sys.executable, "-m", "benchmarks.bench_nodes", *sys.argv[1:], role, address)
    started: list[Process] = []
    try:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            started.append(process)
            assert process.stdout is not None, "it is a pipe"
            await process.stdout.readline()
        yield started
    finally:
        for process in started:
            await process.communicate(b"")  # ends its input, and so the node


async def measure(address: str, nodes: int, rounds: int) -> list[float]:
    """Return the seconds of runs on so many nodes."""
    async with tm.Node(address, load=[crowd], pools={"narrow": SLOTS}) as leader, processes(address, nodes - 1):
        took = []
        for _ in range(rounds):
            began = perf_counter()
            run = await leader.start("crowd")
            (await run.wait()).raise_for_status()
            took.append(perf_counter() - began)
        return took


class Forwarded(NamedTuple):
    """What pushes cost at a node that does not own the reactor."""

    way: str
    push: float
    """Seconds of one push: the median."""
    events: float
    """Events per second of batches."""
    per_core: float
    """Events per second of batches and core, of both processes."""


def cpu_of(process: Process) -> float:
    """Return the seconds of the processor that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def push_here(address: str) -> Forwarded:
    """Push at the owner."""
    async with tm.Node(address, load=[feed]) as node:
        return await push_at(node, "here", lambda: 0.0)


async def forward(address: str, *, is_linked: bool) -> Forwarded:
    """Push at this process to the reactor of another one."""
    async with processes(address, 1, OWNER if is_linked else HERMIT) as (owner,), tm.Node(address) as node:
        assert node.forwarding is not None
        while is_linked and not node.forwarding.links.open_count:
            await node.push("ticks", {"number": 0, "price": 1.0})
        return await push_at(node, "link" if is_linked else "mailbox", lambda: cpu_of(owner))


async def push_at(node: tm.Node, way: str, read_cpu: Callable[[], float]) -> Forwarded:
    """Push single events, and then batches."""
    single = []
    for number in range(PUSHES):
        began = perf_counter()
        await node.push("ticks", {"number": number, "price": 1.0})
        single.append(perf_counter() - began)
    batch = [{"number": number, "price": 1.0} for number in range(BATCH)]
    began, cpu = perf_counter(), process_time() + read_cpu()
    for _ in range(BATCHES):
        assert not (await node.push_many("ticks", batch)).problems
    seconds, cores = perf_counter() - began, process_time() + read_cpu() - cpu
    return Forwarded(way, statistics.median(single), BATCH * BATCHES / seconds, BATCH * BATCHES / cores)


async def forward_all_ways(server: PostgresServer) -> dict[str, list[Forwarded]]:
    """Measure pushes at the owner, over a link and through the mailbox, on each database."""
    found: dict[str, list[Forwarded]] = {"SQLite": [], "PostgreSQL": []}
    for name, some in found.items():
        with tempfile.TemporaryDirectory() as folder:
            for number in range(3):
                is_file = name == "SQLite"
                address = f"sqlite:///{folder}/{number}.db" if is_file else await server.fresh_store()
                some.append(await (forward(address, is_linked=number == 1) if number else push_here(address)))
    return found


async def run(*, quick: bool) -> tuple[dict[int, list[float]], dict[str, list[Forwarded]]]:
    """Measure one node and three, each on a database of its own, and then pushes at a node that is not the owner."""
    server = PostgresServer()
    await asyncio.to_thread(server.start)
    try:
        took = {count: await measure(await server.fresh_store(), count, 1 if quick else 3) for count in (1, 3)}
        return took, await forward_all_ways(server)
    finally:
        await asyncio.to_thread(server.remove)


def report_forwarding(found: dict[str, list[Forwarded]]) -> list[Verdict]:
    """Show what pushes cost that are forwarded."""
    rows = [
        [f"{name}, {one.way}", f"{one.push * 1e3:.2f}", f"{one.events:,.0f}", f"{one.per_core:,.0f}"]
        for name, some in found.items()
        for one in some
    ]
    title = f"Pushes to the reactor of another process, durability=boundary, batches of {BATCH:,}"
    show(title, ["", "ms/push, p50", "events/s", "events/s and core"], rows)
    verdicts = []
    for name, (here, link, mailbox) in found.items():
        what = f"a push over a link, {name}"
        verdicts += [
            verdict(f"{what}, ms", link.push * 1e3, 1.5, at_least=False),
            verdict(f"{what}, to one at the owner", link.push / here.push, 3.0, at_least=False, is_ratio=True),
            verdict(f"{what}, of one through the mailbox", mailbox.push / link.push, 2.0, at_least=True, is_ratio=True),
            verdict(f"batches over a link, {name}, events/s and core", link.per_core, 50_000, at_least=True),
        ]
    return verdicts


def main() -> None:
    """Measure, and write the figures."""
    role = next((one for one in (FOLLOWER, OWNER, HERMIT) if one in sys.argv), None)
    if role is not None:
        address = sys.argv[-1]
        asyncio.run(follow(address) if role == FOLLOWER else own(address, takes_links=role == OWNER))
        return
    took, forwarded = asyncio.run(run(quick=QUICK in sys.argv))
    rows = [[str(count), f"{statistics.median(times):.2f}"] for count, times in took.items()]
    show(f"{ELEMENTS} elements in a pool of {SLOTS} on PostgreSQL, {IDEAL:g} s without overhead", ["nodes", "s"], rows)
    slowdown = statistics.median(took[3]) / statistics.median(took[1])
    verdicts = [verdict("three nodes to one, in a full pool", slowdown, 1.25, at_least=False, is_ratio=True)]
    keep("nodes", {"verdicts": verdicts + report_forwarding(forwarded)})


if __name__ == "__main__":
    main()
