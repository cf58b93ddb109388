"""Compares engines of workflows: many runs, a chain, 1 -> 200 -> 1, and the time from a start to its first task."""

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import show
from benchmarks.peers.contestants import Contestant, ContestantError, running
from benchmarks.peers.run_work import LENGTH, WIDTH
from tests.postgres import PostgresServer

PEERS = ("dbos", "procrastinate")
TIDEMILL = "tidemill_workflow"
RUNS, FIVE = 200, 5
STARTS = 30
TASKS = {"five": RUNS * FIVE, "chain": LENGTH, "fan": WIDTH + 2}
"""How many tasks must run in each piece of work."""
COUNTS = {"five": RUNS, "chain": 1, "fan": 1}
NAMES = {
    "tidemill_sqlite": "Tidemill, SQLite",
    "tidemill_postgres": "Tidemill, PostgreSQL",
    "dbos": "DBOS, PostgreSQL",
    "procrastinate": "procrastinate, PostgreSQL",
}

Rounds = dict[str, dict[str, list[dict[str, float]]]]
"""The figures of each round, by program and by work."""


@contextmanager
def stores(peers: Mapping[str, Path]) -> Iterator[dict[str, tuple[str, str]]]:
    """Yield each program with the address of a new database; PostgreSQL writes to the disk as in production."""
    server = PostgresServer(fsync=True)
    with tempfile.TemporaryDirectory() as folder:
        server.start()
        try:
            modules = {"tidemill_postgres": TIDEMILL, **{peer: peer for peer in PEERS if peer in peers}}
            yield {
                "tidemill_sqlite": (TIDEMILL, f"sqlite:///{folder}/runs.db"),
                **{name: (module, asyncio.run(server.fresh_database())) for name, module in modules.items()},
            }
        finally:
            server.remove()


def compare_workflows(peers: Mapping[str, Path], rounds: int) -> list[dict[str, Any]]:
    """Let all engines take turns; return a row for each."""
    with stores(peers) as programs, running(programs, peers) as contestants:
        found: Rounds = {program: {} for program in contestants}
        for number in range(rounds + 1):
            for program, contestant in contestants.items():
                figures = take_turn(program, contestant)
                if number:  # the first round warms up
                    for work, one in figures.items():
                        found[program].setdefault(work, []).append(one)
    return report(found)


def take_turn(program: str, contestant: Contestant) -> dict[str, dict[str, float]]:
    """Let an engine do each piece of work that it can; return the figures by work."""
    found = {}
    for work, count in COUNTS.items():
        if work in contestant.works:
            found[work] = contestant.do(work, count)
            if found[work]["tasks"] != TASKS[work]:
                raise ContestantError(f"{program} ran {found[work]['tasks']} tasks in {work}, not {TASKS[work]}")
    return found | {"start": contestant.do("start", STARTS)}


def report(found: Rounds) -> list[dict[str, Any]]:
    """Show and return the figures of each engine."""
    rows = [summarise(NAMES[program], rounds) for program, rounds in found.items()]
    columns = {"five": "200 x 5, tasks/s", "chain": "chain of 50, ms/task", "fan": "1 -> 200 -> 1, tasks/s"}
    starts = {"p50": "start to first task, p50 ms", "p99": "p99 ms"}
    table = [[row["name"], *(_figure(row.get(key)) for key in (*columns, *starts))] for row in rows]
    show("Durable runs of tasks that do nothing", ["", *columns.values(), *starts.values()], table)
    return rows


def summarise(name: str, rounds: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of an engine; what it cannot do is missing."""
    row: dict[str, Any] = {"name": name}
    for work in ("five", "fan"):
        if work in rounds:
            row[work] = median(TASKS[work] / one["seconds"] for one in rounds[work])
    row["chain"] = median(one["seconds"] / LENGTH * 1e3 for one in rounds["chain"])
    return row | {share: median(one[share] for one in rounds["start"]) for share in ("p50", "p99")}


def _figure(value: float | None) -> str:
    return "cannot" if value is None else f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
