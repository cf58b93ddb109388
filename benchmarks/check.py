"""Fail if a ratio of the benchmarks lost more than a tenth of what is kept in benchmarks/results/.

python -m benchmarks.check [NAME ...]

The quick forms run. Benchmarks that lost something run again, up to twice: the best of all counts, so that a busy
machine does not fail the check.
"""

import argparse
import sys
from collections.abc import Mapping

from benchmarks.comparison import TOLERANCE, Comparison, Standing, best_of, compare
from benchmarks.measure import console, show
from benchmarks.result_files import Result, read_results
from benchmarks.runner import Outcome, find_benchmarks, run_benchmarks

REPETITIONS = 2
COLOURS = {Standing.HELD: "green", Standing.LOST: "red", Standing.MISSING: "red", Standing.NEW: "yellow"}


def with_ratios(results: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results that have ratios."""
    return {name: result for name, result in results.items() if any(one["is_ratio"] for one in result.verdicts)}


def measure(kept: Mapping[str, Result]) -> Outcome:
    """Run the benchmarks of the kept results that still exist; run those again that lost something."""
    existing = find_benchmarks()
    outcome = run_benchmarks([name for name in kept if name in existing], quick=True)
    for _ in range(REPETITIONS):
        lost = sorted({one.benchmark for one in compare(kept, outcome.results) if one.standing is Standing.LOST})
        if not lost:
            break
        console.print(f"[yellow]{', '.join(lost)}: a ratio is lower than the kept one. Measuring again.[/]")
        again = run_benchmarks(lost, quick=True)
        outcome = Outcome(best_of(outcome.results, again.results), outcome.failed + again.failed)
    return outcome


def show_comparisons(comparisons: list[Comparison]) -> None:
    """Show every ratio then and now."""
    rows = [
        [f"{one.benchmark}: {one.what}", _figure(one.kept), _figure(one.now), _change(one), _coloured(one.standing)]
        for one in comparisons
    ]
    show("Ratios", ["ratio", "kept", "now", "change", ""], rows)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _change(one: Comparison) -> str:
    return "-" if one.kept is None or one.now is None else f"{-one.loss:+.0%}"


def _coloured(standing: Standing) -> str:
    return f"[{COLOURS[standing]}]{standing}[/]"


def describe(one: Comparison) -> str:
    """Return what happened to a ratio, as a sentence without its full stop."""
    if one.now is None:
        return f"{one.what} is no longer measured (kept: {_figure(one.kept)})"
    return f"{one.what} lost {one.loss:.0%}: {_figure(one.now)} now, {_figure(one.kept)} kept"


def conclude(comparisons: list[Comparison], failed: list[str]) -> int:
    """Say what was lost and what to do; return the status of the process."""
    for name in failed:
        console.print(f"[red]The benchmark {name} failed.[/]")
    bad = [one for one in comparisons if one.fails]
    for one in bad:
        console.print(f"[red]{one.benchmark}: {describe(one)}.[/]")
    if bad:
        console.print("If that is intended, run `make bench` on a quiet machine and commit benchmarks/results/.")
    elif not failed:
        console.print(f"No ratio lost more than {TOLERANCE:.0%}.")
    return 1 if bad or failed else 0


def main() -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all benchmarks with kept ratios")
    names = parser.parse_args().names
    kept = {name: one for name, one in with_ratios(read_results()).items() if not names or name in names}
    if not kept:
        console.print("There are no kept ratios: `make bench` writes them to benchmarks/results/.")
        return 1
    outcome = measure(kept)
    comparisons = compare(kept, outcome.results)
    show_comparisons(comparisons)
    return conclude(comparisons, outcome.failed)


if __name__ == "__main__":
    sys.exit(main())
