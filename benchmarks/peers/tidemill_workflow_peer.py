"""Tidemill: workflows in one node, on the store at the address.

python -m benchmarks.peers.tidemill_workflow_peer ADDRESS
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

import tidemill as tm
from benchmarks.peers.orders import Figures, serve
from benchmarks.peers.run_work import IDLE, LENGTH, WIDTH, Stopwatch, counter, summarise_starts

five = tm.Workflow("five", max_active_runs=10_000)


@five.task
async def begin() -> int:
    """Begin."""
    counter.record()
    return 1


@five.task
async def left(begin: int) -> int:
    """Run beside `right`."""
    counter.record()
    return begin


@five.task
async def right(begin: int) -> int:
    """Run beside `left`."""
    counter.record()
    return begin


@five.task
async def join(left: int, right: int) -> int:
    """Join both sides."""
    counter.record()
    return left + right


@five.task
async def end(join: int) -> int:
    """End."""
    counter.record()
    return join


chain = tm.Workflow("chain")


def add_link(number: int) -> None:
    """Add a task after the one before it."""

    async def link() -> int:
        counter.record()
        return number

    link.__name__ = link.__qualname__ = f"link{number}"
    chain.task(after=[f"link{number - 1}"] if number else [])(link)


for _number in range(LENGTH):
    add_link(_number)

fan = tm.Workflow("fan")


@fan.task
async def source() -> list[int]:
    """Return the list."""
    counter.record()
    return list(range(WIDTH))


@fan.task(each="source")
async def element(source: int) -> int:
    """Take one element."""
    counter.record()
    return source


@fan.task
async def gather(element: list[int]) -> int:
    """Join the results."""
    counter.record()
    return sum(element)


single = tm.Workflow("single", max_active_runs=10_000)


@single.task
async def task() -> None:
    """Record when it begins."""
    counter.record()


def running(node: tm.Node, name: str) -> Callable[[int], Awaitable[Figures]]:
    """Return the work of starting runs all at once, until the last has ended."""

    async def work(count: int) -> Figures:
        with Stopwatch() as watch:
            runs = await asyncio.gather(*(node.start(name) for _ in range(count)))
            results = await asyncio.gather(*(run.wait() for run in runs))
        for result in results:
            result.raise_for_status()
        return watch.figures()

    return work


def starting(node: tm.Node) -> Callable[[int], Awaitable[Figures]]:
    """Return the work of starting runs one by one on an idle node."""

    async def work(count: int) -> Figures:
        waited = []
        for _ in range(count):
            began = perf_counter()
            await (await node.start("single")).wait()
            waited.append(counter.began - began)
            await asyncio.sleep(IDLE)
        return summarise_starts(waited)

    return work


async def main(address: str) -> None:
    """Run a node, and serve orders."""
    async with tm.Node(address, load=[five, chain, fan, single]) as node:
        await serve({name: running(node, name) for name in ("five", "chain", "fan")} | {"start": starting(node)})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
