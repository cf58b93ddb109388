"""procrastinate: jobs in PostgreSQL, run by a worker in the same process.

A job cannot wait for others, so each run of five is a chain: every job defers the next one. There is no 1 -> 200 -> 1.

python -m benchmarks.peers.procrastinate_peer URL
"""

import asyncio
import sys
from time import perf_counter

from procrastinate import App, PsycopgConnector

from benchmarks.peers.orders import Figures, serve
from benchmarks.peers.run_work import IDLE, LENGTH, Stopwatch, counter, summarise_starts

CONCURRENCY = 16
FIVE = 5
LOOK_AGAIN = 0.002
POLL = 0.1
"""Seconds; the default of 5 shows up in a chain whenever the worker misses a notification."""
UNFINISHED = "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

app = App(connector=PsycopgConnector())


@app.task
async def link(left: int) -> None:
    """Do nothing, and defer the next job of the run."""
    counter.record()
    if left:
        await link.defer_async(left=left - 1)


async def run_chains(count: int, length: int) -> Figures:
    """Start chains all at once; return when no job is left."""
    with Stopwatch() as watch:
        await link.batch_defer_async(*({"left": length - 1} for _ in range(count)))
        await all_finished(count * length)
    return watch.figures()


async def all_finished(tasks: int) -> None:
    """Wait until so many tasks ran, and their jobs are recorded as finished."""
    while counter.tasks < tasks or (await app.connector.execute_query_one_async(UNFINISHED))["jobs"]:  # noqa: ASYNC110 - the database knows
        await asyncio.sleep(LOOK_AGAIN)


async def five(count: int) -> Figures:
    """Run chains of five."""
    return await run_chains(count, FIVE)


async def chain(count: int) -> Figures:
    """Run long chains."""
    return await run_chains(count, LENGTH)


async def start(count: int) -> Figures:
    """Start jobs one by one on an idle worker."""
    waited = []
    for _ in range(count):
        counter.tasks = 0
        began = perf_counter()
        await link.defer_async(left=0)
        await all_finished(1)
        waited.append(counter.began - began)
        await asyncio.sleep(IDLE)
    return summarise_starts(waited)


async def main(url: str) -> None:
    """Run a worker, and serve orders."""
    with app.replace_connector(PsycopgConnector(conninfo=url)) as connected:
        async with connected.open_async(), asyncio.TaskGroup() as tasks:
            await connected.schema_manager.apply_schema_async()
            worker = connected.run_worker_async(
                concurrency=CONCURRENCY, fetch_job_polling_interval=POLL, install_signal_handlers=False
            )
            running = tasks.create_task(worker, name="worker")
            await serve({"five": five, "chain": chain, "start": start})
            running.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
