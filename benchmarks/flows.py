"""Workflows that do nothing, so that benchmarks measure the engine."""

from time import perf_counter

import tidemill as tm

LENGTH = 50
WIDTH = 200

begun: list[float] = []
"""When `first_task` began, in seconds of the performance counter."""

slots: list[float] = []
"""How late `on_time` began after its slot, in seconds."""

five = tm.Workflow("five", max_active_runs=10_000)


@five.task
def begin() -> int:
    """Start the workflow."""
    return 1


@five.task
def left(begin: int) -> int:
    """Run on one branch."""
    return begin


@five.task
def right(begin: int) -> int:
    """Run on the other branch."""
    return begin


@five.task
def join(left: int, right: int) -> int:
    """Join the branches."""
    return left + right


@five.task
def end(join: int) -> int:
    """End the workflow."""
    return join


five_coroutines = tm.Workflow("five_coroutines")


@five_coroutines.task
async def async_begin() -> int:
    """Start the workflow."""
    return 1


@five_coroutines.task
async def async_left(async_begin: int) -> int:
    """Run on one branch."""
    return async_begin


@five_coroutines.task
async def async_right(async_begin: int) -> int:
    """Run on the other branch."""
    return async_begin


@five_coroutines.task
async def async_join(async_left: int, async_right: int) -> int:
    """Join the branches."""
    return async_left + async_right


@five_coroutines.task
async def async_end(async_join: int) -> int:
    """End the workflow."""
    return async_join


chain = tm.Workflow("chain")


def _link(number: int) -> None:
    def link() -> int:
        return number

    link.__name__ = link.__qualname__ = f"link{number}"
    chain.task(after=[f"link{number - 1}"] if number else [])(link)


for _number in range(LENGTH):
    _link(_number)

fan = tm.Workflow("fan")


@fan.task
def source() -> list[int]:
    """Return the list."""
    return list(range(WIDTH))


@fan.task(each="source")
def element(source: int) -> int:
    """Take one element."""
    return source


@fan.task
def gather(element: list[int]) -> int:
    """Take the list of results."""
    return len(element)


single = tm.Workflow("single", max_active_runs=10_000)


@single.task
def first_task() -> None:
    """Record when it begins."""
    begun.append(perf_counter())


waiting = tm.Workflow("waiting", max_active_runs=10_000)


@waiting.task
def wait(ctx: tm.Context) -> None:
    """Stay active without running."""
    ctx.defer(for_="10d")
