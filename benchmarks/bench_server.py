"""The server: pushes over WebSocket and starts over HTTP, beside a bare Litestar echo in the same run.

python -m benchmarks.bench_server [--quick]
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import Any, NamedTuple

import httpx
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.bench_workflows import fill_history
from benchmarks.measure import keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict

BATCH = 256
TICK = {"price": 100.0}
CPU_TICKS = os.sysconf("SC_CLK_TCK")


class Server(NamedTuple):
    """A server process."""

    url: str
    pid: int

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CPU_TICKS

    def memory_kb(self) -> int:
        """Return the resident memory of the process."""
        match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert match is not None
        return int(match[1])


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Server]:
    """Run a server in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.served", *arguments, stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        yield Server((await process.stdout.readline()).decode().strip(), process.pid)
    finally:
        await process.communicate(b"")


async def single_pushes(node: Server, echo: Server, count: int) -> list[Verdict]:
    """One event per frame, the next after the acknowledgement; the echo does the same with its frames."""
    async with (
        connect(f"{node.socket_url}/ws/accumulators/ticks", compression=None) as pushing,
        connect(f"{echo.socket_url}/ws", compression=None) as echoing,
    ):
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(10):  # in turns, so that both meet the same machine
            ours += await _round_trips(pushing, count // 10)
            theirs += await _round_trips(echoing, count // 10)
    arrived = await _take_latencies(node)
    rows = [
        _latency_row("push to terminal node", arrived),
        _latency_row("push to acknowledgement", ours),
        _latency_row("echo", theirs),
    ]
    show("One event per frame", ["", "p50, us", "p99, us"], rows)
    times = ratio(ours, theirs)
    return [
        verdict("push over WebSocket to the terminal node, p50 us", percentile(arrived, 0.5), 300, at_least=False),
        verdict("push to acknowledgement, times an echo", times, 1.8, at_least=False, is_ratio=True),
    ]


async def _round_trips(socket: ClientConnection, count: int) -> list[float]:
    found = []
    for _ in range(count):
        sent = monotonic_ns()
        await socket.send(json.dumps({"event": {"sent_ns": sent, **TICK}}))
        await socket.recv()
        found.append((monotonic_ns() - sent) / 1e3)
    return found


def _latency_row(name: str, values: list[float]) -> list[str]:
    return [name, f"{percentile(values, 0.5):.0f}", f"{percentile(values, 0.99):.0f}"]


async def _take_latencies(node: Server) -> list[float]:
    async with httpx.AsyncClient(base_url=node.url) as http:
        answer = await http.post("/api/v1/graphs/collected/call", json={"inputs": {}})
        taken: list[float] = answer.raise_for_status().json()["outputs"]["take"]
        return taken


async def batches(node: Server, echo: Server, frames: int) -> list[Verdict]:
    """Frames of many events, a few in flight: events per second of the server's CPU time."""
    rows, rates = [], {}
    for name, server, path in (("push", node, "/ws/accumulators/ticks"), ("echo", echo, "/ws")):
        async with connect(f"{server.socket_url}{path}", compression=None, max_size=None) as socket:
            text = json.dumps({"seq": 1, "events": [{"sent_ns": monotonic_ns(), **TICK}] * BATCH})
            used, began = server.cpu_seconds(), perf_counter()
            await pipeline(socket, text, frames)
            used, taken = server.cpu_seconds() - used, perf_counter() - began
        rates[name] = frames * BATCH / max(used, 1 / CPU_TICKS)
        rows.append([name, f"{frames * BATCH / taken:,.0f}", f"{rates[name]:,.0f}"])
    await _take_latencies(node)
    show(f"Frames of {BATCH} events", ["", "events/s", "events/s per core of the server"], rows)
    return [verdict("events per second and core, batch frames", rates["push"], 50_000, at_least=True)]


async def pipeline(socket: ClientConnection, text: str, frames: int, window: int = 8) -> None:
    """Send frames with some of them unanswered."""
    for number in range(frames + window):
        if number < frames:
            await socket.send(text)
        if number >= window:
            await socket.recv()


async def connections(node: Server, counts: list[int], events: int) -> dict[str, Any]:
    """The same number of events per second over more and more connections."""
    rows, figures = [], {}
    for count in counts:
        async with _many(node, count) as sockets:
            await _take_latencies(node)
            for number in range(events):
                await _round_trips(sockets[number % count], 1)
        found = await _take_latencies(node)
        figures[str(count)] = {"p50_us": percentile(found, 0.5), "p99_us": percentile(found, 0.99)}
        rows.append(_latency_row(f"{count:,}", found))
    show("Push to terminal node, by connections", ["connections", "p50, us", "p99, us"], rows)
    return {"push latency by connections": figures}


@asynccontextmanager
async def _many(node: Server, count: int) -> AsyncIterator[list[ClientConnection]]:
    async with AsyncExitStack() as stack:
        address = f"{node.socket_url}/ws/accumulators/ticks"
        yield [await stack.enter_async_context(connect(address, compression=None)) for _ in range(count)]


async def idle_connections(node: Server, count: int) -> dict[str, Any]:
    """The memory of connections that do nothing."""
    before = node.memory_kb()
    async with _many(node, count):
        each = (node.memory_kb() - before) / count
    show("Idle WebSockets", ["", "kB each"], [[f"{count:,}", f"{each:.1f}"]])
    return {"memory of an idle WebSocket, kB": each}


async def starts(node: Server, echo: Server, count: int) -> list[Verdict]:
    """Start runs over HTTP, one after the other, beside an echo of the same body."""
    async with httpx.AsyncClient() as http:
        ours, theirs = [], []
        for _ in range(count):
            ours.append(await _timed(http.post(f"{node.url}/api/v1/workflows/five/runs", json={"params": {}})))
            theirs.append(await _timed(http.post(f"{echo.url}/echo", json={"params": {}})))
    show("A start over HTTP", ["", "p50, us", "p99, us"], [_latency_row("start", ours), _latency_row("echo", theirs)])
    times = percentile(ours, 0.5) / percentile(theirs, 0.5)
    return [verdict("start over HTTP, times an echo", times, 2.0, at_least=False, is_ratio=True)]


async def _timed(request: Any) -> float:
    began = perf_counter()
    (await request).raise_for_status()
    return (perf_counter() - began) * 1e6


async def lists(folder: Path, runs: int) -> list[Verdict]:
    """List 100 runs among many."""
    address = f"sqlite:///{folder / 'history.db'}"
    await fill_history(address, runs)
    async with running("node", address) as node, httpx.AsyncClient(base_url=f"{node.url}/api/v1") as http:
        found = {}
        for name, query in (("newest", ""), ("by state", "&state=success"), ("by text", "&q=five")):
            taken = [await _timed(http.get(f"/runs?limit=100{query}")) / 1e3 for _ in range(20)]
            found[name] = percentile(taken, 0.5)
    show(f"100 runs among {runs:,}", ["", "ms"], [[name, f"{value:.1f}"] for name, value in found.items()])
    return [verdict("list of 100 runs, ms", found["newest"], 20, at_least=False)]


async def cold_start(folder: Path) -> list[Verdict]:
    """From the start of `tidemill dev` to its first answer."""
    taken = []
    for number in range(3):
        packages = folder / f"dev{number}"
        packages.mkdir()
        began = perf_counter()
        command = (sys.executable, "-m", "tidemill", "dev", str(packages))
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        assert process.stdout is not None, "it is a pipe"
        url = (await process.stdout.readline()).decode().rpartition(" ")[2].strip()
        async with httpx.AsyncClient() as http:
            (await http.get(f"{url}/health/live")).raise_for_status()
        taken.append(perf_counter() - began)
        process.terminate()
        await process.communicate()
    show("Cold start of tidemill dev", ["", "s"], [["to the first answer", f"{percentile(taken, 0.5):.2f}"]])
    return [verdict("cold start to the first answer, s", percentile(taken, 0.5), 1.0, at_least=False)]


async def main(*, quick: bool) -> None:
    """Run all measurements."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running("node", f"sqlite:///{folder / 'node.db'}") as node, running("echo") as echo:
            figures = await idle_connections(node, 100 if quick else 1_000)  # first: later ones reuse freed memory
            verdicts = await single_pushes(node, echo, 500 if quick else 5_000)
            verdicts += await batches(node, echo, 100 if quick else 1_000)
            figures |= await connections(node, [1, 100] if quick else [1, 100, 1_000], 500 if quick else 3_000)
            verdicts += await starts(node, echo, 50 if quick else 500)
        verdicts += await lists(folder, 2_000 if quick else 30_000)
        verdicts += await cold_start(folder)
    keep("server", {"verdicts": verdicts, **figures})


if __name__ == "__main__":
    asyncio.run(main(quick="--quick" in sys.argv))
