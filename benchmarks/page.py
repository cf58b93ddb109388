"""Writes the tables and plots of docs/explanation/speed.md and scale.md from the kept results.

python -m benchmarks.page
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.capacity.page import write_tables
from benchmarks.machine import Machine
from benchmarks.measure import limit
from benchmarks.peers import graph_comparison, workflow_comparison
from benchmarks.result_files import Result, read_results
from benchmarks.runner import PEERS, describe_benchmark, find_benchmarks
from benchmarks.written_tables import LEFT, fill_blocks, render_table
from scripts.drawings.write import write_drawings

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "speed.md"
CANNOT = "cannot"


def fill_page(text: str, results: Mapping[str, Result]) -> str:
    """Return the text of the page with the tables of these results."""
    blocks = {"graphs": _graphs, "latency": _latency, "workflows": _workflows, "bounds": _bounds}
    tables = {name: partial(render, results) for name, render in blocks.items()}
    return fill_blocks(text, {**tables, "benchmarks": _benchmarks})


def _graphs(results: Mapping[str, Result]) -> str:
    rows = [
        [row["name"], f"{1e6 / row['us']:,.0f}", f"{row['us']:.2f} us", f"{row['of the bare loop']:.2f}"]
        for row in results[PEERS].figures["evaluated"]
    ]
    return render_table(["engine", "events/s", "each", "of the bare loop"], rows) + _source(
        results[PEERS], graph_comparison.PEERS
    )


def _latency(results: Mapping[str, Result]) -> str:
    rows = [[row["name"], f"{row['p50']:,.0f} us", f"{row['p99']:,.0f} us"] for row in results[PEERS].figures["paced"]]
    return render_table(["engine", "p50", "p99"], rows)


def _workflows(results: Mapping[str, Result]) -> str:
    rows = [
        [
            row["name"],
            f"{row['five']:,.0f}/s",
            f"{row['chain']:.2f} ms",
            f"{row['fan']:,.0f}/s" if "fan" in row else CANNOT,
            f"{row['p50']:.1f} ms",
            f"{row['p99']:.1f} ms",
        ]
        for row in results[PEERS].figures["workflows"]
    ]
    head = ["engine, store", "200 runs x 5", "chain of 50, each", "1 -> 200 -> 1", "start to first task", "p99"]
    return render_table(head, rows) + _source(results[PEERS], workflow_comparison.PEERS)


def _source(result: Result, peers: Sequence[str]) -> str:
    """Return the versions of peers, and the machine, as lines below a table."""
    versions: dict[str, str] = result.figures["versions"]
    lines = [f"Versions: {', '.join(f'{peer} {versions[peer]}' for peer in peers if peer in versions)}."]
    missing = [peer for peer in peers if peer not in versions]
    if missing:
        lines.append(f"Not installed on this machine: {', '.join(missing)}.")
    return "\n" + "\n".join([*lines, describe(result.machine)]) + "\n"


def _benchmarks() -> str:
    """Return what each benchmark measures, as the first paragraph of its module says."""
    rows = [[f"`{name}`", describe_benchmark(name)] for name in find_benchmarks()]
    return render_table(["benchmark", "measures"], rows, others=LEFT)


def _bounds(results: Mapping[str, Result]) -> str:
    rows = [
        [f"`{name}`: {one['what']}", f"{one['value']:,.3g}", limit(one), "" if one["reached"] else "**missed**"]
        for name, result in results.items()
        for one in result.verdicts
    ]
    machines = sorted({describe(result.machine) for result in results.values() if result.verdicts})
    return render_table(["figure", "measured", "required", ""], rows) + "\n" + "\n".join(machines) + "\n"


def describe(machine: Machine) -> str:
    """Return when and where figures were measured, as a sentence."""
    return (
        f"Measured on {machine.measured_on}: {machine.summary}, {machine.system}, SQLite {machine.sqlite} on "
        f"{machine.file_system}."
    )


def write_pages() -> None:
    """Write the tables and the plots."""
    PAGE.write_text(fill_page(PAGE.read_text(), read_results()))
    write_tables()
    write_drawings()


if __name__ == "__main__":
    write_pages()
