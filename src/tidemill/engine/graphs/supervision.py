"""What can be supervised, what is remembered of it, and what may be asked of the supervisor."""

from collections import deque
from typing import Protocol

from tidemill.graphs.state import Recovery
from tidemill.storage.ports import PartKind

HOUR = 3600.0


class Supervision:
    """What the supervisor remembers of one component."""

    def __init__(self) -> None:
        self.failures = 0
        self.restarts = 0
        self.since: float | None = None
        self.recent: deque[float] = deque()
        self.is_ended = False
        self.episode = 0  # a restart planned in an earlier episode is void

    def started(self, now: float) -> None:
        """Note that the component came up."""
        self.since = now
        self.episode += 1

    def ended(self) -> None:
        """Note that the component is gone for good."""
        self.is_ended = True
        self.episode += 1

    def failed(self, now: float, reset_after: float) -> int:
        """Note a crash; return how many there were in a row."""
        if self.since is not None and now - self.since >= reset_after:
            self.failures = 0
        self.failures += 1
        self.episode += 1
        return self.failures

    def restarted(self, now: float) -> None:
        """Note a restart by the supervisor."""
        self.restarts += 1
        self.recent.append(now)

    def restarts_within_hour(self, now: float) -> int:
        """Return how many restarts the last hour saw."""
        while self.recent and self.recent[0] <= now - HOUR:
            self.recent.popleft()
        return len(self.recent)

    def forgive(self) -> None:
        """Begin anew: an operator said so."""
        self.failures = 0
        self.recent.clear()
        self.restarts += 1


class Component(Protocol):
    """What can be supervised."""

    component: PartKind
    name: str
    tenant: str
    supervision: Supervision

    def revive(self) -> None:
        """Come up again."""

    def give_up(self) -> None:
        """Stay down until an operator steps in."""


class Overseer(Protocol):
    """The supervisor, as those it looks after see it."""

    recoveries: "deque[tuple[str, Recovery]]"

    def crashed(self, component: Component, error: BaseException) -> None:
        """Plan the restart of a component that crashed just now, or give it up."""

    def restart(self, component: Component) -> None:
        """Restart a component now, because an operator asked."""

    def overran(self, component: Component, reason: str) -> None:
        """Note a component that did not end in time and was cancelled."""

    def restored(self, component: Component, reason: str) -> None:
        """Note a component of which not everything could be read back as it was written."""

    def undelivered(self, component: Component, reason: str) -> None:
        """Note a firing of a component that some workflow will never be told of."""
