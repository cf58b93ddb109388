"""When which run has to be planned again: retries and deferrals that come to their end."""

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush

from tidemill.workflows.records import TaskRow


class Timers:
    """Runs by the time at which something in them is to be woken.

    A time that no longer matters costs one look at its run: the planner decides what is to be woken.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._times: list[tuple[datetime, str]] = []

    def remember(self, run: str, rows: Iterable[TaskRow]) -> None:
        """Take note of when task runs of a run are to be woken."""
        for row in rows:
            if row.wake_at is not None and not row.state.is_terminal:
                heappush(self._times, (row.wake_at, run))
                self._ring()

    @property
    def next(self) -> datetime | None:
        """The first of these times."""
        return self._times[0][0] if self._times else None

    def due(self, now: datetime) -> list[str]:
        """Return the runs whose time has come, once."""
        found = set()
        while self._times and self._times[0][0] <= now:
            found.add(heappop(self._times)[1])
        return sorted(found)
