"""Stopping reactors, accumulators and nodes: no silent drops, no restarts, no endless waits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import single, slow


async def unload(node: tm.testing.TestNode) -> None:
    """Unload reactor `r`, while time passes."""
    async with asyncio.TaskGroup() as group:
        unloading = group.create_task(node.unload("reactor:r"))
        while not unloading.done():
            await node.advance("1s")


async def test_what_a_paused_queue_holds_at_unload_is_counted() -> None:
    """G-4: each drop is counted by reason."""
    sample = single(strategy="sequential")
    async with tm.testing.node(load=[sample.reactor]) as node, asyncio.timeout(5):
        await node.reactor("r").pause()
        for value in range(5):
            await node.push("a", value)
        await unload(node)
        assert node.metrics()["boundaries_dropped_total"] == 5


async def test_a_try_that_an_unload_prevents_is_counted() -> None:
    """G-4, G-15."""

    def act(value: int) -> None:
        raise ConnectionError

    sample = single(act, on_error=tm.Retry(3, delay="1h"))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.unload("graph:g")
        await unload(node)
        assert node.metrics()["boundaries_dropped_total"] == 1


async def test_a_batch_that_hangs_at_unload_becomes_a_dead_letter() -> None:
    """G-4, G-29: its events had been acknowledged."""

    @tm.batch(every="100s")
    async def b(events: list[int]) -> int:
        await asyncio.Event().wait()
        return len(events)

    async with tm.testing.node(load=[tm.Reactor("r", [b])]) as node, asyncio.timeout(5):
        for value in range(3):
            assert (await node.push("b", value)).outcome == "buffered"
        await unload(node)
        assert node.metrics()["dead_letters_total"] == 1


async def test_a_batch_that_has_no_room_at_unload_is_counted() -> None:
    """G-4, G-12: the queue rejects, and there will be no other time."""

    @tm.batch(every="100s", max_size=2)
    def b(events: list[int]) -> int:
        return len(events)

    reactor = tm.Reactor("r", [b], strategy="sequential", capacity=1, overflow="reject")
    async with tm.testing.node(load=[reactor]) as node, asyncio.timeout(5):
        await node.push("b", 0)
        await node.reactor("r").pause()
        await node.push("b", 1)
        assert node.reactor("r").state().queued == 1
        intake = node.probe.graphs.accumulator("b").intake
        intake.process_now(2, intake.held)  # as if it had been validated before the queue was full
        await unload(node)
        assert node.metrics()["boundaries_dropped_total"] == 2


class Grumbling:
    """A source that fails when it is left."""

    def __init__(self) -> None:
        self.starts = self.live = 0

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        self.starts += 1
        self.live += 1
        try:
            yield self.starts, self.starts
            await asyncio.Event().wait()
        finally:
            self.live -= 1
            raise RuntimeError("close failed")


async def connected(node: tm.Node) -> None:
    """Wait for the first event."""
    await node.reactor("r").next_firing(timeout=5)


def grumbling() -> tuple[Grumbling, tm.Reactor]:
    """Return such a source, and a reactor that follows it."""
    source = Grumbling()

    @tm.stream(source)
    def a(event: int) -> int:
        return event

    return source, tm.Reactor("r", [a])


async def test_an_accumulator_whose_source_fails_while_it_ends_stays_ended() -> None:
    """G-29: nothing is restarted."""
    source, reactor = grumbling()
    async with tm.Node(load=[reactor], settings={"backoff_base": "1ms"}) as node, asyncio.timeout(5):
        await connected(node)
        await node.unload("reactor:r")
        _, other = grumbling()
        await node.load(other)
        await connected(node)
        assert node.reactor("r").events() == []
    assert (source.starts, source.live) == (1, 0)


async def test_a_loop_that_fails_while_it_ends_leaves_its_successor_alone() -> None:
    """G-19: a restart is one restart."""
    source, reactor = grumbling()
    async with tm.Node(load=[reactor]) as node, asyncio.timeout(5):
        await connected(node)
        await node.restart_accumulator("a")
        await connected(node)
        state = node.reactor("r").state()
        actions = [event.action for event in node.reactor("r").events()]
        assert source.live == 1
    assert (state.health, source.starts, actions) == (tm.ReactorHealth.LIVE, 2, ["restarted"])


async def test_a_node_closes_although_author_code_swallows_its_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    """G-29: cancel it, record it, and continue."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def act(value: int) -> None:
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    sample = slow(act)
    node = tm.Node(load=sample.load, settings={"unload_timeout": "10ms"})
    async with asyncio.timeout(5):
        async with node:
            await node.push("a", 1)
            await begun.wait()
    gate.set()
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.__dict__["tasks"] == ["reactor r"]
