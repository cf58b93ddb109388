"""The command line: from the start of a process to its help, to the first line of a task, and to the first output.

Bare Python is measured in the same rounds: it is the floor of everything that starts a process.

python -m benchmarks.bench_cli [--quick]
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from benchmarks.measure import console, keep, ratio, show, verdict
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
RUN = "tidemill run FILE, to the first task"
BOUNDS = {
    "import tidemill": 60,
    "tidemill --version": HELP_BOUND,
    "tidemill --help": HELP_BOUND,
    RUN: 300,
    "tidemill dev, to the first line": 600,
}
"""Milliseconds that each start may take."""
BARE = "python -c pass"
MULTIPLES = {"tidemill --help": 8, RUN: 24}
"""How many times the CPU of bare Python each process may take: it hardly depends on the machine."""


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


class Starts(NamedTuple):
    """The starts of one contestant, round by round, without the first one, which compiles."""

    wall: list[float]
    """Seconds to what the process was started for."""
    cpu: list[float]
    """Seconds of CPU of the whole process."""

    @property
    def milliseconds(self) -> float:
        """The median."""
        return median(self.wall) * 1e3


def in_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Starts]:
    """Let the contestants take turns."""
    found = {what: Starts([], []) for what in contestants}
    for number in range(rounds + 1):
        for what, measure in contestants.items():
            used = cpu_of_children()
            seconds = measure()
            if number:
                found[what].wall.append(seconds)
                found[what].cpu.append(cpu_of_children() - used)
    return found


def cpu_of_children() -> float:
    """Return the seconds of CPU of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_starts(rounds: int) -> dict[str, Starts]:
    """Measure the starts of processes, to what they are started for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "flow.py").write_text(FLOW)
        return in_turns(
            {
                BARE: partial(to_exit, "-c", "pass"),
                "import tidemill": partial(to_exit, "-c", "import tidemill"),
                "tidemill --version": partial(to_exit, *TIDEMILL, "--version"),
                "tidemill --help": partial(to_exit, *TIDEMILL, "--help"),
                RUN: partial(to_first_task, folder),
                "tidemill dev, to the first line": partial(to_first_output, folder),
            },
            rounds,
        )


def main() -> None:
    """Measure everything and write the figures."""
    quick = "--quick" in sys.argv
    found = measure_starts(4 if quick else 9)
    starts = {what: one.milliseconds for what, one in found.items()}
    commands = {name: partial(to_exit, *TIDEMILL, name, "--help") for name in COMMANDS}
    helps = {name: one.milliseconds for name, one in in_turns(commands, 1 if quick else 3).items()}
    slowest = max(helps, key=lambda name: helps[name])
    rows = [*starts.items(), (f"tidemill {slowest} --help, the slowest of all commands", helps[slowest])]
    show("From the start of a process", ["", "ms"], [[what, f"{milliseconds:.0f}"] for what, milliseconds in rows])
    console.print("Bounds")
    verdicts = [verdict(f"{what}, ms", starts[what], bound, at_least=False) for what, bound in BOUNDS.items()]
    verdicts.append(verdict("tidemill COMMAND --help, the slowest, ms", helps[slowest], HELP_BOUND, at_least=False))
    verdicts += [
        verdict(
            f"{what.partition(',')[0]}, CPU times {BARE}",
            ratio(found[what].cpu, found[BARE].cpu),
            bound,
            at_least=False,
            is_ratio=True,
        )
        for what, bound in MULTIPLES.items()
    ]
    keep(
        "cli",
        {"milliseconds": starts | {f"tidemill {name} --help": one for name, one in helps.items()}}
        | {"verdicts": verdicts},
    )


if __name__ == "__main__":
    main()
