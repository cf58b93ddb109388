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

SourceBoundary = tuple[int, Any]
"""A source's index, and a boundary of its."""
QueuedBoundary = tuple[int, Any, int]
"""The same with the boundary's position in the journal, 0 without one."""


class FiringInputs(msgspec.Struct, frozen=True):
    """What a firing took: the snapshot it sees, what led to it, and the flags it cleared."""

    snapshot: list[Any]
    consumed: list[SourceBoundary]
    flags: int


class Inputs:
    """Cache, flags and queue of one reactor."""

    __slots__ = (
        "_initial_values",
        "applied_position",
        "cache",
        "capacity",
        "consumed",
        "criteria_mask",
        "dirty",
        "dropped_consumed",
        "is_sequential",
        "needs_all",
        "queue",
    )

    def __init__(self, reactor: Reactor) -> None:
        self._initial_values: list[Any] = [[] if one.is_window else None for one in reactor.accumulators]
        self.cache = self._initial_values.copy()
        self.dirty = 0
        self.is_sequential = reactor.strategy == "sequential"
        self.capacity = reactor.capacity
        self.queue: deque[QueuedBoundary] = deque()
        self.consumed: deque[SourceBoundary] = deque(maxlen=reactor.capacity)
        self.dropped_consumed = 0
        self.applied_position = 0  # the position of the newest boundary in the cache
        self.needs_all = reactor.when.mode == "all"
        self.criteria_mask = 0
        self.set_criteria(reactor, frozenset())

    def set_criteria(self, reactor: Reactor, own_windows: frozenset[str]) -> None:
        """Say which flags decide; "all" never waits for windows that only the reactor's own graphs feed."""
        chosen = {one.name for one in reactor.when.accumulators} or set(reactor.accumulator_names)
        if self.needs_all:
            chosen = (chosen - own_windows) or chosen
        self.criteria_mask = sum(1 << index for index, name in enumerate(reactor.accumulator_names) if name in chosen)

    @property
    def is_full(self) -> bool:
        """Whether another boundary would exceed the capacity."""
        return self.is_sequential and len(self.queue) >= self.capacity

    @property
    def is_criteria_met(self) -> bool:
        """Whether the flags fulfil the criteria."""
        news = self.dirty & self.criteria_mask
        return news == self.criteria_mask if self.needs_all else news != 0

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take in a boundary: over the last one of its source, or behind all others."""
        if self.is_sequential:
            self.queue.append((index, boundary, position))
        else:
            self._apply(index, boundary, position)

    def _apply(self, index: int, boundary: Any, position: int) -> None:
        self.cache[index] = boundary
        self.dirty |= 1 << index
        if position:
            self.applied_position = position

    def apply_next(self) -> bool:
        """Apply the oldest queued boundary; return whether there was one."""
        if not self.queue:
            return False
        index, boundary, position = self.queue.popleft()
        if len(self.consumed) == self.consumed.maxlen:
            self.dropped_consumed += 1
        self.consumed.append((index, boundary))
        self._apply(index, boundary, position)
        return True

    def take_snapshot(self) -> FiringInputs:
        """Take the snapshot for a firing and clear what led to it, in one step."""
        taken = FiringInputs(self.cache.copy(), self._boundaries_since_firing(), self.dirty)
        self.dirty = 0
        self.consumed.clear()
        return taken

    def replace_cache(self, values: Sequence[Any]) -> FiringInputs:
        """Replace the whole cache and take it for a firing; the queue stays."""
        self.cache[:] = values
        given = [
            (index, value)
            for index, value in enumerate(values)
            if value is not None and not self._is_empty_window(index, value)
        ]
        self.dirty = 0
        self.consumed.clear()
        return FiringInputs(self.cache.copy(), given, 0)

    def _is_empty_window(self, index: int, value: Any) -> bool:
        """Whether a window was left empty, as every window begins."""
        return self._initial_values[index] is not None and not value

    def resize(self, capacity: int) -> None:
        """Queue at most this many boundaries from now on."""
        self.capacity = capacity
        self.consumed = deque(self.consumed, maxlen=capacity)

    def migrate(self, convert: Callable[[int, Any], Any]) -> int:
        """Make every value what `adapt` returns for its source; forget those it returns None for, and count them."""
        lost = 0
        for index, value in enumerate(self.cache):
            adapted = None if value is None else convert(index, value)
            if adapted is None and value is not None:
                lost += 1
                adapted = self._initial_values[index]
                self.dirty &= ~(1 << index)
            self.cache[index] = adapted
        for entries in (self.queue, self.consumed):
            fitting = [(index, new, *at) for index, value, *at in entries if (new := convert(index, value)) is not None]
            lost += len(entries) - len(fitting)
            entries.clear()
            entries.extend(fitting)
        return lost

    def restore(self, cache: Sequence[Any], dirty: int, applied_position: int) -> None:
        """Begin where an earlier life of the reactor stood; sources it knew nothing of are as at first."""
        for index, value in enumerate(cache):
            if value is not None:
                self.cache[index] = value
            else:
                dirty &= ~(1 << index)
        self.dirty = dirty
        self.applied_position = applied_position

    def drop_oldest(self) -> None:
        """Make room by forgetting the oldest queued boundary."""
        self.queue.popleft()

    def _boundaries_since_firing(self) -> list[SourceBoundary]:
        if self.is_sequential:
            return list(self.consumed)
        return [(index, value) for index, value in enumerate(self.cache) if self.dirty >> index & 1]
