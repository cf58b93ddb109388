"""What executors share about the end of attempts: for how long they insist, and which they have had."""

from collections import deque

from tidemill.engine.workflows.executors.interface import Order
from tidemill.workflows.endings import Failed
from tidemill.workflows.records import AttemptKey, TaskError

GRACE = 5.0
"""Seconds that code has to end after it was asked to."""


def ran_out_of_time(order: Order) -> Failed:
    """Return the ending of an attempt that took too long."""
    error = TaskError("TimeoutError", f"it ran longer than {order.timeout:g} s")
    return Failed(error=error, outcome="timeout")


class Past:
    """The newest attempts that have ended here: they do not begin again if somebody asks twice."""

    def __init__(self, size: int = 4096) -> None:
        self._order: deque[AttemptKey] = deque(maxlen=size)
        self._keys: set[AttemptKey] = set()

    def add(self, key: AttemptKey) -> None:
        """Remember an attempt."""
        if len(self._order) == self._order.maxlen:
            self._keys.discard(self._order[0])
        self._order.append(key)
        self._keys.add(key)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._keys
