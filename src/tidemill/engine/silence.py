"""Silence of other nodes: for how long a lease or an ownership was not renewed.

The end of a lease is a wall time. Once the wall clock was stepped forwards, the lease of a node that works has ended;
once it was stepped back, the lease of a frozen node does not end for as long. So nodes count for themselves.
"""

from collections.abc import Hashable, Iterable

from tidemill.kernel.clock import Clock


class SilenceWatch:
    """Measures for how long renewals have not changed, on the monotonic clock of the node that watches."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_seen: dict[Hashable, tuple[Hashable, float]] = {}

    def lasts(self, name: Hashable, renewal: Hashable, seconds: float) -> bool:
        """Return whether this has been the last renewal of a name for this many seconds."""
        now = self._clock.monotonic()
        last, seen_at = self._last_seen.get(name, (None, now))
        if renewal != last:
            seen_at = now
            self._last_seen[name] = renewal, now
        return now - seen_at >= seconds

    def forget(self, names: Iterable[Hashable]) -> None:
        """Remember the renewals of some names no longer: they are gone."""
        for name in names:
            self._last_seen.pop(name, None)
