"""Steps of tasks: one after the other in one task, and many tasks side by side; and what a repeated task pays.

A step waits for its commit, so it is compared with the smallest write of the same store, in the same rounds.

python -m benchmarks.bench_steps [--quick]
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import tidemill as tm
from benchmarks.measure import console, keep, show, verdict
from benchmarks.result_files import Verdict
from tests.postgres import PostgresServer

STEPS = 200
TASKS = 20


def work(number: int) -> int:
    """Do nothing."""
    return number


def make_workflow(name: str, tasks: int) -> tm.Workflow:
    """Return a workflow whose tasks take steps, and do so again in a second try."""
    flow = tm.Workflow(name)

    @flow.task
    def numbers() -> list[int]:
        return list(range(tasks))

    @flow.task(each="numbers", retry=tm.Retry(1, delay=0.001))
    async def steps(numbers: int, ctx: tm.AsyncContext) -> float:
        begin = perf_counter()
        for number in range(STEPS):
            await ctx.step(work, number, key=number)
        if ctx.attempt == 1:
            first_seconds.append(perf_counter() - begin)
            raise ConnectionError(numbers)
        return perf_counter() - begin

    return flow


first_seconds: list[float] = []
"""What the first try of each task took."""


async def measure(store: str, rounds: int) -> dict[str, float]:
    """Return the steps per second of one task, those of many, those that are found again, and the bare writes."""
    found: dict[str, list[float]] = {"one": [], "many": [], "again": [], "bare": []}
    flows = {"one": make_workflow("one", 1), "many": make_workflow("many", TASKS)}
    async with tm.Node(store, load=[*flows.values()]) as node:
        for number in range(rounds + 1):
            for name, count in (("one", 1), ("many", TASKS)):
                first_seconds.clear()
                result = await (await node.start(name)).result()
                if number:  # the first round warms up
                    found[name].append(count * STEPS / max(first_seconds))
                    found["again"].append(STEPS / median(result.outputs["steps"]))
            begin = perf_counter()
            for _ in range(STEPS):
                await node.store.pauses.set_paused("public", "reactor", paused=True)
            if number:
                found["bare"].append(STEPS / (perf_counter() - begin))
    return {name: median(figures) for name, figures in found.items()}


def report(title: str, figures: dict[str, float]) -> list[Verdict]:
    """Show the figures of a store beside their bounds."""
    rows = [
        ["one task", f"{figures['one']:,.0f}"],
        [f"{TASKS} tasks", f"{figures['many']:,.0f}"],
        ["found again", f"{figures['again']:,.0f}"],
        ["smallest write", f"{figures['bare']:,.0f}"],
    ]
    show(f"{title}, durable commits, in process", ["", "steps/s"], rows)
    return [
        verdict(
            f"{title}: a step of one task, smallest writes",
            figures["bare"] / figures["one"],
            2.0,
            at_least=False,
            is_ratio=True,
        ),
        verdict(
            f"{title}: steps of {TASKS} tasks, times the smallest writes one by one",
            figures["many"] / figures["bare"],
            1.5,
            at_least=True,
            is_ratio=True,
        ),
    ]


async def main(quick: bool) -> None:
    """Measure both databases and write the figures."""
    rounds, server = 1 if quick else 5, PostgresServer(fsync=True)
    with tempfile.TemporaryDirectory() as name:
        verdicts = report("SQLite", await measure(f"sqlite:///{Path(name) / 'steps.db'}", rounds))
        server.start()
        try:
            verdicts += report("PostgreSQL", await measure(await server.fresh_database(), rounds))
        finally:
            server.remove()
    keep("steps", {"verdicts": verdicts})
    missed = [one["what"] for one in verdicts if not one["reached"]]
    console.print(f"missed: {', '.join(missed)}" if missed else "all bounds reached")


if __name__ == "__main__":
    asyncio.run(main("--quick" in sys.argv))
