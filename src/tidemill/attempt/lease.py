"""The lease of an attempt: how long it may run without an answer of a server."""

from collections.abc import Callable
from time import monotonic

START_PATIENCE = 90.0
"""Seconds to reach a server before the first answer says how long the lease is."""


class LeaseTimer:
    """Runs out unless it is renewed. It counts from the moment at which a request was sent: the server's is later."""

    def __init__(self, seconds: float = START_PATIENCE, now: Callable[[], float] = monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._renewed_at = now()

    def now(self) -> float:
        """Return the time by which the lease runs."""
        return self._now()

    def renew(self, sent_at: float, seconds: float | None = None) -> None:
        """Renew the lease by the answer to a request."""
        self.seconds = self.seconds if seconds is None else seconds
        self._renewed_at = max(self._renewed_at, sent_at)

    @property
    def left(self) -> float:
        """The seconds until it runs out; 0 if it has."""
        return max(0.0, self._renewed_at + self.seconds - self._now())
