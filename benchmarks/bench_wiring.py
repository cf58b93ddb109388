"""Wiring time: from the declarations of a file to checked workflows, and to a loaded package.

One file declares 10, 100 or 1,000 tasks, ten per workflow, each of which uses a shared function. The time is compared
with the time in which Python parses the same file, and per task with the smallest file: both ratios show whether the
cost grows faster than the file.

python -m benchmarks.bench_wiring [--quick]
"""

import ast
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import tidemill as tm
from benchmarks.measure import console, keep, show, verdict
from tidemill.packages.loading.reader import import_module, read_module

SIZES = (10, 100, 1000)
TASKS_PER_WORKFLOW = 10
HEADER = """import tidemill as tm

LIMIT = 3


def scale(value: int) -> int:
    return value * LIMIT
"""
WORKFLOW = """

{name} = tm.Workflow("{name}")


@{name}.task
def {name}_0() -> int:
    return scale(1)
"""
TASK = """

@{name}.task
def {name}_{number}({name}_{previous}: int) -> int:
    return scale({name}_{previous})
"""


def source(tasks: int) -> str:
    """Return a file with chains of ten tasks each."""
    parts = [HEADER]
    for name in (f"flow_{number}" for number in range(tasks // TASKS_PER_WORKFLOW)):
        parts.append(WORKFLOW.format(name=name))
        parts += [TASK.format(name=name, number=one, previous=one - 1) for one in range(1, TASKS_PER_WORKFLOW)]
    return "".join(parts)


def measure_check(path: Path) -> float:
    """Return the seconds that it takes to check all workflows of a file that was just imported."""
    workflows = read_module(import_module(str(path))).workflows
    return seconds_of(lambda: [one.check() for one in workflows])


def measure_parse(path: Path) -> float:
    """Return the seconds that Python needs to parse a file."""
    text = path.read_text()
    return seconds_of(lambda: ast.parse(text))


async def measure_load(path: Path) -> float:
    """Return the seconds that a node needs to probe, import and load a file."""
    async with tm.Node() as node:
        began = perf_counter()
        await node.load(path)
        return perf_counter() - began


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def measure_file(path: Path, rounds: int) -> dict[str, float]:
    """Return the median seconds of each measurement."""
    return {
        "check": statistics.median(measure_check(path) for _ in range(rounds)),
        "parse": statistics.median(measure_parse(path) for _ in range(rounds)),
        "load": statistics.median(asyncio.run(measure_load(path)) for _ in range(rounds)),
    }


def row(size: int, seconds: dict[str, float]) -> list[str]:
    """Return a row of the table."""
    times = [f"{seconds[name] * 1000:,.1f} ms" for name in ("check", "parse", "load")]
    check = seconds["check"]
    return [f"{size:,}", *times, f"{check / seconds['parse']:.1f}", f"{check / size * 1e6:,.0f} us"]


def main() -> None:
    """Measure and print."""
    quick = "--quick" in sys.argv
    figures: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder, f"flows_{size}.py")
            path.write_text(source(size))
            figures[size] = measure_file(path, rounds=3 if quick else 7)
    columns = ["tasks in one file", "check", "Python parses it", "load", "check / parse", "check per task"]
    show("From declarations to checked workflows", columns, [row(*pair) for pair in figures.items()])
    console.print("Bounds")
    largest, smallest = figures[SIZES[-1]], figures[SIZES[0]]
    growth = largest["check"] / SIZES[-1] / (smallest["check"] / SIZES[0])
    verdicts = [
        verdict("check of 1,000 tasks, seconds", largest["check"], 1.0, at_least=False),
        verdict("cost per task, 1,000 tasks compared with 10", growth, 2.0, at_least=False, is_ratio=True),
        verdict("load of 1,000 tasks through the probe, seconds", largest["load"], 5.0, at_least=False),
    ]
    keep("wiring", {"seconds": {str(size): one for size, one in figures.items()}, "verdicts": verdicts})


if __name__ == "__main__":
    main()
