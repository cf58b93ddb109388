"""The state of one key of a reactor: its inputs, and what the accumulators hold for it."""

from collections import deque
from typing import Any

from tidemill.graphs.inputs import QueuedBoundary, SourceBoundary
from tidemill.graphs.keys import Key


class KeyState:
    """What a reactor and its accumulators hold for one key. Whatever works on a key is given this."""

    __slots__ = (
        "applied_position",
        "cache",
        "consumed",
        "dirty",
        "held",
        "is_changed",
        "is_fast",
        "key",
        "pauses",
        "pins",
        "queue",
        "reserved",
        "slot",
    )

    def __init__(self, key: Key, cache: list[Any]) -> None:
        self.key = key
        self.cache = cache
        self.dirty = 0
        self.applied_position = 0
        self.queue: deque[QueuedBoundary] | None = None
        self.consumed: deque[SourceBoundary] | None = None
        self.held: list[Any] | None = None  # by accumulators that hold something, in their order
        self.is_fast = False  # whether a boundary may be fired straight from its push, once the reactor allows it
        self.is_changed = False  # since the last snapshot
        self.pauses = 0  # retries that pause the queue
        self.pins = 0  # tasks, firings and commits that work on it, and keep it active
        self.reserved = 0  # queue space for boundaries whose commit is in progress
        self.slot: int | None = None  # of its newest snapshot in the store

    @property
    def next_slot(self) -> int:
        """The slot of its next snapshot: the newest one stays until that is written."""
        return 0 if self.slot is None else 1 - self.slot
