"""The newest events of one node, numbered, in bounded memory: health, dead letters, packages, leadership.

Changes of runs are not among them: those are in the store, where every node finds them.
"""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from tidemill.kernel.clock import Clock

NODE_EVENTS_LIMIT = 8192
"""The number of events that are kept for readers that have fallen behind, or come back."""


class NodeEvent(NamedTuple):
    """Something that happened on this node. A tenant of None means that it concerns the whole node."""

    number: int
    at: datetime
    type: str
    tenant: str | None
    fields: dict[str, Any]


class NodeEvents:
    """Keeps the newest events from the moment at which someone first asks for them."""

    def __init__(self, clock: Clock, limit: int = NODE_EVENTS_LIMIT) -> None:
        self._clock = clock
        self._newest: deque[NodeEvent] = deque(maxlen=limit)
        self._listeners: list[Callable[[], None]] = []
        self.number = 0
        """The number of the newest event."""
        self.is_recorded = False
        """Whether events are kept: not before the first reader comes."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener after each event."""
        self._listeners.append(listener)

    def record(self) -> None:
        """Keep events from now on."""
        self.is_recorded = True

    def publish(self, type: str, tenant: str | None, **fields: Any) -> None:
        """Record an event, if anyone has ever asked for events."""
        if self.is_recorded:
            self.number += 1
            self._newest.append(NodeEvent(self.number, self._clock.now(), type, tenant, fields))
            for listener in self._listeners:
                listener()

    def has_all_after(self, number: int) -> bool:
        """Return whether all events with higher numbers are still kept."""
        return self.number - len(self._newest) <= number <= self.number

    def after(self, number: int) -> list[NodeEvent]:
        """Return the kept events with higher numbers, in order."""
        oldest = self.number - len(self._newest)
        return list(islice(self._newest, max(number - oldest, 0), None))
