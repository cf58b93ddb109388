"""The journal on SQLite: events per second and CPU time per event of durability="boundary", beside the bare driver.

Many tasks push, each waits for its commit. A file in memory, as on a disk that costs nothing, shows what the engine and
the driver cost; a file on the disk shows what users get. CPU time is that of the whole process, pushers and graph
included. The first commits of a new file are measured separately: its write-ahead log has not grown yet.

python -m benchmarks.bench_journal [--quick]
"""

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import tidemill as tm
from benchmarks.bench_durability import Pushers, load, raw_sqlite
from benchmarks.measure import keep, percentile, show, verdict

PUSHERS = (64, 256, 512)
MEMORY = Path("/dev/shm")  # Linux has it, and so has CI
WARM_UP = 2_000  # events
FIRST_COMMITS = 500


class Figures(NamedTuple):
    """What one event costs, in seconds: medians over the rounds."""

    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return 1 / self.wall


async def measure_pushers(folder: Path, count: int, rounds: int, events: int) -> Figures:
    """Push from `count` tasks into a new file."""
    wall, cpu = [], []
    async with tm.Node(store=f"sqlite:///{folder}/{count}.db", load=load("boundary", "sequential")) as node:
        pushers = Pushers(node, count)
        await pushers.run(WARM_UP)
        for _ in range(rounds):
            began, used = perf_counter(), process_time()
            await pushers.run(events)
            wall.append((perf_counter() - began) / events)
            cpu.append((process_time() - used) / events)
    return Figures(statistics.median(wall), statistics.median(cpu))


async def measure_first_commits(folder: Path) -> list[float]:
    """Return how long each of the first pushes into a new file waits for its commit."""
    async with tm.Node(store=f"sqlite:///{folder}/first.db", load=load("boundary", "sequential")) as node:
        pushers = Pushers(node, 1)
        await pushers.run(FIRST_COMMITS)
    return pushers.waited


async def measure_folder(parent: Path | None, title: str, rounds: int, events: int) -> tuple[list[Figures], list[str]]:
    """Measure every number of pushers in one file system, and the bare driver beside it; print the table."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        raw = dict(await raw_sqlite(folder, 0.05 * rounds))[256]
        figures = [await measure_pushers(folder, count, rounds, events) for count in PUSHERS]
        waited = await measure_first_commits(folder)
    rows = [
        [str(count), f"{one.rate:,.0f}", f"{one.cpu * 1e6:.1f}", f"{one.rate / raw:.2f}"]
        for count, one in zip(PUSHERS, figures, strict=True)
    ]
    rows.append(["bare driver, 256 rows a commit", f"{raw:,.0f}", "", ""])
    show(f'durability="boundary" on SQLite, {title}', ["pushers", "events/s", "CPU us/event", "of the driver"], rows)
    first = [f"{percentile(waited, share) * 1e6:,.0f}" for share in (0.5, 0.95)]
    return figures, [title, *first]


async def run(*, quick: bool) -> list[dict[str, Any]]:
    """Measure with a free disk and on the disk, print tables, return verdicts."""
    extent = (5, 4_000) if quick else (12, 20_000)
    in_memory, first_in_memory = await measure_folder(MEMORY, "a file in memory", *extent)
    _, first_on_disk = await measure_folder(None, "a file on the disk", *extent)
    title = f"The first {FIRST_COMMITS} commits into a new file, one event each"
    show(title, ["", "p50 until acknowledged, us", "p95, us"], [first_in_memory, first_on_disk])
    rate, cpu = max(one.rate for one in in_memory), min(one.cpu for one in in_memory)
    return [
        verdict("boundary, a file in memory, events/s", rate, 55_000, at_least=True),
        verdict("boundary, CPU microseconds per event", cpu * 1e6, 17, at_least=False),
    ]


def main() -> None:
    """Measure, and write the figures."""
    keep("journal", {"verdicts": asyncio.run(run(quick="--quick" in sys.argv))})


if __name__ == "__main__":
    main()
