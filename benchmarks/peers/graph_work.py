"""The work of graph contestants: the events of the market maker, evaluated one by one or pushed at a pace.

Every round begins with the first event and without state. Its evaluations and its checksum show that each event was
evaluated, with the same decisions.
"""

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event
from time import perf_counter, perf_counter_ns
from typing import Any

from benchmarks.market_maker import ledger, make_event
from benchmarks.peers.orders import Figures, Work

RATE = 1_000
"""Events per second of a paced round."""
WARM_UP = 50
"""The first events of a paced round, which are not counted."""

Push = Callable[[int, dict[str, Any]], object]


def evaluating(run: Callable[[int], object]) -> Callable[[int], Figures]:
    """Return the work of a function that evaluates so many events as fast as it can."""

    def work(events: int) -> Figures:
        ledger.clear()
        began = perf_counter()
        run(events)
        return _evaluated(began)

    return work


def evaluating_async(run: Callable[[int], Awaitable[object]]) -> Callable[[int], Awaitable[Figures]]:
    """Return the same for a coroutine function."""

    async def work(events: int) -> Figures:
        ledger.clear()
        began = perf_counter()
        await run(events)
        return _evaluated(began)

    return work


def _evaluated(began: float) -> Figures:
    return {
        "seconds": perf_counter() - began,
        "evaluations": ledger.evaluations,
        "checksum": ledger.checksum,
    }


def push_all(push: Push, events: int) -> None:
    """Push so many events, one after the other."""
    for number in range(events):
        push(*make_event(number, number))


async def push_paced(push: Push, events: int) -> Figures:
    """Push events at the fixed rate from the event loop; return the latencies."""
    with _Latencies() as latencies:
        began = perf_counter()
        for number in range(events):
            await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
            push(*make_event(number, perf_counter_ns()))
    return latencies.figures()


def push_paced_from_thread(push: Push, events: int) -> None:
    """Push events at the fixed rate, for engines that occupy the main thread."""
    pause = Event()
    began = perf_counter()
    for number in range(events):
        pause.wait(max(0.0, began + number / RATE - perf_counter()))
        push(*make_event(number, perf_counter_ns()))


def pacing(run: Callable[[int], object]) -> Work:
    """Return the work of a function that lets an engine receive so many paced events."""

    def work(events: int) -> Figures:
        with _Latencies() as latencies:
            run(events)
        return latencies.figures()

    return work


class _Latencies:
    """Records the microseconds from just before each push to the terminal node."""

    def __init__(self) -> None:
        self._waited: list[float] = []

    def __enter__(self) -> "_Latencies":
        ledger.clear()
        ledger.on_audit = lambda stamp: self._waited.append((perf_counter_ns() - stamp) / 1000)
        return self

    def __exit__(self, *_: object) -> None:
        ledger.clear()

    def figures(self) -> Figures:
        """Return the percentiles, and how many events were counted."""
        ordered = sorted(self._waited[WARM_UP:])
        return {
            "p50": ordered[len(ordered) // 2],
            "p99": ordered[int(len(ordered) * 0.99)],
            "evaluations": len(self._waited),
        }
