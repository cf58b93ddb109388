"""The wall clock of a time zone: which instants show a given time, and where the clock jumps.

An instant is an aware datetime in UTC; a wall time is a naive datetime. Most wall times belong to one instant.
When the clock is set forward it skips a gap, whose wall times no instant shows; when it is set back, the wall times of
the fold are shown twice. Everything here counts in whole seconds, as time zones do.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

SECOND = timedelta(seconds=1)

# No jump is longer than a day, and two jumps are always more than a day apart.
DAY = timedelta(days=1)


class DstJump(NamedTuple):
    """A jump of the wall clock: its instant, the wall time expected there, and the wall time actually shown."""

    instant: datetime
    expected_wall: datetime
    actual_wall: datetime


class WallClock:
    """The wall clock of one time zone."""

    __slots__ = ("_never_jumps", "zone")

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self._never_jumps = str(zone) == "UTC"

    def wall_time_at(self, instant: datetime) -> datetime:
        """Return the wall time at an instant."""
        return instant.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def latest_wall_time(self, instant: datetime) -> datetime:
        """Return the latest wall time shown up to an instant; it counts no hour of a fold twice."""
        local = instant.astimezone(self.zone)
        if local.fold and (jump := self.next_jump(instant - DAY, instant)):
            return jump.expected_wall - SECOND
        return local.replace(tzinfo=None, fold=0)

    def first_instant(self, wall: datetime) -> datetime:
        """Return the first instant at which the clock shows a wall time, or has skipped it."""
        return self.instant_showing(wall) or self.end_of_gap(wall)

    def instant_showing(self, wall: datetime, since: datetime | None = None) -> datetime | None:
        """Return the first instant, not before `since`, that shows a wall time; None if there is none."""
        for fold in (0, 1):
            instant = wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            if (since is None or instant >= since) and self.wall_time_at(instant) == wall:
                return instant
        return None

    def end_of_gap(self, wall: datetime) -> datetime:
        """Return the first instant after the gap that contains a wall time."""
        # Read with the offsets before and after the jump, the wall time lies on either side of it.
        late, early = (wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return self._find_offset_change(early, late)

    def jumps(self, after: datetime, until: datetime) -> Iterator[DstJump]:
        """Yield the jumps in (after, until], in order."""
        while jump := self.next_jump(after, until):
            yield jump
            after = jump.instant

    def next_jump(self, after: datetime, until: datetime) -> DstJump | None:
        """Return the first jump in (after, until], or None."""
        if self._never_jumps:
            return None
        offset = self._utc_offset(after)
        while after < until:
            probe = min(after + DAY, until)
            if self._utc_offset(probe) != offset:
                instant = self._find_offset_change(after, probe)
                return DstJump(instant, self.wall_time_at(instant - SECOND) + SECOND, self.wall_time_at(instant))
            after = probe
        return None

    def _find_offset_change(self, before: datetime, after: datetime) -> datetime:
        """Return the first instant in (before, after] with the offset of `after`; `before` has another one."""
        offset = self._utc_offset(after)
        low, high = 0, int((after - before).total_seconds())
        while high - low > 1:
            middle = (low + high) // 2
            if self._utc_offset(before + middle * SECOND) == offset:
                high = middle
            else:
                low = middle
        return before + high * SECOND

    def _utc_offset(self, instant: datetime) -> timedelta | None:
        return instant.astimezone(self.zone).utcoffset()
