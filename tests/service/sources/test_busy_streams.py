"""A node that closes while a source brings events as fast as they are taken."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
from tidemill.telemetry import events


class Numbers:
    """A source that never ends."""

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        for number in itertools.count(checkpoint or 0):
            yield number, number + 1
            await asyncio.sleep(0)


async def test_a_busy_source_is_no_trouble_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """G-29: an event that comes while the accumulator stops is not processed, and that is no warning."""

    @tm.stream(Numbers())
    def counted(event: int) -> int:
        return event

    seen: list[int] = []
    reactor = tm.Reactor("counting", [counted])
    graph = tm.Graph("count", reactor=reactor)

    @graph.node
    async def slow(counted: int) -> None:
        seen.append(counted)
        await asyncio.sleep(0.02)

    async with tm.Node(load=[reactor, graph]):
        await until(lambda: len(seen) > 2)
    assert [one.getMessage() for one in caplog.records if one.getMessage() == events.SOURCE_STALLED] == []
