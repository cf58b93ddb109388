"""The command line: from the start of a process to its help, to the first line of a task, and to the first output.

Bare Python is measured in the same rounds: it is the floor of everything that starts a process.

python -m benchmarks.bench_cli [--quick]
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.measure import console, keep, show, verdict
from tidemill.cli.main import COMMANDS

TIDEMILL = "-m", "tidemill"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Python compiles a module once in the life of an installation, unless this variable forbids it to keep the result."""

STAMP = "BENCH_STAMP"
"""The variable that holds the file in which a task writes when it began."""
FLOW = f"""
import os, time
import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def first() -> None:
    with open(os.environ["{STAMP}"], "w") as file:
        file.write(repr(time.perf_counter()))
"""

HELP_BOUND = 150
BOUNDS = {
    "import tidemill": 60,
    "tidemill --version": HELP_BOUND,
    "tidemill --help": HELP_BOUND,
    "tidemill run FILE, to the first task": 300,
    "tidemill dev, to the first line": 600,
}
"""Milliseconds that each start may take."""


def to_exit(*arguments: str) -> float:
    """Return the seconds from the start of Python with these arguments to its exit."""
    began = perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return perf_counter() - began


def to_first_task(folder: Path) -> float:
    """Return the seconds from the start of `tidemill run FILE` to the first line of its first task."""
    stamp = folder / "stamp"
    began = perf_counter()
    subprocess.run(
        [sys.executable, *TIDEMILL, "run", str(folder / "flow.py")],
        check=True,
        capture_output=True,
        env=ENVIRONMENT | {STAMP: str(stamp)},
    )
    return float(stamp.read_text()) - began  # the clock of all processes of a machine


def to_first_output(folder: Path) -> float:
    """Return the seconds from the start of `tidemill dev` to the first line that it prints."""
    began = perf_counter()
    command = [sys.executable, *TIDEMILL, "dev", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = perf_counter() - began
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert line, "it printed nothing"
    return seconds


def take_medians(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Let the contestants take turns; return the median milliseconds of each. The first round compiles."""
    seconds: dict[str, list[float]] = {what: [] for what in contestants}
    for _ in range(rounds + 1):
        for what, measure in contestants.items():
            seconds[what].append(measure())
    return {what: median(values[1:]) * 1e3 for what, values in seconds.items()}


def measure_starts(rounds: int) -> dict[str, float]:
    """Return the milliseconds from the start of processes to what they are started for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flow.py").write_text(FLOW)
        return take_medians(
            {
                "python -c pass": partial(to_exit, "-c", "pass"),
                "import tidemill": partial(to_exit, "-c", "import tidemill"),
                "tidemill --version": partial(to_exit, *TIDEMILL, "--version"),
                "tidemill --help": partial(to_exit, *TIDEMILL, "--help"),
                "tidemill run FILE, to the first task": partial(to_first_task, folder),
                "tidemill dev, to the first line": partial(to_first_output, folder),
            },
            rounds,
        )


def main() -> None:
    """Measure everything and write the figures."""
    quick = "--quick" in sys.argv
    starts = measure_starts(2 if quick else 9)
    helps = take_medians({name: partial(to_exit, *TIDEMILL, name, "--help") for name in COMMANDS}, 1 if quick else 3)
    slowest = max(helps, key=lambda name: helps[name])
    rows = [*starts.items(), (f"tidemill {slowest} --help, the slowest of all commands", helps[slowest])]
    show("From the start of a process", ["", "ms"], [[what, f"{milliseconds:.0f}"] for what, milliseconds in rows])
    console.print("Bounds")
    verdicts = [verdict(f"{what}, ms", starts[what], bound, at_least=False) for what, bound in BOUNDS.items()]
    verdicts.append(verdict("tidemill COMMAND --help, the slowest, ms", helps[slowest], HELP_BOUND, at_least=False))
    keep(
        "cli",
        {"milliseconds": starts | {f"tidemill {name} --help": one for name, one in helps.items()}}
        | {"verdicts": verdicts},
    )


if __name__ == "__main__":
    main()
