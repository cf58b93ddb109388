"""Limits: a flood under "latest", memory over millions of events, import time.

python -m benchmarks.bench_limits [--quick]
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import tidemill as tm
from benchmarks.market_maker import SOURCES, ledger, make_event, maker, market
from benchmarks.measure import keep, ratio, show, verdict

MILLION = 1_000_000
TURN = 1_000  # events between two turns of the loop
SHARE_OF_SLOT = 0.14


class Tick(tm.Boundary):
    """A price."""

    price: float


@tm.passthrough
def ticks(event: Tick) -> Tick:
    return event


flooded = tm.Reactor("flooded", [ticks], strategy="latest")
slow = tm.Graph("slow", reactor=flooded)


@slow.node
async def think(ticks: Tick) -> float:
    await asyncio.sleep(0)
    return ticks.price


class BareSlot:
    """The least that "latest" can do: keep the newest event, and that it is new."""

    def __init__(self) -> None:
        self.latest: Tick | None = None
        self.is_dirty = False

    def push(self, event: Tick) -> None:
        """Replace the event."""
        self.latest = event
        self.is_dirty = True


class Flood(NamedTuple):
    """Pushes per second, firings per second, and pushes for each one of a bare slot."""

    accepted: float
    fired: float
    share: float


async def flood(seconds: float) -> Flood:
    """Push as fast as possible while an async graph runs; yield to the event loop every 1,000 events."""
    async with tm.Node(load=[flooded, slow]) as node:
        push, bare, tick = node.handle("ticks"), BareSlot().push, Tick(1.0)
        ours: list[float] = []
        bares: list[float] = []
        while sum(ours) < seconds:
            began = perf_counter()
            for _ in range(TURN):
                push(tick)
            await asyncio.sleep(0)
            between = perf_counter()
            for _ in range(TURN):
                bare(tick)
            ours.append(between - began)
            bares.append(perf_counter() - between)
        state = node.reactor("flooded").state()
    assert state.accumulators["ticks"].emitted == len(ours) * TURN, "a push was lost"
    return Flood(len(ours) * TURN / sum(ours), state.fires / sum(ours), ratio(bares, ours))


def resident() -> float:
    """Return the memory this process holds, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MILLION


async def memory(events: int) -> list[tuple[int, float]]:
    """Push many events through the market maker and record the memory at intervals."""
    ledger.clear()
    noted = []
    async with tm.Node(load=[market, maker]) as node:
        handles = [node.handle(name) for name in SOURCES]
        for number in range(events + 1):
            source, event = make_event(number, number)
            handles[source](event)
            if number % (events // 5) == 0:
                noted.append((number, resident()))
                await asyncio.sleep(0)
    return noted


def import_time(runs: int) -> float:
    """Return the fastest of several imports of tidemill on top of asyncio and msgspec, in milliseconds."""
    code = (
        "import asyncio, msgspec, msgspec.json, msgspec.msgpack; from time import perf_counter; "
        "began = perf_counter(); import tidemill; print((perf_counter() - began) * 1000)"
    )
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(runs + 1)  # the first one compiles
    ]
    return min(float(one) for one in found)


def main() -> None:
    """Run all, print tables, write the figures."""
    quick = "--quick" in sys.argv
    verdicts = []
    found = asyncio.run(flood(0.3 if quick else 4.0))
    show(
        '"latest" under a flood, async graph',
        ["pushes/s accepted", "firings/s", "of a bare slot"],
        [[f"{found.accepted:,.0f}", f"{found.fired:,.0f}", f"{found.share:.2f}"]],
    )
    verdicts.append(verdict("pushes/s accepted", found.accepted, 1.5 * MILLION, at_least=True))
    verdicts.append(
        verdict("pushes accepted, share of a bare slot", found.share, SHARE_OF_SLOT, at_least=True, is_ratio=True)
    )
    noted = asyncio.run(memory(MILLION // 2 if quick else 10 * MILLION))
    show("Memory over the market maker's events", ["events", "MB"], [[f"{n:,}", f"{mb:.1f}"] for n, mb in noted])
    verdicts.append(verdict("MB grown since the first fifth", noted[-1][1] - noted[1][1], 2.0, at_least=False))
    milliseconds = import_time(3 if quick else 10)
    verdicts.append(verdict("import ms on top of asyncio and msgspec", milliseconds, 60, at_least=False))
    keep("limits", {"verdicts": verdicts})


if __name__ == "__main__":
    main()
