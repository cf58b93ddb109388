"""Bounded queues: what happens when a sequential reactor's queue is full."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import pair, single


async def test_a_full_queue_blocks_the_pusher_until_there_is_room() -> None:
    """G-12: block is the default."""
    sample = single(strategy="sequential", capacity=2)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 0)
        await node.push("a", 1)
        blocked = group.create_task(node.push("a", 2))
        await node.settle()
        assert not blocked.done()
        await node.reactor("r").resume()
        assert await blocked == tm.Receipt(True, 3, "emitted")
        await node.settle()
    assert sample.seen == [0, 1, 2]


async def test_blocked_pushers_go_on_in_the_order_in_which_they_came() -> None:
    """G-1, G-12."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            for value in range(6):
                group.create_task(node.push("a", value))
            await node.settle()
            assert node.reactor("r").state().queued == 1
            await node.reactor("r").resume()
        await node.settle()
    assert sample.seen == [0, 1, 2, 3, 4, 5]


async def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    """G-12: also not in the moment in which the queue has room again."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            for value in range(4):
                group.create_task(node.push("a", value))
            await node.settle()
            await node.reactor("r").resume()
            for value in range(4, 8):
                group.create_task(node.push("a", value))
                await asyncio.sleep(0)
        await node.settle()
    assert sample.seen == list(range(8))


async def test_a_blocked_pusher_that_is_cancelled_leaves_no_trace() -> None:
    """G-12: the event was not accepted."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 0)
        first, second = group.create_task(node.push("a", 1)), group.create_task(node.push("a", 2))
        await node.settle()
        first.cancel()
        await node.settle()
        await node.reactor("r").resume()
        assert (await second).sequence == 2
        await node.settle()
    assert sample.seen == [0, 2]


async def test_drop_oldest_keeps_the_newest_and_counts_the_rest() -> None:
    """G-4, G-12."""
    sample = single(strategy="sequential", capacity=2, overflow="drop_oldest")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        receipts = [await node.push("a", value) for value in range(5)]
        state = node.reactor("r").state()
        await node.reactor("r").resume()
    assert all(receipt.outcome == "emitted" for receipt in receipts)
    assert (state.queued, sum(state.dropped.values())) == (2, 3)
    assert sample.seen == [3, 4]


async def test_reject_says_so_and_counts() -> None:
    """G-4, G-12."""
    sample = single(strategy="sequential", capacity=2, overflow="reject")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        receipts = [await node.push("a", value) for value in range(3)]
        state = node.reactor("r").state()
        await node.reactor("r").resume()
        after = await node.push("a", 3)
        dropped = node.metrics()["boundaries_dropped_total"]
    assert (receipts[2].accepted, receipts[2].outcome) == (False, "rejected")
    assert "full" in (receipts[2].reason or "")
    assert (state.queued, sum(state.dropped.values()), dropped) == (2, 1, 1)
    assert after.sequence == 3
    assert sample.seen == [0, 1, 3]


