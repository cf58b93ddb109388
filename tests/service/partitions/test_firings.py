"""Firings of a keyed reactor: those of all partitions, read as those of one reactor."""

import asyncio
import logging
from typing import Any

import pytest

import tidemill as tm


class Tick(tm.Boundary):
    """A price of a symbol."""

    symbol: str
    price: float = 0.0


def market(**options: Any) -> list[Any]:
    """Return a keyed reactor with a graph that the fast path runs."""

    @tm.passthrough
    def ticks(event: Tick) -> Tick:
        return event

    reactor = tm.Reactor("market", [ticks], key="symbol", **options)
    graph = tm.Graph("see", reactor=reactor)

    @graph.node
    def see(ticks: Tick) -> float:
        return ticks.price

    return [reactor, graph]


async def push(node: tm.testing.TestNode, symbols: str) -> None:
    """Push a tick of each symbol; the prices count from 0."""
    for price, symbol in enumerate(symbols):
        await node.push("ticks", Tick(symbol, price))


def prices(firings: list[tm.Firing]) -> list[float]:
    """Return the prices that firings saw."""
    return [one.inputs["ticks"].price for one in firings]


async def test_firings_of_the_same_time_are_newest_first() -> None:
    """G-16: a virtual clock stands still between them, and they belong to different partitions."""
    async with tm.testing.node(load=market()) as node:
        await push(node, "ABACBA")
        assert prices(node.reactor("market").firings()) == [5, 4, 3, 2, 1, 0]
        assert prices(node.reactor("market").firings(limit=2)) == [5, 4]
        assert prices(node.reactor("market").firings(key="A")) == [5, 2, 0]


async def test_every_handle_continues_after_the_firings_that_were_returned() -> None:
    """G-16: each firing is returned once, oldest first, whichever handle asks."""
    async with tm.testing.node(load=market()) as node:
        await push(node, "ABACBA")
        found = [await node.reactor("market").next_firing(timeout=1) for _ in range(6)]
        assert prices(found) == [0, 1, 2, 3, 4, 5]


async def test_a_cancelled_wait_takes_no_firing(caplog: pytest.LogCaptureFixture) -> None:
    """G-16: neither the wait of a caller who gave up, nor one that the node's end finds, leaves a trace."""
    caplog.set_level(logging.ERROR)
    async with tm.testing.node(load=market()) as node:
        handle = node.reactor("market")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(handle.next_firing(), name="waiting")
            await asyncio.sleep(0)
            waiting.cancel()
        await push(node, "AB")
        assert prices([await handle.next_firing(timeout=1) for _ in range(2)]) == [0, 1]
        with pytest.raises(TimeoutError):
            await handle.next_firing(timeout=0)
    async with asyncio.TaskGroup() as group, tm.testing.node(load=market()) as node:
        group.create_task(wait_in_vain(node.reactor("market")), name="abandoned")
        await asyncio.sleep(0)
    assert caplog.records == []


async def wait_in_vain(handle: Any) -> None:
    """Wait for a firing until the reactor is unloaded."""
    with pytest.raises(tm.RequestError, match="reactor 'market' was unloaded") as raised:
        await handle.next_firing()
    assert raised.value.code == "reactor_not_found"


async def test_a_waiting_caller_gets_firings_of_every_partition() -> None:
    """G-16: also of those that fire while it waits, and the fast path opens again afterwards."""
    async with tm.testing.node(load=market()) as node:
        handle = node.reactor("market")
        for symbol in "ABCDE":
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(handle.next_firing(timeout=5), name="waiting")
                await asyncio.sleep(0)
                await node.push("ticks", Tick(symbol))
            assert waiting.result().key == symbol


async def test_a_wait_ends_with_its_reactor() -> None:
    """G-29: as that for a reactor without keys."""
    async with tm.testing.node(load=market()[:1]) as node, asyncio.TaskGroup() as group:
        group.create_task(wait_in_vain(node.reactor("market")), name="waiting")
        await asyncio.sleep(0)
        await node.unload("reactor:market")
