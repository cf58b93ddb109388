"""Schedules: when the clock starts a workflow.

A schedule is a rule that yields slots, instants at which a run is due. `Cron` follows the wall clock of a time zone,
`Every` keeps an interval. Neither reads the current time: the caller names a span of time, and the answer for that span
never changes. `due_slots` decides which slots get a run.

When the wall clock jumps, a Cron whose hours are listed, `30 2 * * *` or `0 6,18 * * *`, means times of the day. Each
occurs once a day: in a fold at its first showing, in a gap at the first instant after it, and several times that fall
into one gap become one slot. A Cron whose hour is a wildcard, a step or a range means a rhythm: every instant whose
wall time matches is a slot, so that `*/15 * * * *` occurs every 15 real minutes through the gap and through both passes
of the fold.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from tidemill.kernel.durations import Duration, parse_positive_duration
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cron import CronFields, expression_problems
from tidemill.workflows.wallclock import DAY, SECOND, WallClock

Catchup = Literal["none", "latest", "all"]
SlotParams = Callable[[datetime], dict[str, Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCH_HORIZON = 50 * 366 * DAY
_EARLIEST_BOUND = datetime(1900, 1, 1, tzinfo=UTC)
"""The earliest `start` and `end`: early enough for any use, and late enough for arithmetic before it."""


class CatchupPolicy(StrEnum):
    """Decides which of the slots that fell due get a run. Authors write the value, as in catchup="latest"."""

    NONE = "none"
    """Every slot that fell due while the scheduler was watching."""
    LATEST = "latest"
    """The newest slot that fell due."""
    ALL = "all"
    """Every slot that fell due."""

    def first_moment(self, last: datetime, alive_since: datetime) -> datetime:
        """Return the moment after which slots may get a run; up to `last` they are settled."""
        return max(last, alive_since) if self is CatchupPolicy.NONE else last

    def max_slots(self, limit: int) -> int:
        """Return how many slots get a run at most, under the schedule's limit."""
        return 1 if self is CatchupPolicy.LATEST else limit


class Schedule(ABC):
    """A rule that yields slots. Moments may be in any zone; slots are aware datetimes in UTC.

    `start` and `end` are inclusive: a slot may fall on either, none lies outside.

    `key` identifies a schedule within its workflow: a slot gets at most one run per (tenant, workflow, key). It is a
    name and is not derived from the rule, because the rule may change: with the expression in it, a daily workflow
    changed to weekdays, or back, would run again for slots that have their run. Two schedules of one workflow need two
    keys, or they would take each other's slots where they coincide. `str(schedule)` is the rule; the scheduler compares
    it to detect a change.
    """

    __slots__ = ("catchup", "end", "key", "limit", "location", "params", "start")

    def __init__(
        self,
        *,
        catchup: Catchup,
        limit: int,
        start: datetime | None,
        end: datetime | None,
        params: SlotParams | None,
        key: str,
        location: Location | None,
    ) -> None:
        self.catchup = catchup
        self.limit = limit
        self.start = start
        self.end = end
        self.params = params
        self.key = key
        self.location = location
        if problems := [Problem(message=message, location=location) for message in self._problems()]:
            raise DefinitionError(problems, repr(self))
        # In UTC, because Python compares and subtracts two datetimes of one zone by the wall clock.
        self.start = start if start is None else start.astimezone(UTC)
        self.end = end if end is None else end.astimezone(UTC)

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first slot after a moment; None after `end`, or if there is none within 50 years."""
        slot = self._next_slot(self._clamp_to_start(moment))
        return None if slot is None or (self.end is not None and slot > self.end) else slot

    def slots(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the slots in (after, until], in order."""
        slot = self.next_after(after)
        while slot is not None and slot <= until:
            yield slot
            slot = self.next_after(slot)

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many slots lie in (after, until], without listing them."""
        after = self._clamp_to_start(after)
        until = until.astimezone(UTC) if self.end is None else min(until.astimezone(UTC), self.end)
        return self._count_slots(after, until) if after < until else 0

    def params_for(self, slot: datetime) -> dict[str, Any]:
        """Return the params of a slot's run, made by the author's function from the slot in the schedule's zone."""
        return {} if self.params is None else dict(self.params(self.in_zone(slot)))

    @abstractmethod
    def in_zone(self, slot: datetime) -> datetime:
        """Return a slot in the schedule's time zone."""

    @abstractmethod
    def _next_slot(self, moment: datetime) -> datetime | None:
        """Return the first slot after a moment in UTC, ignoring `end`."""

    @abstractmethod
    def _count_slots(self, after: datetime, until: datetime) -> int:
        """Return how many slots lie in (after, until], both in UTC."""

    def _clamp_to_start(self, moment: datetime) -> datetime:
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone: slots are counted between aware datetimes")
        moment = moment.astimezone(UTC)
        return moment if self.start is None else max(moment, self.start - timedelta.resolution)

    def _problems(self) -> list[str]:
        problems = []
        policies = [policy.value for policy in CatchupPolicy]
        if self.catchup not in policies:
            hint = did_you_mean(str(self.catchup), policies)
            problems.append(f"catchup is one of {', '.join(map(repr, policies))}, not {self.catchup!r}{hint}")
        if type(self.limit) is not int or not 1 <= self.limit <= MAX_INTEGER:
            problems.append(f"limit is a number of slots from 1 to {MAX_INTEGER}, not {self.limit!r}")
        if self.params is not None and not callable(self.params):
            problems.append(f"params is a function that makes a dict of a slot, not {self.params!r}")
        if not is_word(self.key):
            problems.append(f"key is a name, such as 'morning', {WORD_RULE}, not {self.key!r}")
        return problems + _bounds_problems(self.start, self.end)


