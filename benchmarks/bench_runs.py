"""Runs beside their own statements: what the engine adds to the transactions that a run cannot do without.

The statements of a run are recorded and repeated with the bare driver on a copy of the file, in the same transactions,
from one thread, without planning anything. A file in memory, as on a disk that costs nothing, shows the processor time;
a file on the disk shows what users wait for.

python -m benchmarks.bench_runs [--quick]
"""

import asyncio
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple
from unittest.mock import patch

import tidemill as tm
from benchmarks import flows
from benchmarks.bench_journal import MEMORY
from benchmarks.bench_workflows import run_many
from benchmarks.measure import UNDISTURBED, keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict
from tidemill.storage.sqlite import database

RUNS = 200
TASKS_PER_RUN = 5


class Statement(NamedTuple):
    """A recorded statement, with the values of one row or of many."""

    text: str
    values: Any
    is_for_many: bool


class RecordingConnection:
    """A connection that records what is executed on it."""

    def __init__(self, connection: sqlite3.Connection, statements: list[Statement]) -> None:
        self._connection = connection
        self._statements = statements

    def execute(self, text: str, values: Any = ()) -> sqlite3.Cursor:
        """Execute a statement."""
        self._statements.append(Statement(text, values, is_for_many=False))
        return self._connection.execute(text, values)

    def executemany(self, text: str, rows: Sequence[Any]) -> sqlite3.Cursor:
        """Execute a statement for each row."""
        self._statements.append(Statement(text, rows, is_for_many=True))
        return self._connection.executemany(text, rows)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction


@contextmanager
def recording() -> Iterator[list[Statement]]:
    """Record the statements of all write transactions of this process."""
    statements: list[Statement] = []
    run_in_transaction = database.run_in_transaction

    def record(connection: Any, units: Sequence[Any]) -> list[Any]:
        return run_in_transaction(RecordingConnection(connection, statements), units)

    with patch.object(database, "run_in_transaction", record):
        yield statements


@contextmanager
def counting_changes() -> Iterator[list[int]]:
    """Count the units of all write transactions of this process, transaction by transaction."""
    sizes: list[int] = []
    transact = database.FileDatabase.transact_with_callback

    def count(self: database.FileDatabase, units: Sequence[Any], on_done: Any) -> None:
        sizes.append(len(units))
        transact(self, units, on_done)

    with patch.object(database.FileDatabase, "transact_with_callback", count):
        yield sizes


class Costs(NamedTuple):
    """Seconds per task, round by round."""

    wall: list[float]
    cpu: list[float]


async def measure_node(costs: Costs, node: tm.Node, workflow: str, runs: int, tasks: int) -> None:
    """Measure what a task of so many runs at once costs in a node."""
    used = process_time()
    costs.wall.append(await run_many(node, workflow, runs) / (runs * tasks))
    costs.cpu.append((process_time() - used) / (runs * tasks))


def measure_statements(costs: Costs, statements: Sequence[Statement], before: Path, tasks: int) -> None:
    """Measure what a task costs if its statements are executed without an engine, on a copy of a file."""
    copy = Path(shutil.copy(before, before.with_name(f"copy-{len(costs.wall)}.db")))
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
        began, used = perf_counter(), process_time()
        for text, values, is_for_many in statements:
            (connection.executemany if is_for_many else connection.execute)(text, values)
        costs.wall.append((perf_counter() - began) / tasks)
        costs.cpu.append((process_time() - used) / tasks)


async def compare(parent: Path | None, workflow: str, runs: int, tasks: int, rounds: int) -> tuple[Costs, Costs, float]:
    """Measure runs in a node, and in turns their statements alone; return both, and the number of changes of a run."""
    in_node, alone = Costs([], []), Costs([], [])
    with tempfile.TemporaryDirectory(dir=parent) as name:
        file, before = Path(name) / "runs.db", Path(name) / "before.db"
        async with tm.Node(f"sqlite:///{file}", load=[flows.chain, flows.five_coroutines]) as node:
            await run_many(node, workflow, 2)  # so that everything is imported and compiled
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(before)) as copy:
                source.backup(copy)
            with recording() as statements, counting_changes() as changes:
                await run_many(node, workflow, runs)
            for _ in range(rounds):
                await measure_node(in_node, node, workflow, runs, tasks)
                measure_statements(alone, statements, before, runs * tasks)
    return in_node, alone, sum(changes) / runs


async def compare_capture(rounds: int) -> float:
    """Return how many times the CPU of a task whose output is not captured one takes that writes nothing to capture."""
    costs = {True: Costs([], []), False: Costs([], [])}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for number in range(2 * rounds):
            address, settings = f"sqlite:///{folder}/{number}.db", tm.Settings(capture_output=number % 2 == 0)
            async with tm.Node(address, load=[flows.five_coroutines], settings=settings) as node:
                await run_many(node, "five_coroutines", 2)
                await measure_node(costs[settings.capture_output], node, "five_coroutines", RUNS, TASKS_PER_RUN)
    return ratio(costs[True].cpu, costs[False].cpu)


def _row(title: str, in_node: Costs, alone: Costs) -> list[str]:
    figures = [percentile(one, UNDISTURBED) * 1e6 for one in (in_node.wall, in_node.cpu, alone.wall, alone.cpu)]
    return [title, *(f"{one:,.0f}" for one in figures)]


async def run(*, quick: bool) -> list[Verdict]:
    """Measure both kinds of runs in memory and on the disk, print tables, return verdicts."""
    rows, rounds = [], 3 if quick else 15
    chains, many = [], []
    for parent, where in ((MEMORY, "in memory"), (None, "on the disk")):
        chains.append(await compare(parent, "chain", 1, flows.LENGTH, rounds))
        many.append(await compare(parent, "five_coroutines", RUNS, TASKS_PER_RUN, rounds))
        rows.append(_row(f"chain of {flows.LENGTH}, {where}", *chains[-1][:2]))
        rows.append(_row(f"{RUNS} runs x {TASKS_PER_RUN}, {where}", *many[-1][:2]))
    columns = ["us per task", "node, wall", "node, CPU", "its statements alone, wall", "CPU"]
    show(f"SQLite, durable commits, in process; {rounds} rounds", columns, rows)
    on_disk, in_memory = chains[1], many[0]
    return [
        verdict(
            "chain of 50 on the disk, times its statements",
            ratio(on_disk[0].wall, on_disk[1].wall),
            1.6,
            at_least=False,
            is_ratio=True,
        ),
        verdict(
            "200 runs x 5 coroutines, CPU times that of their statements",
            ratio(in_memory[0].cpu, in_memory[1].cpu),
            4,
            at_least=False,
            is_ratio=True,
        ),
        verdict("200 runs x 5 coroutines, changes of a run", in_memory[2], 7, at_least=False, is_ratio=True),
        verdict(
            "200 runs x 5 coroutines, CPU with captured output, times that without",
            await compare_capture(rounds),
            1.03,
            at_least=False,
            is_ratio=True,
        ),
    ]


def main() -> None:
    """Measure, and write the figures."""
    keep("runs", {"verdicts": asyncio.run(run(quick="--quick" in sys.argv))})


if __name__ == "__main__":
    main()
