"""The plots of the page about speed, drawn from the kept results of the benchmarks."""

import math
from typing import Any, NamedTuple

from benchmarks.result_files import read_results
from scripts.drawings.canvas import Canvas, Look, Point

WIDTH = 744
LABELS = 16.0  # where labels begin
BARS = 232.0  # where bars begin
LONGEST = 400.0  # the longest bar; its figure needs the rest
ROW = 26.0
BAR = 15.0
TITLE = 40.0


class Bar(NamedTuple):
    """A row of a plot."""

    label: str
    value: float
    figure: str


def draw_graph_throughput() -> Canvas:
    """Draw the events per second of each engine, as shares of the bare loop."""
    bars = [
        Bar(row["name"], row["of the bare loop"], f"{row['of the bare loop']:.2f}") for row in _figures("evaluated")
    ]
    canvas = _canvas(len(bars), "Events per second of each engine, as a share of a bare loop")
    _draw_panel(canvas, 0.0, "Events per second, as a share of a bare loop over the same functions", bars)
    return canvas


def draw_latency() -> Canvas:
    """Draw median and 99th percentile of each engine on a logarithmic scale."""
    rows = _figures("paced")
    most = math.ceil(math.log10(max(row["p99"] for row in rows)))
    canvas = _canvas(len(rows) + 1, "Latency from a push to the terminal node, for each engine")
    canvas.text(LABELS, 24, "From a push to the terminal node: median to 99th percentile, logarithmic", "strong left")
    bottom = TITLE + len(rows) * ROW
    for decade in range(most + 1):
        x = BARS + decade / most * LONGEST
        canvas.line(Point(x, TITLE - 4), Point(x, bottom), dashed=True)
        canvas.text(x, bottom + 16, f"{10**decade:,} us", "small")
    for number, row in enumerate(rows):
        y = TITLE + number * ROW
        begin, end = (math.log10(row[share]) / most * LONGEST for share in ("p50", "p99"))
        canvas.text(LABELS, y + BAR - 3, row["name"], "left")
        canvas.bar(BARS + begin, y, max(end - begin, 2.0), BAR, _look(row["name"]))
        canvas.text(BARS + LONGEST + 8, y + BAR - 3, f"{row['p50']:,.0f} to {row['p99']:,.0f}", "small left")
    return canvas


def draw_workflow_throughput() -> Canvas:
    """Draw the tasks per second of each engine, for many runs and for one wide run."""
    rows = _figures("workflows")
    panels = {"five": "200 runs of 5 tasks: tasks per second", "fan": "One run, 1 -> 200 -> 1: tasks per second"}
    height = TITLE + len(rows) * ROW
    canvas = Canvas(WIDTH, round(2 * height + ROW), "Tasks per second of each workflow engine")
    for number, (work, title) in enumerate(panels.items()):
        bars = [Bar(row["name"], row.get(work, 0.0), f"{row[work]:,.0f}" if work in row else "cannot") for row in rows]
        _draw_panel(canvas, number * (height + ROW / 2), title, bars)
    return canvas


def _figures(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_results()["peers"].figures[name]
    return found


def _canvas(rows: int, title: str) -> Canvas:
    return Canvas(WIDTH, round(TITLE + rows * ROW), title)


def _draw_panel(canvas: Canvas, top: float, title: str, bars: list[Bar]) -> None:
    """Draw a title, and bars below it whose longest takes all of the width."""
    canvas.text(LABELS, top + 24, title, "strong left")
    most = max(bar.value for bar in bars)
    for number, bar in enumerate(bars):
        y = top + TITLE + number * ROW
        width = bar.value / most * LONGEST
        canvas.text(LABELS, y + BAR - 3, bar.label, "left")
        if width:
            canvas.bar(BARS, y, width, BAR, _look(bar.label))
        canvas.text(BARS + width + (8 if width else 0), y + BAR - 3, bar.figure, "small left")


def _look(label: str) -> Look:
    """Return the colour of a row: Tidemill's own, none for code without an engine, and one for all others."""
    if label.startswith("Tidemill"):
        return "accent"
    return "quiet" if label.startswith(("bare", "asyncio")) else "info"
