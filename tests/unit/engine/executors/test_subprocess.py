"""FdSelector: callbacks for readable descriptors."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing

import pytest

from tidemill.engine.workflows.executors.subprocess import FdSelector


@pytest.fixture
async def selector() -> AsyncIterator[FdSelector]:
    """A selector on the loop of the test."""
    with closing(FdSelector(asyncio.get_running_loop())) as selector:
        yield selector


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    """Two pipes."""
    with ExitStack() as stack:
        pipes = [os.pipe() for _ in range(2)]
        for end in (end for pipe in pipes for end in pipe):
            stack.callback(os.close, end)
        yield pipes


async def run_loop_turns() -> None:
    """Let the loop poll a few times."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_callback_is_called_until_everything_is_read(
    selector: FdSelector, pipes: list[tuple[int, int]]
) -> None:
    received: list[bytes] = []
    (read_end, write_end), _ = pipes
    selector.add(read_end, lambda: received.append(os.read(read_end, 1)))
    await run_loop_turns()
    assert received == []
    os.write(write_end, b"ab")
    await run_loop_turns()
    assert received == [b"a", b"b"]


async def test_a_removed_callback_is_not_called(selector: FdSelector, pipes: list[tuple[int, int]]) -> None:
    """Also if its descriptor became readable in the same turn as the one whose callback removes it."""
    called: list[int] = []

    def on_readable(number: int) -> None:
        called.append(number)
        for read_end, _ in pipes:
            selector.remove(read_end)

    for number, (read_end, write_end) in enumerate(pipes):
        selector.add(read_end, lambda number=number: on_readable(number))  # type: ignore[misc]
        os.write(write_end, b"x")
    await run_loop_turns()
    assert len(called) == 1


async def test_an_unknown_descriptor_may_be_removed(pipes: list[tuple[int, int]]) -> None:
    """Also after the selector was closed."""
    selector = FdSelector(asyncio.get_running_loop())
    selector.remove(pipes[0][0])
    selector.close()
    selector.remove(pipes[0][0])
