"""Measures on a noisy machine: contestants alternate in short rounds, and ratios compare their undisturbed rounds."""

import re
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe_machine
from benchmarks.result_files import KEPT, QUICK, Result, Verdict, write_result

BEGAN = perf_counter()
"""When this process began to measure: a benchmark is one process."""
console = Console()
UNDISTURBED = 0.05
"""The percentile of rounds that ratios compare: what other processes take away during a round is no cost of code."""

Round = Callable[[int], object]


def take_turns(contestants: Mapping[str, Round], *, events: int, rounds: int) -> dict[str, list[float]]:
    """Let every contestant handle `events` in each round; return seconds per event, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            began = perf_counter()
            run(events)
            seconds[name].append((perf_counter() - began) / events)
    return seconds


def ratio(slower: list[float], faster: list[float]) -> float:
    """Return how many times as fast `faster` is, in rounds that the rest of the machine left alone."""
    return percentile(slower, UNDISTURBED) / percentile(faster, UNDISTURBED)


def percentile(values: list[float], share: float) -> float:
    """Return the percentile of the values for this share."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def verdict(what: str, value: float, bound: float, *, at_least: bool, is_ratio: bool = False) -> Verdict:
    """Print whether a figure reaches its bound, and return it.

    Results of different days are compared by `what`, so it holds no figure that varies. A ratio compares times of the
    same run, and is the same with `--quick`: `make bench-check` compares ratios, and no other figures.
    """
    reached = value >= bound if at_least else value <= bound
    found = Verdict(
        id=re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-"),
        what=what,
        value=value,
        bound=bound,
        at_least=at_least,
        is_ratio=is_ratio,
        reached=reached,
    )
    colour = "green" if reached else "red"
    console.print(
        f"  [{colour}]{'reached' if reached else 'MISSED '}[/] {what}: {value:,.3g} (required {limit(found)})"
    )
    return found


def limit(found: Verdict) -> str:
    """Return the bound of a verdict as text."""
    return f"{'>=' if found['at_least'] else '<='} {found['bound']:,.3g}"


def keep(name: str, figures: Mapping[str, Any]) -> None:
    """Write the verdicts of a benchmark, and its other figures, with a description of the machine."""
    result = Result(
        benchmark=name,
        seconds=perf_counter() - BEGAN,
        machine=describe_machine(),
        verdicts=list(figures.get("verdicts", ())),
        figures={key: value for key, value in figures.items() if key != "verdicts"},
    )
    write_result(result, QUICK if "--quick" in sys.argv else KEPT)
