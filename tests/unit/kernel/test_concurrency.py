"""FirstErrorGroup: tasks inside one call that fail together. And calls on threads."""

import asyncio
import threading
import traceback
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from tidemill.kernel.concurrency import FirstErrorGroup, call_in_new_thread, call_in_thread


async def return_later(value: int) -> int:
    """Return a value in a later turn of the loop."""
    await asyncio.sleep(0)
    return value


async def fail(text: str) -> int:
    """Raise in the first step."""
    raise ValueError(text)  # the line that failed


async def test_tasks_return_their_results() -> None:
    """Each task has its result and its name."""
    async with FirstErrorGroup() as group:
        one, two = group.start("one", return_later(1)), group.start("two", return_later(2))
    assert (one.result(), two.result(), one.get_name()) == (1, 2, "one")


async def test_the_group_raises_the_first_error_itself() -> None:
    """Not an exception group around it, and without a context."""
    with pytest.raises(ValueError, match="first") as caught:
        await run_together(fail("first"), fail("second"))
    assert caught.value.__suppress_context__


async def test_an_error_keeps_its_traceback_when_other_tasks_await_it() -> None:
    """G-18: the traceback ends where the error was raised."""

    async def fail_and_wait() -> None:
        async with FirstErrorGroup() as group:
            source = group.start("source", fail("source"))
            for number in range(3):
                group.start(f"waiter {number}", wait_for(source))

    with pytest.raises(ValueError, match="source") as caught:
        await fail_and_wait()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "fail"
    assert "the line that failed" in frames[-1].line  # type: ignore[operator]


async def run_together(*steps: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines in one group to their end."""
    async with FirstErrorGroup() as group:
        for number, step in enumerate(steps):
            group.start(f"step {number}", step)


async def wait_for(task: "asyncio.Task[int]") -> int:
    """Wait for another task."""
    return await task


async def test_an_error_cancels_the_other_tasks() -> None:
    """Tasks of a group fail together."""
    cancelled = asyncio.Event()

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ValueError, match="now"):
        await run_together(wait_forever(), fail("now"))
    assert cancelled.is_set()


async def test_a_call_on_a_thread_takes_every_keyword() -> None:
    """`call_in_thread` has no keywords of its own."""

    def show(*values: int, **named: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return values, named

    assert await call_in_thread(show, 1, function=2, func=3) == ((1,), {"function": 2, "func": 3})


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_a_base_exception_is_raised_at_the_end_of_the_group(error: BaseException) -> None:
    """asyncio would raise the one out of the loop, and take the other for a requested cancellation."""

    async def fail_with() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)) as caught:
        await run_together(fail_with(), asyncio.Event().wait())
    assert caught.value is error


async def test_a_group_that_is_cancelled_from_outside_is_cancelled() -> None:
    """No error of a task replaces the cancellation."""
    started = asyncio.Event()

    async def start() -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_together(start(), start()))
        await started.wait()
        running.cancel()
    assert running.cancelled()


# -- threads

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


async def test_a_call_in_a_new_thread_returns_and_raises() -> None:
    """It runs in the caller's context, on a thread with the requested name."""
    COLOUR.set("blue")

    def show(one: int, two: int) -> tuple[int, str, str]:
        return one + two, COLOUR.get(), threading.current_thread().name

    assert await call_in_new_thread("adder", show, 1, 2) == (3, "blue", "adder")
    with pytest.raises(ValueError, match="invalid literal"):
        await call_in_new_thread("reader", int, "x")
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await call_in_new_thread("looker", next, iter(()))


async def test_a_call_in_a_new_thread_neither_waits_for_others_nor_delays_them() -> None:
    """However many hang; a caller that stops waiting leaves its thread running."""
    go, ended = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        go.wait()
        ended.release()

    waiting = [asyncio.wait_for(call_in_new_thread(f"hanging {number}", hang), 0.01) for number in range(64)]
    results = await asyncio.gather(*waiting, call_in_new_thread("free", int, "7"), return_exceptions=True)
    assert {type(one) for one in results[:-1]} == {TimeoutError}
    assert results[-1] == 7
    go.set()
    for _ in waiting:
        assert ended.acquire(timeout=10)
