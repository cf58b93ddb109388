"""Workflows on a SQLite file with durable commits, in-process executor: throughput, lateness, idle cost.

The raw commit rate of the disk is measured in the same run: it is the ceiling of everything that waits for a commit.

python -m benchmarks.bench_workflows [--quick]
"""

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import msgspec

import tidemill as tm
from benchmarks import flows
from benchmarks.bench_durability import raw_sqlite, report_raw
from benchmarks.measure import console, keep, percentile, ratio, show, verdict
from benchmarks.result_files import Verdict
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor, ItemOfList
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.ids import new_sortable_id
from tidemill.storage.addresses import make_store
from tidemill.storage.workflow_ports import RunFilter
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Succeeded
from tidemill.workflows.change import Change
from tidemill.workflows.records import AttemptKey, RunRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.states import RunState

FEW = flows.WIDTH + 2  # starts of one run
MANY = 3 * FEW
CROWD = 800  # runs of another tenant
SOURCE = msgspec.msgpack.encode(list(range(flows.WIDTH)))

BARE = "import asyncio, sqlite3"
"""What a program without an engine would import for the same work."""
COLD = """
import asyncio, sys
import tidemill as tm
single = tm.Workflow("single")
@single.task
def task() -> None: ...
async def main():
    async with tm.Node(sys.argv[1], load=[single]) as node:
        await (await node.start("single")).wait()
asyncio.run(main())
"""
COLD_BOUND = 5.0
IDLE = """
import asyncio, sys
from pathlib import Path
from time import process_time
import tidemill as tm
from benchmarks import flows
async def main():
    async with tm.Node(sys.argv[1], load=[flows.five]):
        seconds = float(sys.argv[2])
        await asyncio.sleep(min(1.0, seconds))
        began = process_time()
        await asyncio.sleep(seconds)
        used = process_time() - began
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(used, status["VmRSS"].split()[0])
asyncio.run(main())
"""
ROOT = Path(__file__).parents[1]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def run_many(node: tm.Node, name: str, count: int) -> float:
    """Start runs all at once; return the seconds until the last has ended."""
    began = perf_counter()
    runs = await asyncio.gather(*(node.start(name) for _ in range(count)))
    results = await asyncio.gather(*(run.wait() for run in runs))
    seconds = perf_counter() - began
    for result in results:
        result.raise_for_status()
    return seconds


async def throughput(folder: Path, rounds: int) -> list[Verdict]:
    """200 runs of 5 tasks, a chain of 50, and 1 -> 200 -> 1; and the commit rate of the disk in the same rounds."""
    five, chain, fan, raw = [], [], [], []
    many = tm.Node(f"sqlite:///{folder / 'many.db'}", load=[flows.five, flows.chain, flows.fan])
    async with many as node, bare_disk(folder / "bare.db") as commits_per_second:
        await run_many(node, "five", 20)  # so that everything is imported and compiled
        for _ in range(rounds):
            five.append(1000 / await run_many(node, "five", 200))
            chain.append(await run_many(node, "chain", 1) / flows.LENGTH * 1e3)
            fan.append((flows.WIDTH + 2) / await run_many(node, "fan", 1))
            raw.append(commits_per_second(300))
    rows = [
        ["200 runs x 5 tasks", f"{median(five):,.0f} tasks/s", f"{max(five):,.0f}"],
        ["chain of 50", f"{median(chain):.2f} ms/task", f"{min(chain):.2f}"],
        ["1 -> 200 -> 1", f"{median(fan):,.0f} tasks/s", f"{max(fan):,.0f}"],
        ["the bare disk", f"{median(raw):,.0f} commits/s", f"{max(raw):,.0f}"],
    ]
    show(f"SQLite file, durable commits, in process; {rounds} rounds", ["", "median", "best"], rows)
    return [
        verdict("200 runs x 5 tasks, tasks/s", median(five), 3000, at_least=True),
        verdict("chain of 50, ms per task", median(chain), 0.6, at_least=False),
        verdict("1 -> 200 -> 1, tasks/s", median(fan), 3000, at_least=True),
    ]


