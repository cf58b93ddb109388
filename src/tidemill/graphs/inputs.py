"""What a reactor knows of its inputs: cache, dirty flags, queue, and whether the criteria hold.

The only place that decides what a firing sees. `latest` keeps one value per source and a flag that says it is news;
`sequential` queues every boundary and applies them one by one. Flags are the bits of one integer, so that "any" and
"all" are one comparison however many sources there are.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.graphs.definition import Reactor

Entry = tuple[int, Any]
"""A source's index, and a boundary of its."""
Queued = tuple[int, Any, int]
"""The same with the boundary's position in the journal, 0 without one."""


class Taken(msgspec.Struct, frozen=True):
    """What a firing took: the snapshot it sees, what led to it, and the flags it cleared."""

    snapshot: list[Any]
    consumed: list[Entry]
    flags: int


class Inputs:
    """Cache, flags and queue of one reactor."""

    __slots__ = (
        "_blank",
        "applied",
        "cache",
        "capacity",
        "consumed",
        "dirty",
        "forgotten",
        "mask",
        "needs_all",
        "queue",
        "sequential",
    )

    def __init__(self, reactor: Reactor) -> None:
        self._blank: list[Any] = [[] if one.is_window else None for one in reactor.accumulators]
        self.cache = self._blank.copy()
        self.dirty = 0
        self.sequential = reactor.strategy == "sequential"
        self.capacity = reactor.capacity
        self.queue: deque[Queued] = deque()
        self.consumed: deque[Entry] = deque(maxlen=reactor.capacity)
        self.forgotten = 0
        self.applied = 0  # the position of the newest boundary in the cache
        self.needs_all = reactor.when.mode == "all"
        self.mask = 0
        self.watch(reactor, frozenset())

    def watch(self, reactor: Reactor, own_windows: frozenset[str]) -> None:
        """Say which flags decide; "all" never waits for windows that only the reactor's own graphs feed."""
        chosen = {one.name for one in reactor.when.accumulators} or set(reactor.names)
        if self.needs_all:
            chosen = (chosen - own_windows) or chosen
        self.mask = sum(1 << index for index, name in enumerate(reactor.names) if name in chosen)

    @property
    def is_full(self) -> bool:
        """Whether another boundary would exceed the capacity."""
        return self.sequential and len(self.queue) >= self.capacity

    @property
    def is_met(self) -> bool:
        """Whether the flags fulfil the criteria."""
        news = self.dirty & self.mask
        return news == self.mask if self.needs_all else news != 0

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take in a boundary: over the last one of its source, or behind all others."""
        if self.sequential:
            self.queue.append((index, boundary, position))
        else:
            self._apply(index, boundary, position)

    def _apply(self, index: int, boundary: Any, position: int) -> None:
        self.cache[index] = boundary
        self.dirty |= 1 << index
        if position:
            self.applied = position

    def advance(self) -> bool:
        """Apply the oldest queued boundary; return whether there was one."""
        if not self.queue:
            return False
        index, boundary, position = self.queue.popleft()
        if len(self.consumed) == self.consumed.maxlen:
            self.forgotten += 1
        self.consumed.append((index, boundary))
        self._apply(index, boundary, position)
        return True

    def take(self) -> Taken:
        """Take the snapshot for a firing and clear what led to it, in one step."""
        taken = Taken(self.cache.copy(), self._led_here(), self.dirty)
        self.dirty = 0
        self.consumed.clear()
        return taken

    def replace(self, values: Sequence[Any]) -> Taken:
        """Replace the whole cache and take it for a firing; the queue stays."""
        self.cache[:] = values
        given = [
            (index, value)
            for index, value in enumerate(values)
            if value is not None and not self._is_blank(index, value)
        ]
        self.dirty = 0
        self.consumed.clear()
        return Taken(self.cache.copy(), given, 0)

    def _is_blank(self, index: int, value: Any) -> bool:
        """Whether a window was left empty, as every window begins."""
        return self._blank[index] is not None and not value

    def resize(self, capacity: int) -> None:
        """Queue at most this many boundaries from now on."""
        self.capacity = capacity
        self.consumed = deque(self.consumed, maxlen=capacity)

    def migrate(self, adapt: Callable[[int, Any], Any]) -> int:
        """Make every value what `adapt` returns for its source; forget those it returns None for, and count them."""
        lost = 0
        for index, value in enumerate(self.cache):
            adapted = None if value is None else adapt(index, value)
            if adapted is None and value is not None:
                lost += 1
                adapted = self._blank[index]
                self.dirty &= ~(1 << index)
            self.cache[index] = adapted
        for entries in (self.queue, self.consumed):
            fitting = [(index, new, *at) for index, value, *at in entries if (new := adapt(index, value)) is not None]
            lost += len(entries) - len(fitting)
            entries.clear()
            entries.extend(fitting)
        return lost

    def resume(self, cache: Sequence[Any], dirty: int, applied: int) -> None:
        """Begin where an earlier life of the reactor stood; sources it knew nothing of are as at first."""
        for index, value in enumerate(cache):
            if value is not None:
                self.cache[index] = value
            else:
                dirty &= ~(1 << index)
        self.dirty = dirty
        self.applied = applied

    def drop_oldest(self) -> None:
        """Make room by forgetting the oldest queued boundary."""
        self.queue.popleft()

    def _led_here(self) -> list[Entry]:
        if self.sequential:
            return list(self.consumed)
        return [(index, value) for index, value in enumerate(self.cache) if self.dirty >> index & 1]
