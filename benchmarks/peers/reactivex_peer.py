"""reactivex: a subject for each feed, combined by their latest values."""

import asyncio
from typing import Any

import reactivex
from reactivex import operators as ops
from reactivex.subject import Subject

from benchmarks.market_maker import ACCUMULATE, Hold, Trade, audit, combine, decide, hold, place
from benchmarks.peers.graph_work import Push, evaluating, push_all, push_paced
from benchmarks.peers.orders import Figures, serve


def make_push() -> Push:
    """Build the graph; return a function that pushes into it."""
    feeds: list[Subject[Any]] = [Subject() for _ in ACCUMULATE]
    boundaries = [feed.pipe(ops.map(accumulate)) for feed, accumulate in zip(feeds, ACCUMULATE, strict=True)]
    decisions = reactivex.combine_latest(*boundaries).pipe(ops.starmap(combine), ops.map(decide), ops.share())
    trades = decisions.pipe(ops.filter(lambda decision: type(decision) is Trade), ops.map(place))
    holds = decisions.pipe(ops.filter(lambda decision: type(decision) is Hold), ops.map(hold))
    trades.subscribe(lambda action: audit(action, None))
    holds.subscribe(lambda action: audit(None, action))
    return lambda source, event: feeds[source].on_next(event)


def evaluate(events: int) -> None:
    """Push events as fast as possible."""
    push_all(make_push(), events)


async def pace(events: int) -> Figures:
    """Push events at the fixed rate."""
    return await push_paced(make_push(), events)


if __name__ == "__main__":
    asyncio.run(serve({"evaluate": evaluating(evaluate), "paced": pace}))
