"""Strands: steps that run together inside one call and fail as one. And calls on threads."""

import asyncio
import threading
import traceback
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from tidemill.kernel.concurrency import FirstErrorGroup, call_in_new_thread, call_in_thread


async def give(value: int) -> int:
    """Return what was given, later."""
    await asyncio.sleep(0)
    return value


async def fail(text: str) -> int:
    """Raise at once."""
    raise ValueError(text)  # the line that failed


async def test_strands_return_their_results() -> None:
    """Awaiting what comes back gives a strand's result."""
    async with FirstErrorGroup() as strands:
        one, two = strands.start("one", give(1)), strands.start("two", give(2))
    assert (one.result(), two.result(), one.get_name()) == (1, 2, "one")


async def test_the_first_error_itself_comes_out() -> None:
    """Not a group around it, and with nothing before it."""
    with pytest.raises(ValueError, match="first") as caught:
        await run_together(fail("first"), fail("second"))
    assert caught.value.__suppress_context__


async def test_an_error_keeps_its_traceback_however_many_wait_for_it() -> None:
    """G-18: the traceback ends where the error was raised."""

    async def fail_and_wait() -> None:
        async with FirstErrorGroup() as strands:
            source = strands.start("source", fail("source"))
            for number in range(3):
                strands.start(f"waiter {number}", wait_for(source))

    with pytest.raises(ValueError, match="source") as caught:
        await fail_and_wait()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "fail"
    assert "the line that failed" in frames[-1].line


async def run_together(*steps: Coroutine[Any, Any, Any]) -> None:
    """Run some strands to their end."""
    async with FirstErrorGroup() as strands:
        for number, step in enumerate(steps):
            strands.start(f"strand {number}", step)


async def wait_for(task: "asyncio.Task[int]") -> int:
    """Wait for another strand."""
    return await task


async def test_a_strand_that_waits_is_cancelled_by_an_error() -> None:
    """Strands fail as one."""
    cancelled = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ValueError, match="now"):
        await run_together(wait_for_ever(), fail("now"))
    assert cancelled.is_set()


async def test_a_thread_takes_every_name_of_argument() -> None:
    """No keyword is the helper's own."""

    def show(*values: int, **named: int) -> tuple[tuple[int, ...], dict[str, int]]:
        return values, named

    assert await call_in_thread(show, 1, function=2, func=3) == ((1,), {"function": 2, "func": 3})


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
async def test_what_is_no_exception_comes_out_where_the_strands_end(error: BaseException) -> None:
    """asyncio would raise the one out of the loop, and take the other for an end that was asked for."""

    async def fail_with() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)) as caught:
        await run_together(fail_with(), asyncio.Event().wait())
    assert caught.value is error


async def test_strands_that_are_cancelled_from_outside_are_cancelled() -> None:
    """No error of a strand stands for it."""
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_together(begin(), begin()))
        await begun.wait()
        running.cancel()
    assert running.cancelled()


# -- threads

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


async def test_a_thread_of_its_own_returns_and_raises_as_a_call_does() -> None:
    """In the context of whoever calls, on a thread with the name that it is given."""
    COLOUR.set("blue")

    def show(one: int, two: int) -> tuple[int, str, str]:
        return one + two, COLOUR.get(), threading.current_thread().name

    assert await call_in_new_thread("adder", show, 1, 2) == (3, "blue", "adder")
    with pytest.raises(ValueError, match="invalid literal"):
        await call_in_new_thread("reader", int, "x")
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await call_in_new_thread("looker", next, iter(()))


async def test_a_thread_of_its_own_waits_for_no_other_and_holds_up_nobody() -> None:
    """However many hang; and whoever stops waiting leaves its thread to itself."""
    go, ended = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        go.wait()
        ended.release()

    waiting = [asyncio.wait_for(call_in_new_thread(f"hanging {number}", hang), 0.01) for number in range(64)]
    found = await asyncio.gather(*waiting, call_in_new_thread("free", int, "7"), return_exceptions=True)
    assert {type(one) for one in found[:-1]} == {TimeoutError}
    assert found[-1] == 7
    go.set()
    for _ in waiting:
        assert ended.acquire(timeout=10)
