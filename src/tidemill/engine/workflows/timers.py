"""When which run has to be planned again: retries and deferrals that come to their end."""

from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import heappop, heappush

from tidemill.workflows.records import TaskRow


class Timers:
    """For each run, the first time at which something in it is to be woken.

    Whoever deals with a run whose time has come has it remembered again, for what is still to come.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._first: dict[str, datetime] = {}
        self._times: list[tuple[datetime, str]] = []

    def remember(self, run: str, rows: Iterable[TaskRow]) -> None:
        """Take note of when task runs of a run are to be woken."""
        times = [row.wake_at for row in rows if row.wake_at is not None and not row.state.is_terminal]
        first = min(times, default=None)
        if first is not None and (run not in self._first or first < self._first[run]):
            self._first[run] = first
            heappush(self._times, (first, run))
            self._ring()

    def forget(self, run: str) -> None:
        """Wake nothing more of a run."""
        self._first.pop(run, None)

    @property
    def next(self) -> datetime | None:
        """The first of these times."""
        while self._times and self._first.get(self._times[0][1]) != self._times[0][0]:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def due(self, now: datetime) -> list[str]:
        """Return the runs whose time has come, once."""
        found = []
        while (first := self.next) is not None and first <= now:
            run = heappop(self._times)[1]
            del self._first[run]
            found.append(run)
        return found
