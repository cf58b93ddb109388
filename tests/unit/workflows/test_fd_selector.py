"""The selector of child processes reports readable descriptors as long as they are registered."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing

import pytest

from tidemill.engine.workflows.executors.subprocess import FdSelector


@pytest.fixture
async def selector() -> AsyncIterator[FdSelector]:
    """Ears on the loop of the test."""
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


async def turns() -> None:
    """Let the loop look around."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_readable_descriptor_is_reported_until_it_is_read(
    selector: FdSelector, pipes: list[tuple[int, int]]
) -> None:
    heard: list[bytes] = []
    (ours, theirs), _ = pipes
    selector.add(ours, lambda: heard.append(os.read(ours, 1)))
    await turns()
    assert heard == []
    os.write(theirs, b"ab")
    await turns()
    assert heard == [b"a", b"b"]


async def test_a_removed_descriptor_is_not_reported(selector: FdSelector, pipes: list[tuple[int, int]]) -> None:
    """Also if it became readable in the same moment in which it was removed."""
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        for ours, _ in pipes:
            selector.remove(ours)

    for number, (ours, theirs) in enumerate(pipes):
        selector.add(ours, lambda number=number: hear(number))  # type: ignore[misc]
        os.write(theirs, b"x")
    await turns()
    assert len(heard) == 1


async def test_what_was_never_wanted_may_be_removed(pipes: list[tuple[int, int]]) -> None:
    """The caller does not have to know how far it got, or what has been closed before."""
    selector = FdSelector(asyncio.get_running_loop())
    selector.remove(pipes[0][0])
    selector.close()
    selector.remove(pipes[0][0])