class Cron(Schedule):
    """Slots by the wall clock: `Cron("0 6 * * *", timezone="Europe/Berlin")`.

    Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or an alias like `@daily`.
    """

    __slots__ = ("_clock", "_fields", "expression", "timezone")

    def __init__(
        self,
        expression: str,
        *,
        timezone: str = "UTC",
        catchup: Catchup = "latest",
        limit: int = 100,
        start: datetime | None = None,
        end: datetime | None = None,
        params: SlotParams | None = None,
        key: str = "default",
        location: Location | None = None,
    ) -> None:
        self.expression = expression
        self.timezone = timezone
        super().__init__(catchup=catchup, limit=limit, start=start, end=end, params=params, key=key, location=location)
        self._fields = CronFields(expression)
        self._clock = WallClock(ZoneInfo(timezone))

    def in_zone(self, slot: datetime) -> datetime:
        return slot.astimezone(self._clock.zone)

    def _next_slot(self, moment: datetime) -> datetime | None:
        try:
            return self._next_fixed_slot(moment) if self._fields.has_fixed_hours else self._next_wildcard_slot(moment)
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def _next_fixed_slot(self, moment: datetime) -> datetime | None:
        wall = self._fields.next_match(self._clock.latest_wall_time(moment))
        return None if wall is None else self._clock.first_instant(wall)

    def _next_wildcard_slot(self, moment: datetime) -> datetime | None:
        since = moment.replace(microsecond=0) + SECOND
        while since - moment < _SEARCH_HORIZON:
            wall = self._fields.next_match(self._clock.wall_time_at(since) - SECOND)
            if wall is None:
                break
            slot = self._clock.instant_showing(wall, since)
            # A fold shows matches of the last day again, before the next one: so the search starts again at a jump.
            jump = self._clock.next_jump(since, since + DAY)
            if slot is not None and (jump is None or slot < jump.instant):
                return slot
            since = jump.instant if jump is not None else self._clock.end_of_gap(wall)
        return None

    def _count_slots(self, after: datetime, until: datetime) -> int:
        after, until = after.replace(microsecond=0), until.replace(microsecond=0)
        count, clock = self._fields.count_matches, self._clock
        jumps = clock.jumps(after, until)
        if self._fields.has_fixed_hours:
            gaps = (
                count(jump.expected_wall - SECOND, jump.actual_wall)
                for jump in jumps
                if jump.expected_wall < jump.actual_wall
            )
            merged = sum(max(0, times - 1) for times in gaps)
            return count(clock.latest_wall_time(after), clock.latest_wall_time(until)) - merged
        # A gap removes its matches, a fold (where the count is negative) adds them once more.
        skipped = sum(count(jump.expected_wall - SECOND, jump.actual_wall - SECOND) for jump in jumps)
        return count(clock.wall_time_at(after), clock.wall_time_at(until)) - skipped

    def _problems(self) -> list[str]:
        return expression_problems(self.expression) + _timezone_problems(self.timezone) + super()._problems()

    def __str__(self) -> str:
        return f"{self.expression} ({self.timezone})"

    def __repr__(self) -> str:
        return f"Cron({self.expression!r})"


