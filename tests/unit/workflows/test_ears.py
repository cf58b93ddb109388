"""What processes say is heard, as long as it is wanted."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing

import pytest

from tidemill.engine.workflows.executors.subprocess import FdSelector


@pytest.fixture
async def ears() -> AsyncIterator[FdSelector]:
    """Ears on the loop of the test."""
    with closing(FdSelector(asyncio.get_running_loop())) as ears:
        yield ears


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    """Two pipes."""
    with ExitStack() as stack:
        pipes = [os.pipe() for _ in range(2)]
        for end in (end for pipe in pipes for end in pipe):
            stack.callback(os.close, end)
        yield pipes


async def turns() -> None:
    """Let the loop look around."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_can_be_read_is_told_until_it_is_read(ears: FdSelector, pipes: list[tuple[int, int]]) -> None:
    heard: list[bytes] = []
    (ours, theirs), _ = pipes
    ears.add(ours, lambda: heard.append(os.read(ours, 1)))
    await turns()
    assert heard == []
    os.write(theirs, b"ab")
    await turns()
    assert heard == [b"a", b"b"]


async def test_what_is_not_wanted_any_more_is_not_told(ears: FdSelector, pipes: list[tuple[int, int]]) -> None:
    """Also if it was to be told in the same moment as what made it unwanted."""
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        for ours, _ in pipes:
            ears.remove(ours)

    for number, (ours, theirs) in enumerate(pipes):
        ears.add(ours, lambda number=number: hear(number))  # type: ignore[misc]
        os.write(theirs, b"x")
    await turns()
    assert len(heard) == 1


async def test_what_was_never_wanted_may_be_removed(pipes: list[tuple[int, int]]) -> None:
    """Whoever ends does not have to know how far it came, or what has ended before it."""
    ears = FdSelector(asyncio.get_running_loop())
    ears.remove(pipes[0][0])
    ears.close()
    ears.remove(pipes[0][0])
