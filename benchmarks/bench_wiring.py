"""Wiring time: from the declarations of a file to checked workflows, and to a loaded package.

One file declares 10, 100 or 1,000 tasks, ten per workflow, each of which uses a shared function. The time is compared
with the time in which Python parses the same file. Then a node loads 100 and 1,000 declarations of each kind: the CPU
time of one shows whether the cost grows faster than the file.

python -m benchmarks.bench_wiring [--quick]
"""

import ast
import asyncio
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

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

GRAPH = """

{name} = tm.Graph("{name}")


@{name}.node
def {name}_0(x: int) -> int:
    return scale(x)
"""
NODE = """

@{name}.node
def {name}_{number}({name}_{previous}: int) -> int:
    return scale({name}_{previous})
"""
REACTOR = """

@tm.passthrough
def events_{number}(event: int) -> int:
    return event


reactor_{number} = tm.Reactor("reactor_{number}", [events_{number}])
"""


def source(tasks: int) -> str:
    """Return a file with chains of ten tasks each."""
    return _chains(WORKFLOW, TASK, tasks)


def _chains(first: str, following: str, size: int) -> str:
    parts = [HEADER]
    for name in (f"chain_{number}" for number in range(size // TASKS_PER_WORKFLOW)):
        parts.append(first.format(name=name))
        parts += [following.format(name=name, number=one, previous=one - 1) for one in range(1, TASKS_PER_WORKFLOW)]
    return "".join(parts)


KINDS: dict[str, Callable[[int], str]] = {
    "task": source,
    "node of a graph": lambda size: _chains(GRAPH, NODE, size),
    "reactor": lambda size: HEADER + "".join(REACTOR.format(number=number) for number in range(size)),
}
"""What is declared, and the file that declares so many of it."""


def measure_check(path: Path) -> float:
    """Return the seconds that it takes to check all workflows of a file that was just imported."""
    workflows = read_module(import_module(str(path))).workflows

    def check() -> None:
        for one in workflows:
            one.check()

    return seconds_of(check)


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


async def measure_declarations(path: Path) -> float:
    """Return the seconds of CPU that a node needs to import and load a file, in its own process alone.

    Without the garbage collector: what it costs depends on what else the process holds.
    """
    async with tm.Node() as node:
        gc.collect()
        gc.disable()
        began = process_time()
        await node.load(import_module(str(path)))
        seconds = process_time() - began
        gc.enable()
        return seconds


def growth(folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Return for each kind the seconds of CPU of one declaration, in a file with 100 and in one with 1,000."""
    found = {}
    for number, (kind, write) in enumerate(KINDS.items()):
        costs: dict[int, list[float]] = {100: [], 1000: []}
        for _ in range(rounds):
            for size in costs:
                path = folder / f"kind_{number}_{size}.py"
                path.write_text(write(size))
                costs[size].append(asyncio.run(measure_declarations(path)) / size)
        found[kind] = statistics.median(costs[100]), statistics.median(costs[1000])
    return found


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
    rounds = 3 if quick else 7
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder, f"flows_{size}.py")
            path.write_text(source(size))
            figures[size] = measure_file(path, rounds)
        kinds = growth(Path(folder), rounds)
    columns = ["tasks in one file", "check", "Python parses it", "load", "check / parse", "check per task"]
    show("From declarations to checked workflows", columns, [row(*pair) for pair in figures.items()])
    costs = [[kind, *(f"{seconds * 1e6:,.0f} us" for seconds in pair)] for kind, pair in kinds.items()]
    show("CPU of one declaration, loaded in one process", ["", "of 100", "of 1,000"], costs)
    console.print("Bounds")
    largest = figures[SIZES[-1]]
    verdicts = [
        verdict("check of 1,000 tasks, seconds", largest["check"], 1.0, at_least=False),
        verdict("load of 1,000 tasks through the probe, seconds", largest["load"], 1.0, at_least=False),
        *(
            verdict(f"cost of a {kind}, 1,000 compared with 100", many / few, 1.3, at_least=False, is_ratio=True)
            for kind, (few, many) in kinds.items()
        ),
    ]
    keep("wiring", {"seconds": {str(size): one for size, one in figures.items()}, "verdicts": verdicts})


if __name__ == "__main__":
    main()