class Every(Schedule):
    """Slots at a fixed interval: `Every("15m")`.

    They are counted from `start`, or else from 1970-01-01 in UTC, so that no restart shifts them.
    """

    __slots__ = ("_period", "interval")

    def __init__(
        self,
        interval: Duration,
        *,
        catchup: Catchup = "latest",
        limit: int = 100,
        start: datetime | None = None,
        end: datetime | None = None,
        params: SlotParams | None = None,
        key: str = "default",
        location: Location | None = None,
    ) -> None:
        self.interval = interval
        super().__init__(catchup=catchup, limit=limit, start=start, end=end, params=params, key=key, location=location)
        self._period = _parse_interval(interval)

    def in_zone(self, slot: datetime) -> datetime:
        return slot.astimezone(UTC)

    def _next_slot(self, moment: datetime) -> datetime | None:
        try:
            return (self.start or _EPOCH) + (self._slot_number(moment) + 1) * self._period
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def _count_slots(self, after: datetime, until: datetime) -> int:
        return self._slot_number(until) - self._slot_number(after)

    def _slot_number(self, moment: datetime) -> int:
        return (moment - (self.start or _EPOCH)) // self._period

    def _problems(self) -> list[str]:
        try:
            _parse_interval(self.interval)
        except ValueError as error:
            return [str(error), *super()._problems()]
        return super()._problems()

    def __str__(self) -> str:
        return f"every {self._period}" + (f" from {self.start}" if self.start else "")

    def __repr__(self) -> str:
        return f"Every({self.interval!r})"


def _parse_interval(interval: Duration) -> timedelta:
    period = timedelta(seconds=parse_positive_duration(interval))
    if period < timedelta.resolution:
        raise ValueError(f"{interval!r} is shorter than a microsecond")
    return period


def _timezone_problems(name: object) -> list[str]:
    try:
        ZoneInfo(name)  # type: ignore[arg-type]
    except (KeyError, ValueError, TypeError, AttributeError, OSError):  # unknown, malformed, no text, a folder
        hint = did_you_mean(str(name), available_timezones())
        return [f"{name!r} is not a time zone: it has a name such as 'Europe/Berlin'{hint}"]
    return []


def _bounds_problems(start: datetime | None, end: datetime | None) -> list[str]:
    problems = [
        message
        for name, bound in (("start", start), ("end", end))
        if bound is not None and (message := _bound_problem(name, bound))
    ]
    if not problems and start is not None and end is not None and end.astimezone(UTC) < start.astimezone(UTC):
        problems.append(f"end {end} is before start {start}")
    return problems


def _bound_problem(name: str, bound: Any) -> str | None:
    if not isinstance(bound, datetime):
        return f"{name} is an aware datetime, not {bound!r}"
    if bound.utcoffset() is None:
        return f"{name} {bound} has no time zone: write datetime(..., tzinfo=UTC)"
    try:
        is_outside = bound.astimezone(UTC) < _EARLIEST_BOUND
    except OverflowError:  # in UTC it lies before the year 1, or after 9999
        is_outside = True
    return f"{name} {bound} is not in the years 1900 to 9999, in UTC" if is_outside else None


class DueSlots(msgspec.Struct, frozen=True):
    """The slots that get a run now, oldest first, and the number of due slots that get none."""

    slots: tuple[datetime, ...]
    dropped: int


def due_slots(schedule: Schedule, last: datetime | None, now: datetime, *, alive_since: datetime) -> DueSlots:
    """Return which slots of a schedule get a run at `now`.

    `last` is how far the schedule has been processed, by any scheduler: slots up to there are settled. None means
    never; then slots since the schedule's `start` are due, and without a start only those since `alive_since`: a
    schedule that did not exist cannot have missed a slot. When the rule of a schedule changes, `last` moves up to the
    moment of the change, for the same reason. `alive_since` is when this scheduler began to watch without interruption.

    * catchup "none": every slot that fell due while the scheduler watched; slots before `alive_since` are dropped.
    * catchup "latest": of all slots that fell due, the newest.
    * catchup "all": every slot that fell due.

    At most `schedule.limit` slots are returned, the newest. The work grows with the days since `last`, not with the
    slots. After a clock was put back, no slot is due until it has passed `last` again.
    """
    if last is None:
        last = alive_since if schedule.start is None else schedule.start - timedelta.resolution  # it may be a slot
    policy = CatchupPolicy(schedule.catchup)
    total = schedule.count(last, now)
    slots = newest_slots(schedule, policy.first_moment(last, alive_since), now, policy.max_slots(schedule.limit))
    return DueSlots(slots, total - len(slots))


def newest_slots(schedule: Schedule, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """Return the last slots in (after, until], at most `limit`, oldest first, without listing the earlier ones."""
    # In UTC, because Python compares and subtracts two datetimes of one zone by the wall clock.
    low, high = after.astimezone(UTC), until.astimezone(UTC)
    while schedule.count(low, until) > 2 * limit:
        middle = low + (high - low) / 2
        if schedule.count(middle, until) >= limit:
            low = middle
        else:
            high = middle
    return tuple(schedule.slots(low, until))[-limit:]