async def test_a_handle_raises_full_where_a_push_would_wait() -> None:
    """API: `tm.FullError`, a RequestError with code `full`."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        await node.reactor("r").pause()
        push(0)
        with pytest.raises(tm.FullError) as caught:
            push(1)
        await node.reactor("r").resume()
        assert push(2) == 2
    assert isinstance(caught.value, tm.RequestError)
    assert caught.value.code == "queue_full"
    assert sample.seen == [0, 2]


async def test_a_handle_into_a_rejecting_reactor_returns_none() -> None:
    """API: None when nothing was emitted; the drop is counted."""
    sample = single(strategy="sequential", capacity=1, overflow="reject")
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        await node.reactor("r").pause()
        assert [push(0), push(1)] == [1, None]
        assert sum(node.reactor("r").state().dropped.values()) == 1


async def test_async_accumulators_never_overfill_the_queue() -> None:
    """G-12: room is looked for again when the function is done."""
    gate = asyncio.Event()

    async def late(event: int) -> int:
        await gate.wait()
        return event

    sources = []
    for name in ("a", "b", "c"):
        late.__name__ = name
        sources.append(tm.passthrough(late))
    reactor = tm.Reactor("r", sources, strategy="sequential", capacity=1)
    async with tm.testing.node(load=[reactor]) as node, asyncio.timeout(5):
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(node.push(name, 1))
            await node.advance(0)
            gate.set()
            await node.advance(0)
            assert node.reactor("r").state().queued == 1
            await node.reactor("r").resume()
        await node.settle()
        state = node.reactor("r").state()
    assert (state.fires, state.dropped) == (3, {})


async def test_a_blocked_accumulator_does_not_hold_up_another_reactor() -> None:
    """G-12: back-pressure is between a queue and those who feed it."""
    blocked, free = pair(strategy="sequential", capacity=1), tm.Reactor("free", [single().reactor.accumulators[0]])
    c = free.accumulators[0]
    renamed = tm.Reactor("full", blocked.reactor.accumulators[1:], strategy="sequential", capacity=1)
    assert (c.name, renamed.accumulator_names) == ("a", ("b",))
    async with tm.testing.node(load=[renamed, free]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("full").pause()
        await node.push("b", 1)
        waiting = group.create_task(node.push("b", 2))
        await node.settle()
        assert (await node.push("a", 1)).outcome == "emitted"
        assert not waiting.done()
        await node.reactor("full").resume()


async def test_an_accumulator_of_two_reactors_waits_for_both() -> None:
    """G-12: all or none of its reactors get a boundary."""
    sample = single(strategy="sequential", capacity=1)
    (a,) = sample.reactor.accumulators
    other = tm.Reactor("other", [a], strategy="sequential", capacity=1)
    async with tm.testing.node(load=[*sample.load, other]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.reactor("other").pause()
        await node.push("a", 1)
        waiting = group.create_task(node.push("a", 2))
        await node.reactor("r").resume()
        await node.settle()
        assert not waiting.done()
        await node.reactor("other").resume()
        assert (await waiting).sequence == 2
        assert [node.reactor(name).state().fires for name in ("r", "other")] == [2, 2]


@pytest.mark.parametrize("overflow", ["block", "reject", "drop_oldest"])
async def test_a_queue_that_is_never_full_treats_all_policies_alike(overflow: str) -> None:
    """G-12."""
    sample = single(strategy="sequential", capacity=1, overflow=overflow)
    async with tm.testing.node(load=sample.load) as node:
        receipts = [await node.push("a", value) for value in range(5)]
    assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5]
    assert sample.seen == [0, 1, 2, 3, 4]


async def test_what_cannot_wait_for_room_exceeds_a_blocking_queue() -> None:
    """G-4, G-12: only drop_oldest drops; a window that another reactor's graph feeds has no pusher to block."""
    recent = tm.window("recent", int, capacity=5)

    @tm.passthrough
    def a(event: int) -> int:
        return event

    feeding = tm.Reactor("feeding", [a, recent])
    fed = tm.Reactor("fed", [recent], strategy="sequential", capacity=2, overflow="block")
    graph = tm.Graph("g", reactor=feeding)

    @graph.node(feeds=recent)
    def out(a: int) -> int:
        return a

    async with tm.testing.node(load=[feeding, fed, graph]) as node:
        await node.reactor("fed").pause()
        for value in range(4):
            await node.push("a", value)
        state = node.reactor("fed").state()
        await node.reactor("fed").resume()
        seen = [firing.inputs["recent"] for firing in node.reactor("fed").firings()]
    assert (state.dropped, state.queued) == ({}, 4)
    assert seen == [[0, 1, 2, 3], [0, 1, 2], [0, 1], [0]]


@pytest.mark.parametrize("options", [{"capacity": 10}, {"capacity": 1, "overflow": "drop_oldest"}])
async def test_a_new_version_with_more_room_lets_in_who_waits(options: dict[str, Any]) -> None:
    """G-12, G-27: no pusher waits while there is space."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    old = tm.Reactor("r", [a], strategy="sequential", capacity=1)
    new = tm.Reactor("r", [a], strategy="sequential", **options)
    async with tm.testing.node(load=[old]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 1)
        waiting = group.create_task(node.push("a", 2))
        await node.advance(0)
        assert not waiting.done()
        await node.load(new)
        assert (await waiting).outcome == "emitted"
