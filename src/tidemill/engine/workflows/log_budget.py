"""Bounds the logs that remote attempts send to a server: a process with the token of one could fill the store.

`tidemill attempt` bounds what it keeps of the output itself, so few tasks reach the limit: those that print a flood of
short lines.
"""

from collections import OrderedDict

import msgspec

from tidemill.engine.workflows.executors.attempt_output import HEAD_LIMIT, TAIL_LIMIT
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.kernel.clock import Clock
from tidemill.workflows.records import AttemptKey

LOG_LIMIT = 4 * (HEAD_LIMIT + TAIL_LIMIT)
"""Bytes that a server takes from an attempt: records of short lines have several times the bytes of their texts."""

ATTEMPT_LIMIT = 10_000
"""The number of attempts that are counted; the one that was silent for longest is forgotten first."""


class LogBudget:
    """The bytes that attempts have sent to this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: OrderedDict[AttemptKey, int] = OrderedDict()

    def take(self, key: AttemptKey, payload: bytes) -> bytes | None:
        """Return what of a batch is written: all of it, a note in place of the first one too many, or nothing."""
        before = self._taken.pop(key, 0)
        self._taken[key] = before + len(payload)
        if len(self._taken) > ATTEMPT_LIMIT:
            self._taken.popitem(last=False)
        if before + len(payload) <= LOG_LIMIT:
            return payload
        if before > LOG_LIMIT:
            return None
        note = f"[... the log has more than {LOG_LIMIT} bytes: the rest is left out ...]"
        return msgspec.msgpack.encode([LogRecord(at=self._clock.now(), message=note, level="warning")])

    def forget(self, key: AttemptKey) -> None:
        """Count an attempt no more: it has ended."""
        self._taken.pop(key, None)