@asynccontextmanager
async def bare_disk(path: Path) -> AsyncIterator[Callable[[int], float]]:
    """Return a function that measures durable commits of one row per second with the bare driver."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE raw (number INTEGER PRIMARY KEY)")

        def measure(count: int) -> float:
            began = perf_counter()
            for _ in range(count):
                connection.execute("INSERT INTO raw VALUES (NULL)")
            return count / (perf_counter() - began)

        measure(2000)  # until the log has its size and is written over, as in a database that is used
        yield measure


async def latency(folder: Path, count: int) -> list[Verdict]:
    """From `start` to the first line of the first task, on an idle node."""
    waited = []
    async with tm.Node(f"sqlite:///{folder / 'latency.db'}", load=[flows.single]) as node:
        for _ in range(count):
            flows.begun.clear()
            began = perf_counter()
            await (await node.start("single")).wait()
            waited.append((flows.begun[0] - began) * 1e3)
            await asyncio.sleep(0.02)
    p50, p99 = percentile(waited, 0.5), percentile(waited, 0.99)
    show("Start to first task, idle node", ["", "p50, ms", "p99, ms"], [[f"{count} runs", f"{p50:.2f}", f"{p99:.2f}"]])
    return [
        verdict("start to first task, p50 ms", p50, 2.0, at_least=False),
        verdict("start to first task, p99 ms", p99, 10.0, at_least=False),
    ]


async def fairness(folder: Path, rounds: int) -> list[Verdict]:
    """A run of one tenant while another has started many: it does not wait for all of them."""
    waited, others = [], []
    async with tm.Node(f"sqlite:///{folder / 'fairness.db'}", load=[flows.five]) as node:
        await node.load(flows.five, tenant="acme")
        await run_many(node, "five", 20)
        for _ in range(rounds):
            crowd = await asyncio.gather(*(node.start("five", tenant="acme") for _ in range(CROWD)))
            began = perf_counter()
            await (await node.start("five")).wait()
            waited.append((perf_counter() - began) * 1e3)
            await asyncio.gather(*(run.wait() for run in crowd))
            others.append((perf_counter() - began) * 1e3)
    show(
        f"A run beside {CROWD} runs of another tenant",
        ["", "it, ms", "what is left of the other, ms"],
        [[f"{rounds} rounds", f"{median(waited):.0f}", f"{median(others):.0f}"]],
    )
    return [verdict("a run beside many of another tenant, ms", median(waited), 100, at_least=False)]


async def punctuality(folder: Path, seconds: int) -> list[Verdict]:
    """Every-second schedules: how late a run exists after its slot."""
    ticking = tm.Workflow("ticking", schedule=tm.Cron("* * * * * *"))

    @ticking.task
    def task() -> None:
        """Do nothing."""

    store = f"sqlite:///{folder / 'cron.db'}"
    async with tm.Node(store, load=[ticking]):
        await asyncio.sleep(seconds)
    rows = await _rows(store)
    late = [(row.created_at - row.slot).total_seconds() * 1e3 for row in rows if row.slot is not None]
    p50, p99 = percentile(late, 0.5), percentile(late, 0.99)
    columns = ["", "slots", "p50, ms", "p99, ms"]
    show("Every-second cron", columns, [[f"{seconds} s", str(len(rows)), f"{p50:.2f}", f"{p99:.2f}"]])
    return [verdict("cron lateness, p99 ms", p99, 20.0, at_least=False)]


async def _rows(address: str) -> list[RunRow]:
    store = make_store(address)
    await store.open()
    found = await store.runs.find(RunFilter(tenant="public", limit=100_000))
    await store.close()
    return found


def idleness(folder: Path, seconds: float) -> list[Verdict]:
    """A node with nothing to do, in a process of its own: its share of a core, and its memory."""
    command = [sys.executable, "-c", IDLE, f"sqlite:///{folder / 'idle.db'}", str(seconds)]
    found = subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True, text=True, cwd=ROOT).stdout
    used, kilobytes = found.split()
    share, memory = float(used) / seconds * 100, int(kilobytes) / 1024
    show("Idle node", ["", "% of a core", "MB"], [[f"{seconds:g} s", f"{share:.2f}", f"{memory:.0f}"]])
    return [
        verdict("idle node, % of a core", share, 0.5, at_least=False),
        verdict("idle node, MB", memory, 80, at_least=False),
    ]


def cold(folder: Path, rounds: int) -> list[Verdict]:
    """From the start of a process to the end of its first durable task and its own exit, beside bare Python."""
    contestants = {
        "tidemill": lambda number: (COLD, f"sqlite:///{folder / f'cold{number}.db'}"),
        BARE: lambda _: (BARE,),
    }
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, arguments in contestants.items():
            began, used = perf_counter(), _cpu()
            subprocess.run([sys.executable, "-c", *arguments(number)], check=True, env=ENVIRONMENT)
            if number:  # the first one compiles, which happens once in the life of an installation
                wall[name].append((perf_counter() - began) * 1e3)
                cpu[name].append((_cpu() - used) * 1e3)
    rows = [[name, f"{median(wall[name]):.0f}", f"{median(cpu[name]):.0f}"] for name in contestants]
    show("Process start to first durable task, process end included", ["", "ms", "ms of CPU"], rows)
    times = ratio(cpu["tidemill"], cpu[BARE])
    return [
        verdict("cold start, ms", median(wall["tidemill"]), 250, at_least=False),
        verdict("cold start, CPU times bare Python", times, COLD_BOUND, at_least=False, is_ratio=True),
    ]


async def starts(folder: Path, rounds: int, many: int) -> list[Verdict]:
    """Task starts of the subprocess executor, by the CPU that all processes together spend on one."""
    address = f"sqlite:///{folder / 'forks.db'}"
    alone = await cost_of_starts(rounds, many, starts_alone)
    whole = await cost_of_starts(rounds, many, partial(starts_in_a_node, address))
    rows = [
        [name, f"{one.rate:,.0f}", f"{one.cpu * 1e3:.2f}", f"{1 / one.cpu:,.0f}"]
        for name, one in (("executor alone", alone), ("whole node", whole))
    ]
    columns = ["", "starts/s", "ms of CPU each: node, fork server, child", "starts per second of CPU"]
    show(f"Subprocess executor, {os.cpu_count()} cores; medians of {rounds} rounds of {many} starts", columns, rows)
    return [
        verdict("subprocess starts/s per core, executor alone", 1 / alone.cpu, 400, at_least=True),
        verdict("subprocess starts/s per core, whole node", 1 / whole.cpu, 400, at_least=True),
    ]


class Starts(NamedTuple):
    """The cost of process starts."""

    rate: float
    """Starts per second."""
    cpu: float
    """Seconds of CPU per start, over all processes."""


async def cost_of_starts(rounds: int, many: int, life: Callable[[int], Awaitable[float]]) -> Starts:
    """Return the median cost of starts over several lives of an executor; each returns the seconds it took.

    The CPU time of processes is known when they have ended. So the cost of a life with few starts is subtracted from
    that of one with many: the rest is the cost of the starts, without imports.
    """
    await life(FEW)  # so that everything is imported and compiled here
    rates, costs = [], []
    for _ in range(rounds):
        began = _cpu()
        await life(FEW)
        between = _cpu()
        rates.append((FEW + many) / await life(FEW + many))
        costs.append((_cpu() - between - (between - began)) / many)
    return Starts(median(rates), median(costs))


def _cpu() -> float:
    """Return the seconds of CPU of this process, and of its ended descendants."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def starts_alone(count: int) -> float:
    """Let an executor without a node, and without a store, run mapped tasks."""
    ends = Ends()
    executor = Subprocess({VersionKey("public", "fan", flows.fan.wired().spec.version): flows.fan}, ends, SystemClock())
    await executor.open()
    await ends.feed(executor, [_order(0)])  # so that its fork server is there
    began = perf_counter()
    await ends.feed(executor, [_order(number) for number in range(1, count + 1)])
    seconds = perf_counter() - began
    await executor.close(1.0)
    return seconds


