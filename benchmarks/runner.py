"""Runs benchmarks one after the other, each in a process of its own, and says how far it is."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import console
from benchmarks.result_files import KEPT, QUICK, Result, read_results

PREFIX = "bench_"
PEERS = "peers"
"""The comparison with other libraries, which is not among the benchmarks that always run."""


class Outcome(NamedTuple):
    """The results of benchmarks that ran, and the names of those that ended with an error."""

    results: dict[str, Result]
    failed: list[str]


def find_benchmarks() -> list[str]:
    """Return the names of all benchmarks, without the peers."""
    return sorted(file.stem.removeprefix(PREFIX) for file in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def describe_benchmark(name: str) -> str:
    """Return the first paragraph of a benchmark's module."""
    module = ast.parse((Path(__file__).parent / f"{PREFIX}{name}.py").read_text())
    return " ".join((ast.get_docstring(module) or "").partition("\n\n")[0].split())


def run_benchmarks(names: Iterable[str], *, quick: bool) -> Outcome:
    """Run benchmarks; one that fails does not keep the others from running."""
    folder = QUICK if quick else KEPT
    left, failed = list(names), []
    chosen, total = tuple(left), len(left)
    lasted = {name: result.seconds for name, result in read_results(folder).items()}
    while left:
        name = left[0]
        console.rule(f"[{total - len(left) + 1} of {total}] {name}{_estimate(left, lasted)}", align="left")
        if not _run(name, quick=quick):
            console.print(f"  [red]The benchmark {name} failed.[/]")
            failed.append(name)
        del left[0]
    found = read_results(folder)
    return Outcome({name: found[name] for name in chosen if name in found and name not in failed}, failed)


def _run(name: str, *, quick: bool) -> bool:
    module = f"benchmarks.{PEERS}" if name == PEERS else f"benchmarks.{PREFIX}{name}"
    command = [sys.executable, "-m", module, *(["--quick"] if quick else [])]
    return subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode == 0


def _estimate(left: list[str], lasted: dict[str, float]) -> str:
    """Say how long this benchmark and the rest took the last time, as far as that is known."""
    if left[0] not in lasted:
        return ""
    rest = sum(lasted.get(name, 0.0) for name in left)
    return f": about {lasted[left[0]]:.0f} s, {rest / 60:.1f} min with all that follow"
