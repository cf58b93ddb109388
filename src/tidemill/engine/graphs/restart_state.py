"""What can be supervised, what is remembered of it, and what may be asked of the supervisor."""

from collections import deque
from typing import Protocol

from tidemill.graphs.state import Recovery
from tidemill.storage.graph_ports import PartKind

HOUR_SECONDS = 3600.0


class RestartState:
    """What the supervisor remembers of one component."""

    def __init__(self) -> None:
        self.failures = 0
        self.restarts = 0
        self.started_at: float | None = None
        self.recent_restarts: deque[float] = deque()
        self.is_ended = False
        self.episode = 0  # a restart planned in an earlier episode is void

    def record_start(self, now: float) -> None:
        """Note that the component came up."""
        self.started_at = now
        self.episode += 1

    def record_end(self) -> None:
        """Note that the component is gone for good."""
        self.is_ended = True
        self.episode += 1

    def record_failure(self, now: float, reset_after: float) -> int:
        """Note a crash; return how many there were in a row."""
        if self.started_at is not None and now - self.started_at >= reset_after:
            self.failures = 0
        self.failures += 1
        self.episode += 1
        return self.failures

    def record_restart(self, now: float) -> None:
        """Note a restart by the supervisor."""
        self.restarts += 1
        self.recent_restarts.append(now)

    def restarts_within_hour(self, now: float) -> int:
        """Return how many restarts the last hour saw."""
        while self.recent_restarts and self.recent_restarts[0] <= now - HOUR_SECONDS:
            self.recent_restarts.popleft()
        return len(self.recent_restarts)

    def reset(self) -> None:
        """Begin anew: an operator said so."""
        self.failures = 0
        self.recent_restarts.clear()
        self.restarts += 1


class Supervised(Protocol):
    """What can be supervised."""

    component: PartKind
    name: str
    tenant: str
    restart_state: RestartState

    def restart(self) -> None:
        """Come up again."""

    def mark_failed(self) -> None:
        """Stay down until an operator steps in."""


class Overseer(Protocol):
    """The supervisor, as those it looks after see it."""

    recoveries: "deque[tuple[str, Recovery]]"

    def on_crash(self, component: Supervised, error: BaseException) -> None:
        """Plan the restart of a component that crashed just now, or give it up."""

    def restart(self, component: Supervised) -> None:
        """Restart a component now, because an operator asked."""

    def on_stop_timeout(self, component: Supervised, reason: str) -> None:
        """Note a component that did not end in time and was cancelled."""

    def on_partial_restore(self, component: Supervised, reason: str) -> None:
        """Note a component of which not everything could be read back as it was written."""

    def on_undelivered(self, component: Supervised, reason: str) -> None:
        """Note a firing of a component that some workflow will never be told of."""