class Ends(AttemptListener):
    """Submits requests to an executor while it has free slots, and checks that they succeed."""

    def __init__(self) -> None:
        self._left = 0
        self._news = asyncio.Event()

    async def feed(self, executor: Executor, orders: list[AttemptRequest]) -> None:
        """Let an executor run these; return when all have ended."""
        self._left = len(orders)
        for order in orders:
            await self._until(executor.free_slots)
            await executor.submit(order)
        await self._until(lambda: not self._left)

    async def _until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def record_start(self, key: AttemptKey) -> bool:  # noqa: ARG002
        return True

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        raise AssertionError(f"{key} says {records}")

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        assert isinstance(ending, Succeeded), f"{key}: {ending}"
        self._left -= 1
        self._news.set()


def _order(number: int) -> AttemptRequest:
    return AttemptRequest(
        key=AttemptKey(f"run{number}", "element", number % flows.WIDTH, 1),
        tenant="public",
        workflow="fan",
        version=flows.fan.wired().spec.version,
        executor="subprocess",
        number=1,
        deferrals=0,
        params=b"\x80",
        inputs={"source": ItemOfList(SOURCE, number % flows.WIDTH)},
    )


async def starts_in_a_node(address: str, count: int) -> float:
    """Let a node with a store run the same mapped tasks, in runs."""
    async with tm.Node(address, load=[flows.fan], executor="subprocess") as node:
        return await run_many(node, "fan", count // (flows.WIDTH + 2))


async def history(folder: Path, finished: int, active: int, seconds: int) -> list[Verdict]:
    """A tick with a long past and many active runs."""
    address = f"sqlite:///{folder / 'history.db'}"
    await fill_history(address, finished)
    async with tm.Node(address, load=[flows.waiting, flows.five]) as node:
        for first in range(0, active, 200):
            await asyncio.gather(*(node.start("waiting") for _ in range(first, min(first + 200, active))))
        await asyncio.sleep(min(2.0, seconds))
        ticks = []
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            ticks.append(node.metrics()["scheduler_tick_seconds"] * 1e3)
        rate = 1000 / await run_many(node, "five", 200)
    title = f"{finished:,} finished runs, {active:,} active ones"
    show(title, ["", "tick, ms", "tasks/s beside them"], [["", f"{median(ticks):.1f}", f"{rate:,.0f}"]])
    return [verdict("tick with a long history, ms", median(ticks), 100, at_least=False)]


async def fill_history(address: str, count: int) -> None:
    """Write runs that ended long ago directly into the store."""
    spec = flows.five.wired().spec
    store = make_store(address)
    await store.open()
    at = datetime.now(UTC)  # noqa: TID251, a benchmark has no clock to inject
    for first in range(0, count, 500):
        changes = [_finished(spec, at) for _ in range(first, min(first + 500, count))]
        await asyncio.gather(*(store.runs.apply(change) for change in changes))
    await store.close()


def _finished(spec: Any, at: datetime) -> Change:
    run = RunRow(
        id=new_sortable_id(at),
        tenant="public",
        workflow="five",
        version=spec.version,
        state=RunState.SUCCESS,
        params=b"\x80",
        origin="manual",
        created_at=at,
        ended_at=at,
    )
    rows = new_task_rows(spec, lambda _: "in_process")
    return RunDraft.for_new_run(run, rows, spec, actor="benchmark").build_change()


async def main(quick: bool) -> None:
    """Measure everything and write the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report_raw({"sqlite": await raw_sqlite(folder, 0.2 if quick else 1.0)})
        figures = await throughput(folder, 1 if quick else 7)
        figures += await latency(folder, 10 if quick else 200)
        figures += await fairness(folder, 2 if quick else 7)
        figures += await punctuality(folder, 2 if quick else 60)
        figures += idleness(folder, 0.5 if quick else 10.0)
        figures += cold(folder, 4 if quick else 7)
        figures += await starts(folder, *((1, FEW) if quick else (7, MANY)))
        figures += await history(folder, *((1_000, 50, 1) if quick else (100_000, 1_000, 5)))
    keep("workflows", {"verdicts": figures})
    missed = [one["what"] for one in figures if not one["reached"]]
    console.print(f"missed: {', '.join(missed)}" if missed else "all bounds reached")


if __name__ == "__main__":
    asyncio.run(main("--quick" in sys.argv))
