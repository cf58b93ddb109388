"""Measures on a noisy machine: contestants alternate in short rounds, and ratios compare times of the same round."""

import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results")
console = Console()

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
    """Return the median, over the rounds, of how many times as fast `faster` is."""
    return statistics.median(one / other for one, other in zip(slower, faster, strict=True))


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


def verdict(what: str, value: float, bound: float, *, at_least: bool) -> dict[str, Any]:
    """Print whether a figure reaches its bound, and return it."""
    reached = value >= bound if at_least else value <= bound
    sign = ">=" if at_least else "<="
    colour = "green" if reached else "red"
    console.print(
        f"  [{colour}]{'reached' if reached else 'MISSED '}[/] {what}: {value:,.3g} (required {sign} {bound:,.3g})"
    )
    return {"what": what, "value": value, "bound": bound, "at_least": at_least, "reached": reached}


def keep(name: str, figures: Any) -> None:
    """Write figures as JSON."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=2) + "\n")
