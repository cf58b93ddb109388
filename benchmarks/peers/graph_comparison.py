"""Compares engines of graphs: every event of the market maker evaluated, and events pushed at a pace."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.bench_event_path import Bare
from benchmarks.market_maker import ledger
from benchmarks.measure import ratio, show
from benchmarks.peers.contestants import Contestant, ContestantError, running

PEERS = ("csp", "bytewax", "reactivex")
BARE = "bare loop"
EVENTS = 20_000
PACED_EVENTS = 1_000


class Entry(NamedTuple):
    """A row: a program, and which of its ways to work it takes."""

    name: str
    program: str
    work: str
    share: int = 1
    """Slow ways take this part of the events, so that one of them does not fill the minutes of all."""


EVALUATED = (
    Entry(BARE, "bare", "loop"),
    Entry("Tidemill, handle", "tidemill", "handle"),
    Entry("Tidemill, await push", "tidemill", "push"),
    Entry("asyncio.Queue by hand", "bare", "queue"),
    Entry("csp, replay", "csp", "replay"),
    Entry("csp, real time", "csp", "real time"),
    Entry("bytewax, batches of 256", "bytewax", "batches"),
    Entry("bytewax, one by one", "bytewax", "one by one", share=5),
    Entry("reactivex", "reactivex", "evaluate"),
)
PACED = (
    Entry(BARE, "bare", "paced"),
    Entry("Tidemill, handle", "tidemill", "paced"),
    Entry("csp, real time", "csp", "paced"),
    Entry("bytewax, one by one", "bytewax", "paced"),
    Entry("reactivex", "reactivex", "paced"),
)


def compare_graphs(peers: Mapping[str, Path], rounds: int) -> dict[str, Any]:
    """Let all engines take turns; return the figures by name."""
    programs = {name: (name,) for name in ("bare", "tidemill", *(peer for peer in PEERS if peer in peers))}
    with running(programs, peers) as contestants:
        evaluated = evaluate(contestants, rounds)
        paced = pace(contestants, rounds)
    return {"evaluated": report_evaluated(evaluated), "paced": report_paced(paced)}


def evaluate(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Evaluate all events in each round; return seconds per event. The first round warms up."""
    entries = [entry for entry in EVALUATED if entry.program in contestants]
    seconds: dict[str, list[float]] = {entry.name: [] for entry in entries}
    for number in range(rounds + 1):
        for entry in entries:
            events = EVENTS // entry.share
            found = contestants[entry.program].do(entry.work, events)
            check_work(entry, events, found)
            if number:
                seconds[entry.name].append(found["seconds"] / events)
    return seconds


def check_work(entry: Entry, events: int, found: Mapping[str, float]) -> None:
    """Fail if an engine did not evaluate every event, or came to other decisions than the bare loop."""
    ledger.clear()
    Bare().run(events)
    expected = {"evaluations": ledger.evaluations, "checksum": ledger.checksum}
    if {name: found[name] for name in expected} != expected:
        raise ContestantError(f"{entry.name} did other work than the bare loop: {found} instead of {expected}")


def pace(contestants: Mapping[str, Contestant], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Push events at a pace in turns; return the percentiles of each round."""
    entries = [entry for entry in PACED if entry.program in contestants]
    found: dict[str, list[dict[str, float]]] = {entry.name: [] for entry in entries}
    for _ in range(max(1, rounds // 6)):
        for entry in entries:
            found[entry.name].append(contestants[entry.program].do(entry.work, PACED_EVENTS))
    return found


def report_evaluated(seconds: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """Show and return the cost of an event with each engine."""
    rows: list[dict[str, Any]] = [
        {"name": name, "us": median(values) * 1e6, "of the bare loop": ratio(seconds[BARE], values)}
        for name, values in seconds.items()
    ]
    table = [
        [row["name"], f"{1e6 / row['us']:,.0f}", f"{row['us']:.2f}", f"{row['of the bare loop']:.2f}"] for row in rows
    ]
    show("Market maker, every event evaluated", ["", "events/s", "us/event", "of the bare loop"], table)
    return rows


def report_paced(found: Mapping[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Show and return the latencies of each engine."""
    rows: list[dict[str, Any]] = [
        {"name": name, **{share: median(one[share] for one in figures) for share in ("p50", "p99")}}
        for name, figures in found.items()
    ]
    table = [[row["name"], f"{row['p50']:,.1f}", f"{row['p99']:,.1f}"] for row in rows]
    show("Push to terminal node, 1,000 events/s, us", ["", "p50", "p99"], table)
    return rows
