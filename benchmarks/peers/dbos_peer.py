"""DBOS: workflows whose steps are checkpointed in PostgreSQL.

Plain functions, in threads, are faster than coroutines here; only 1 -> 200 -> 1 needs coroutines to run steps together.

python -m benchmarks.peers.dbos_peer URL
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from dbos import DBOS, DBOSConfig

from benchmarks.peers.orders import Figures, serve
from benchmarks.peers.run_work import IDLE, LENGTH, WIDTH, Stopwatch, counter, summarise_starts


@DBOS.step()
def task(value: int) -> int:
    """Do nothing."""
    counter.record()
    return value


@DBOS.step()
def join(left: int, right: int) -> int:
    """Join two results."""
    counter.record()
    return left + right


@DBOS.workflow()
def five() -> int:
    """One step, two more, one that joins them, and a last one."""
    begin = task(1)
    return task(join(task(begin), task(begin)))


@DBOS.workflow()
def chain() -> int:
    """One step after the other."""
    return [task(number) for number in range(LENGTH)][-1]


@DBOS.workflow()
def single() -> int:
    """One step."""
    return task(1)


@DBOS.step()
async def element(value: int) -> int:
    """Do nothing, in the event loop."""
    counter.record()
    return value


@DBOS.workflow()
async def fan() -> int:
    """One step, many beside each other, and one after them."""
    await element(WIDTH)
    return await element(sum(await asyncio.gather(*(element(number) for number in range(WIDTH)))))


def running(workflow: Callable[[], int]) -> Callable[[int], Awaitable[Figures]]:
    """Return the work of starting runs all at once, until the last has ended."""

    def run(count: int) -> Figures:
        with Stopwatch() as watch:
            handles = [DBOS.start_workflow(workflow) for _ in range(count)]
            for handle in handles:
                handle.get_result()
        return watch.figures()

    async def work(count: int) -> Figures:
        return await asyncio.to_thread(run, count)

    return work


async def run_fan(count: int) -> Figures:
    """Run fans one after the other."""
    with Stopwatch() as watch:
        for _ in range(count):
            await (await DBOS.start_workflow_async(fan)).get_result()
    return watch.figures()


async def start(count: int) -> Figures:
    """Start runs one by one on an idle process."""
    waited = []
    for _ in range(count):
        began = perf_counter()
        handle = await asyncio.to_thread(DBOS.start_workflow, single)
        await asyncio.to_thread(handle.get_result)
        waited.append(counter.began - began)
        await asyncio.sleep(IDLE)
    return summarise_starts(waited)


async def main(url: str) -> None:
    """Launch, and serve orders."""
    DBOS(config=DBOSConfig(name="peer", system_database_url=url, log_level="WARNING"))
    DBOS.launch()
    try:
        await serve({"five": running(five), "chain": running(chain), "fan": run_fan, "start": start})
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
