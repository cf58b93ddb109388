"""Reload time: from the write of a file to the moment at which its new code is loaded.

A node watches a folder as `tidemill dev` does, on SQLite. The same is measured for a file with a workflow, for one with
a reactor that fires all the time, and beside twenty other packages. Most of the time is the start of the probe
process; the start of a bare process is measured in the same run.

python -m benchmarks.bench_reload [--quick]
"""

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import tidemill as tm
from benchmarks.measure import console, keep, percentile, show, verdict
from tidemill.packages.status import PackageStatus

FLOW = """import tidemill as tm

{name} = tm.Workflow("{name}")


@{name}.task
def one() -> int:
    return {value}
"""
BUSY = """import tidemill as tm


@tm.polling(every="5ms")
async def {name}_ticks() -> int:
    return {value}


{name} = tm.Reactor("{name}", [{name}_ticks])
{name}_graph = tm.Graph("{name}_graph", reactor={name})


@{name}_graph.node
def double({name}_ticks: int) -> int:
    return 2 * {name}_ticks
"""


async def measure(source: str, saves: int, neighbours: int = 0) -> list[float]:
    """Return the seconds from each save until its code is loaded."""
    news: asyncio.Queue[PackageStatus] = asyncio.Queue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(neighbours):
            write(folder, f"near{number}", FLOW, number)
        write(folder, "saved", source, 0)
        async with tm.Node(f"sqlite:///{folder}/.bench.db") as node:
            reconciler = await node.watch_folder(folder, news.put_nowait)
            await reconciler.wait_until_settled()
            return [await save(folder, source, number, news) for number in range(1, saves + 1)]


def write(folder: str, name: str, source: str, value: int) -> None:
    """Write a file that is a package."""
    Path(folder, f"{name}.py").write_text(source.format(name=name, value=value))


async def save(folder: str, source: str, value: int, news: "asyncio.Queue[PackageStatus]") -> float:
    """Save the file with another value; return the seconds until that is loaded."""
    while not news.empty():
        news.get_nowait()
    began = perf_counter()
    write(folder, "saved", source, value)
    while (status := await news.get()).state != "loaded":
        assert status.state == "preparing", status.reason
    return perf_counter() - began


async def bare_start() -> float:
    """Return the seconds that a process takes which does nothing but import Tidemill."""
    began = perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-B", "-c", "import tidemill")
    await process.wait()
    return perf_counter() - began


async def run(saves: int, neighbours: int) -> dict[str, list[float]]:
    """Measure everything."""
    return {
        "a bare process": [await bare_start() for _ in range(saves)],
        "a workflow": await measure(FLOW, saves),
        "a busy reactor": await measure(BUSY, saves),
        f"a workflow, beside {neighbours} packages": await measure(FLOW, saves, neighbours),
    }


def main() -> None:
    """Measure and print."""
    quick = "--quick" in sys.argv
    figures = asyncio.run(run(2, 2) if quick else run(15, 20))
    rows = [
        [name, *(f"{seconds * 1000:,.0f} ms" for seconds in (statistics.median(took), percentile(took, 0.95)))]
        for name, took in figures.items()
    ]
    show("From a save to its loaded code", ["saved file", "median", "p95"], rows)
    console.print("Bounds")
    verdicts = [
        verdict(f"{name}: median, seconds", statistics.median(took), 0.5, at_least=False)
        for name, took in figures.items()
        if name != "a bare process"
    ]
    keep("reload", {"verdicts": verdicts})


if __name__ == "__main__":
    main()
