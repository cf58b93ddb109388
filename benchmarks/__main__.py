"""Run all benchmarks, or those that are named, and show every figure beside its bound.

python -m benchmarks [NAME ...] [--quick] [--peers] [--strict]
"""

import argparse
import sys

from benchmarks.measure import console, limit, show
from benchmarks.page import write_pages
from benchmarks.result_files import KEPT, Result
from benchmarks.runner import PEERS, Outcome, find_benchmarks, run_benchmarks


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(find_benchmarks())}")
    parser.add_argument("--quick", action="store_true", help="less exact; leaves the kept results alone")
    parser.add_argument("--peers", action="store_true", help="also run the same work on other libraries from PyPI")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a figure misses its bound")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(find_benchmarks())
    if unknown:
        parser.error(f"There is no benchmark {', '.join(sorted(unknown))}. `--help` lists them.")
    return arguments


def show_verdicts(results: dict[str, Result]) -> int:
    """Show all figures beside their bounds; return how many miss theirs."""
    verdicts = [(name, one) for name, result in results.items() for one in result.verdicts]
    rows = [
        [
            f"{name}: {one['what']}",
            f"{one['value']:,.3g}",
            limit(one),
            "[green]reached[/]" if one["reached"] else "[red]MISSED[/]",
        ]
        for name, one in verdicts
    ]
    show("All bounds", ["figure", "value", "required", ""], rows)
    missed = sum(not one["reached"] for _, one in verdicts)
    console.print(f"{len(verdicts) - missed} of {len(verdicts)} bounds reached, {missed} missed.")
    return missed


def remove_stale_results() -> None:
    """Remove the results of benchmarks that no longer exist."""
    for file in KEPT.glob("*.json"):
        if file.stem not in (*find_benchmarks(), PEERS):
            file.unlink()


def finish(outcome: Outcome, *, strict: bool) -> int:
    """Show what was found; return the status of the process."""
    missed = show_verdicts(outcome.results)
    if outcome.failed:
        console.print(f"[red]These benchmarks failed: {', '.join(outcome.failed)}.[/]")
    return 1 if outcome.failed or (strict and missed) else 0


def main() -> int:
    """Run the benchmarks."""
    arguments = parse_arguments()
    names = arguments.names or find_benchmarks()
    outcome = run_benchmarks([*names, *([PEERS] if arguments.peers else [])], quick=arguments.quick)
    if not arguments.quick:
        remove_stale_results()
        write_pages()
    return finish(outcome, strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
