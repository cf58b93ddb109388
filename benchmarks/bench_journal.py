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
from contextlib import closing
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import tidemill as tm
from benchmarks.bare_driver import ROWS_PER_COMMIT, BareDriver
from benchmarks.bench_durability import Pushers, load
from benchmarks.measure import keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict

PUSHERS = (64, 256, 512)
MEMORY = Path("/dev/shm")  # Linux has it, and so has CI
WARM_UP = 2_000  # events
FIRST_COMMITS = 500
SHARE_OF_DRIVER = 0.08
"""Of the rows that the bare driver writes: it neither checks nor evaluates an event, nor answers one."""


class Figures(NamedTuple):
    """What one event costs, in seconds, round by round; and the bare driver, which took turns with it."""

    wall: list[float]
    cpu: list[float]
    driver: BareDriver

    @property
    def rate(self) -> float:
        """Events per second, the median."""
        return 1 / statistics.median(self.wall)

    @property
    def share_of_driver(self) -> float:
        """The rate of events per second of CPU beside that of the driver's rows: other processes change neither."""
        return ratio(self.driver.cpu, self.cpu)


async def measure_pushers(folder: Path, count: int, rounds: int, events: int) -> Figures:
    """Push from `count` tasks into a new file, in turns with the bare driver."""
    wall, cpu = [], []
    address = f"sqlite:///{folder}/{count}.db"
    with tempfile.TemporaryDirectory(dir=folder) as name, closing(BareDriver(Path(name))) as driver:
        async with tm.Node(store=address, load=load("boundary", "sequential")) as node:
            pushers = Pushers(node, count)
            await pushers.run(WARM_UP)
            for _ in range(rounds):
                began, used = perf_counter(), process_time()
                await pushers.run(events)
                wall.append((perf_counter() - began) / events)
                cpu.append((process_time() - used) / events)
                driver.run(events)
    return Figures(wall, cpu, driver)


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
        figures = [await measure_pushers(folder, count, rounds, events) for count in PUSHERS]
        waited = await measure_first_commits(folder)
    rows = [
        [str(count), f"{one.rate:,.0f}", f"{statistics.median(one.cpu) * 1e6:.1f}", f"{one.share_of_driver:.2f}"]
        for count, one in zip(PUSHERS, figures, strict=True)
    ]
    bare = 1 / statistics.median(seconds for one in figures for seconds in one.driver.wall)
    rows.append([f"bare driver, {ROWS_PER_COMMIT} rows a commit", f"{bare:,.0f}", "", ""])
    show(
        f'durability="boundary" on SQLite, {title}',
        ["pushers", "events/s", "CPU us/event", "of the driver, by CPU"],
        rows,
    )
    first = [f"{percentile(waited, share) * 1e6:,.0f}" for share in (0.5, 0.95)]
    return figures, [title, *first]


async def run(*, quick: bool) -> list[Verdict]:
    """Measure with a free disk and on the disk, print tables, return verdicts."""
    extent = (5, 4_000) if quick else (12, 20_000)
    in_memory, first_in_memory = await measure_folder(MEMORY, "a file in memory", *extent)
    _, first_on_disk = await measure_folder(None, "a file on the disk", *extent)
    title = f"The first {FIRST_COMMITS} commits into a new file, one event each"
    show(title, ["", "p50 until acknowledged, us", "p95, us"], [first_in_memory, first_on_disk])
    rate = max(one.rate for one in in_memory)
    cpu = min(statistics.median(one.cpu) for one in in_memory)
    share = max(one.share_of_driver for one in in_memory)
    what = "boundary, a file in memory, share of the bare driver by CPU"
    return [
        verdict(what, share, SHARE_OF_DRIVER, at_least=True, is_ratio=True),
        verdict("boundary, a file in memory, events/s", rate, 55_000, at_least=True),
        verdict("boundary, CPU microseconds per event", cpu * 1e6, 17, at_least=False),
    ]


def main() -> None:
    """Measure, and write the figures."""
    keep("journal", {"verdicts": asyncio.run(run(quick="--quick" in sys.argv))})


if __name__ == "__main__":
    main()
