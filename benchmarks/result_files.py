"""The files of results: one per benchmark, with its verdicts, small summaries, and the machine they come from.

A full run writes `benchmarks/results/`, which belongs to the repository: `make bench-check` compares with it, and the
documentation shows it. A run with `--quick` is less exact; it writes `build/benchmarks/`.
"""

from collections import Counter
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from benchmarks.machine import Machine

KEPT = Path(__file__).with_name("results")
QUICK = Path(__file__).parents[1] / "build" / "benchmarks"
DIGITS = 4
"""The significant digits that are kept: more than any of these measurements is good for."""


class Verdict(TypedDict):
    """A figure beside the bound that it has to reach."""

    id: str
    """Stable over runs: results of different days are compared by it."""
    what: str
    value: float
    bound: float
    at_least: bool
    """Whether the bound is a floor; otherwise it is a ceiling."""
    is_ratio: bool
    """Whether both sides of the figure were measured in the same run, which makes it comparable over machines."""
    reached: bool


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a benchmark found."""

    benchmark: str
    seconds: float
    """How long the run took."""
    machine: Machine
    verdicts: list[Verdict]
    figures: dict[str, Any] = {}
    """Summaries that the documentation shows, never values round by round."""


def write_result(result: Result, folder: Path = KEPT) -> None:
    """Write the file of a benchmark."""
    counted = Counter(one["id"] for one in result.verdicts)
    twice = [name for name, count in counted.items() if count > 1]
    if twice:
        raise ValueError(f"The benchmark {result.benchmark} has several verdicts with the id {', '.join(twice)}.")
    folder.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(_rounded(msgspec.to_builtins(result)))
    (folder / f"{result.benchmark}.json").write_bytes(msgspec.json.format(content, indent=2) + b"\n")


def read_results(folder: Path = KEPT) -> dict[str, Result]:
    """Read all results of a folder, by the name of their benchmark."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: msgspec.json.decode(file.read_bytes(), type=Result) for file in files}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value
