"""Tidemill: the market maker in a node without a store, through handles and through awaited pushes."""

import asyncio

import tidemill as tm
from benchmarks.bench_event_path import Engine
from benchmarks.market_maker import SOURCES, make_event, maker, market
from benchmarks.peers.graph_work import evaluating, evaluating_async, push_paced
from benchmarks.peers.orders import Figures, serve


async def by_handle(events: int) -> Figures:
    """Evaluate events through `node.handle`."""
    async with tm.Node(load=[market, maker]) as node:
        return evaluating(Engine(node).run)(events)


async def by_push(events: int) -> Figures:
    """Evaluate events through `await node.push`."""

    async def run(events: int) -> None:
        for number in range(events):
            source, event = make_event(number, number)
            await node.push(SOURCES[source], event)

    async with tm.Node(load=[market, maker]) as node:
        return await evaluating_async(run)(events)


async def pace(events: int) -> Figures:
    """Push events at the fixed rate."""
    async with tm.Node(load=[market, maker]) as node:
        handles = [node.handle(name) for name in SOURCES]
        return await push_paced(lambda source, event: handles[source](event), events)


if __name__ == "__main__":
    asyncio.run(serve({"handle": by_handle, "push": by_push, "paced": pace}))
