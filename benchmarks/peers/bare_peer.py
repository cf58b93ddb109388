"""No engine: a bare loop over the functions of the market maker, and a hand-written asyncio.Queue between two tasks."""

import asyncio
from typing import Any

from benchmarks.bench_event_path import Bare, Queue
from benchmarks.market_maker import ACCUMULATE, by_hand
from benchmarks.peers.graph_work import evaluating, evaluating_async, push_paced
from benchmarks.peers.orders import Figures, serve


def loop(events: int) -> None:
    """Keep the latest of each feed and call the functions."""
    Bare().run(events)


async def queue(events: int) -> None:
    """Let one task produce events and another one evaluate them."""
    await Queue().run(events)


async def pace(events: int) -> Figures:
    """Call the functions with each event as it comes."""
    latest: list[Any] = [None] * len(ACCUMULATE)

    def push(source: int, event: dict[str, Any]) -> None:
        latest[source] = ACCUMULATE[source](event)
        if None not in latest:
            by_hand(*latest)

    return await push_paced(push, events)


if __name__ == "__main__":
    asyncio.run(serve({"loop": evaluating(loop), "queue": evaluating_async(queue), "paced": pace}))
