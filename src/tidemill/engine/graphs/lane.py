"""The fast lane: what a generated push path looks at, in small objects, so that nothing else is read per event.

A push path (see `push_path`) may fire a boundary straight from where it was pushed as long as its reactor grants
`credit`: then the reactor is live, idle and complete, and nothing watches it. The path takes the credit away while the
graph runs (None), which keeps pushes from inside the graph out: they are noted, and fired after it. Whatever must stop
fast firings closes the lane.
"""

from collections.abc import Callable
from typing import Any

FastEntry = tuple[Any, ...]
"""(index of the source, boundary, started, ended, then one value per node)"""

NEWS, CLOSED, SAVED = 1, 2, 4


class Lane:
    """One reactor's side of the fast lane."""

    __slots__ = ("arrivals", "cache", "credit", "entries", "now", "pending")

    credit: int | None
    """How many boundaries may still be fired straight from where they were pushed; None while one is."""
    pending: int
    """What whoever ends a firing must look at: NEWS that may make another due, a lane that was CLOSED. And SAVED, which
    a checkpoint leaves behind: the next change has to take the long way, where it is noted."""

    def __init__(self, cache: list[Any], now: Callable[[], float]) -> None:
        self.cache = cache
        self.arrivals: list[float | None] = [None] * len(cache)
        self.entries: list[FastEntry] = []
        self.now = now
        self.credit = 0
        self.pending = 0

    def close(self) -> None:
        """Send the next boundary the long way, also when a fast firing is running just now."""
        if self.credit is not None:
            self.credit = 0
        self.pending |= CLOSED


class Tally:
    """How many boundaries an accumulator has emitted."""

    __slots__ = ("sequence",)

    def __init__(self) -> None:
        self.sequence = 0
