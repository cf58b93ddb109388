"""bytewax: one worker, with the market maker as a dataflow; events come one by one, or in batches."""

import asyncio
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.market_maker import ACCUMULATE, Trade, audit, combine, decide, hold, make_event, place
from benchmarks.peers.graph_work import evaluating, pacing, push_paced_from_thread
from benchmarks.peers.orders import serve

BATCH = 256
FeedEvent = tuple[int, dict[str, Any]]
NextBatch = Callable[[], list[FeedEvent]]
"""Returns the next events, or raises StopIteration."""


class Partition(StatelessSourcePartition[FeedEvent]):
    """Asks a function for events."""

    def __init__(self, next_batch: NextBatch) -> None:
        self._next_batch = next_batch

    def next_batch(self) -> list[FeedEvent]:
        return self._next_batch()


class Source(DynamicSource[FeedEvent]):
    """The source of the only worker."""

    def __init__(self, next_batch: NextBatch) -> None:
        self._next_batch = next_batch

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Partition:  # noqa: ARG002
        return Partition(self._next_batch)


class AuditPartition(StatelessSinkPartition[Any]):
    """Audits actions."""

    def write_batch(self, items: list[Any]) -> None:
        for action in items:
            audit(action, None)


class Audit(DynamicSink[Any]):
    """The sink of the only worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> AuditPartition:  # noqa: ARG002
        return AuditPartition()


def keep_latest(latest: list[Any] | None, item: FeedEvent) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Keep the latest of each feed; emit all of them once each has spoken."""
    state = latest or [None] * len(ACCUMULATE)
    source, event = item
    state[source] = ACCUMULATE[source](event)
    return state, [] if None in state else [tuple(state)]


def make_flow(next_batch: NextBatch) -> Dataflow:
    """Build the dataflow."""
    flow = Dataflow("market")
    events = op.input("events", flow, Source(next_batch))
    keyed = op.key_on("key", events, lambda _: "market")
    latest = op.key_rm("unkey", op.stateful_flat_map("latest", keyed, keep_latest))
    decisions = op.map("decide", op.map("combine", latest, lambda inputs: combine(*inputs)), decide)
    split = op.branch("route", decisions, lambda decision: type(decision) is Trade)
    actions = op.merge("actions", op.map("place", split.trues, place), op.map("hold", split.falses, hold))
    op.output("audit", actions, Audit())
    return flow


def evaluate(size: int) -> Callable[[int], None]:
    """Return a function that runs a dataflow over events in batches of this size."""

    def run(events: int) -> None:
        run_main(make_flow(batches(events, size).__next__))

    return run


def batches(events: int, size: int) -> Iterator[list[FeedEvent]]:
    """Yield events in batches."""
    for first in range(0, events, size):
        yield [make_event(number, number) for number in range(first, min(first + size, events))]


def pace(events: int) -> None:
    """Let a thread push events at the fixed rate, through a queue that the source reads."""
    queue: SimpleQueue[FeedEvent] = SimpleQueue()
    producer = Thread(target=push_paced_from_thread, args=(lambda *item: queue.put(item), events))
    left = events

    def next_batch() -> list[FeedEvent]:
        nonlocal left
        if not left:
            raise StopIteration
        try:
            found = [queue.get_nowait()]
        except Empty:
            return []
        left -= 1
        return found

    producer.start()
    run_main(make_flow(next_batch))
    producer.join()


if __name__ == "__main__":
    asyncio.run(
        serve({"one by one": evaluating(evaluate(1)), "batches": evaluating(evaluate(BATCH)), "paced": pacing(pace)})
    )
