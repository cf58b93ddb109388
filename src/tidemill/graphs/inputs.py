"""The inputs of a reactor: cache, dirty flags, queue, and whether the criteria are met.

This module alone decides what a firing sees. `latest` keeps one value per source and a dirty flag for a new one;
`sequential` queues every boundary and applies them one by one. Flags are the bits of one integer, so that "any" and
"all" are one comparison however many sources there are.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.graphs.definition import Reactor

SourceBoundary = tuple[int, Any]
"""The index of a source, and one of its boundaries."""
QueuedBoundary = tuple[int, Any, int]
"""The same with the boundary's position in the journal, 0 without one."""


class FiringInputs(msgspec.Struct, frozen=True):
    """The inputs of one firing: its snapshot, the boundaries that led to it, and the flags it cleared."""

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
        """Set the flags that decide; "all" never waits for windows that only the reactor's own graphs feed."""
        deciding = {one.name for one in reactor.when.accumulators} or set(reactor.accumulator_names)
        if self.needs_all:
            deciding = (deciding - own_windows) or deciding
        self.criteria_mask = sum(1 << index for index, name in enumerate(reactor.accumulator_names) if name in deciding)

    @property
    def is_full(self) -> bool:
        """Whether another boundary would exceed the capacity."""
        return self.is_sequential and len(self.queue) >= self.capacity

    @property
    def is_criteria_met(self) -> bool:
        """Whether the dirty flags meet the criteria."""
        return self.meets_criteria(self.dirty)

    def meets_criteria(self, flags: int) -> bool:
        """Return whether these flags meet the criteria."""
        deciding = flags & self.criteria_mask
        return deciding == self.criteria_mask if self.needs_all else deciding != 0

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Accept a boundary: it replaces the last one of its source, or joins the queue."""
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
        self.consume(index, boundary)
        self._apply(index, boundary, position)
        return True

    def consume(self, index: int, boundary: Any) -> None:
        """Keep a boundary of the sequential strategy for the next firing's context, up to the capacity."""
        if len(self.consumed) == self.consumed.maxlen:
            self.dropped_consumed += 1
        self.consumed.append((index, boundary))

    def take_snapshot(self) -> FiringInputs:
        """Return the inputs of a firing, and clear flags and consumed boundaries in the same step."""
        snapshot, flags = self.cache.copy(), self.dirty
        self.dirty = 0
        return FiringInputs(snapshot, self.take_consumed(snapshot, flags), flags)

    def take_consumed(self, snapshot: list[Any], flags: int) -> list[SourceBoundary]:
        """Return the boundaries that led to a firing with this snapshot, which cleared these flags; forget them."""
        if self.is_sequential:
            consumed = list(self.consumed)
            self.consumed.clear()
            return consumed
        if flags & flags - 1 == 0 and flags:  # one flag, as for most firings
            index = flags.bit_length() - 1
            return [(index, snapshot[index])]
        return [(index, value) for index, value in enumerate(snapshot) if flags >> index & 1]

    def replace_cache(self, values: Sequence[Any]) -> FiringInputs:
        """Replace the whole cache and return it as the inputs of a firing; the queue stays."""
        self.cache[:] = values
        consumed = [
            (index, value)
            for index, value in enumerate(values)
            if value is not None and not self._is_empty_window(index, value)
        ]
        self.dirty = 0
        self.consumed.clear()
        return FiringInputs(self.cache.copy(), consumed, 0)

    def _is_empty_window(self, index: int, value: Any) -> bool:
        """Return whether a source is a window and its value is empty, as at the start."""
        return self._initial_values[index] is not None and not value

    def resize(self, capacity: int) -> None:
        """Queue at most this many boundaries from now on."""
        self.capacity = capacity
        self.consumed = deque(self.consumed, maxlen=capacity)

    def migrate(self, convert: Callable[[int, Any], Any]) -> int:
        """Convert every value; drop those that `convert` returns None for, and return their number."""
        lost = 0
        for index, value in enumerate(self.cache):
            converted = None if value is None else convert(index, value)
            if converted is None and value is not None:
                lost += 1
                converted = self._initial_values[index]
                self.dirty &= ~(1 << index)
            self.cache[index] = converted
        for entries in (self.queue, self.consumed):
            kept = [(index, new, *at) for index, value, *at in entries if (new := convert(index, value)) is not None]
            lost += len(entries) - len(kept)
            entries.clear()
            entries.extend(kept)
        return lost

    def restore(self, cache: Sequence[Any], dirty: int, applied_position: int) -> None:
        """Continue from a checkpoint; a source that is not in it keeps its initial value."""
        for index, value in enumerate(cache):
            if value is not None:
                self.cache[index] = value
            else:
                dirty &= ~(1 << index)
        self.dirty = dirty
        self.applied_position = applied_position

    def drop_oldest(self) -> None:
        """Drop the oldest queued boundary."""
        self.queue.popleft()
