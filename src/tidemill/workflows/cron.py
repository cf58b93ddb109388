"""Cron expressions as wall times: the meaning of the fields, independent of any time zone.

cronsim provides the grammar and the search for the next match. It gets naive wall times only, because its treatment of
daylight saving differs from what we promise: it goes by the minute field as well as by the hour, moves no time out of a
gap if there are six fields, takes a range of hours for a time of the day, and steps over an hour or invents a slot
where the change is at midnight or half an hour long. `tidemill.workflows.schedule` maps wall times to instants.
"""

from bisect import bisect_left, bisect_right
from copy import copy
from datetime import date, datetime

from cronsim import CronSim, CronSimError

from tidemill.kernel.suggestions import did_you_mean

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_FIELD_NAMES = ("second", "minute", "hour", "day of month", "month", "day of week")
_FIELD_RANGES = ("0-59", "0-59", "0-23", "1-31, L or LW", "1-12 or JAN-DEC", "0-7 or SUN-SAT, 5L, MON#1")
_REFERENCE_DAY = datetime(1970, 1, 1)


class CronFields:
    """The six fields of a valid expression, seconds first."""

    __slots__ = ("_hours", "_minutes", "_search", "_seconds", "has_fixed_hours")

    def __init__(self, expression: str) -> None:
        parts = _split_fields(expression)
        self._search = CronSim(" ".join(parts), _REFERENCE_DAY)
        self._hours = sorted(self._search.hours)
        self._minutes = sorted(self._search.minutes)
        self._seconds = sorted(self._search.seconds)
        self.has_fixed_hours = not any(sign in parts[2] for sign in "*/-")
        """Whether the hours are listed: a time of day. Otherwise the hour is a wildcard, step or range."""

    def next_match(self, wall: datetime) -> datetime | None:
        """Return the first match after a wall time; None if there is none within 50 years."""
        search = copy(self._search)
        search.dt = wall.replace(microsecond=0)
        try:
            return next(search, None)
        except OverflowError:  # the calendar ends with the year 9999
            return None

    def count_matches(self, after: datetime, until: datetime) -> int:
        """Return how many matches lie in (after, until], negative if `until` is earlier.

        The work grows with the days in between, not with the matches.
        """
        if until < after:
            return -self.count_matches(until, after)
        days = range(after.toordinal(), until.toordinal())
        whole = sum(map(self._matches_day, map(date.fromordinal, days)))
        per_day = len(self._hours) * len(self._minutes) * len(self._seconds)
        return whole * per_day + self._matches_up_to(until) - self._matches_up_to(after)

    def _matches_day(self, day: date) -> bool:
        return day.month in self._search.months and self._search.match_day(day)

    def _matches_up_to(self, wall: datetime) -> int:
        """Return the number of matches on the day of a wall time, up to that time."""
        if not self._matches_day(wall):
            return 0
        rank = bisect_left(self._hours, wall.hour) * len(self._minutes) * len(self._seconds)
        if wall.hour in self._search.hours:
            rank += bisect_left(self._minutes, wall.minute) * len(self._seconds)
            if wall.minute in self._search.minutes:
                rank += bisect_right(self._seconds, wall.second)
        return rank


def expression_problems(expression: object) -> list[str]:
    """Return every problem of an expression, field by field."""
    if not isinstance(expression, str):
        return [f"an expression is a text such as '0 6 * * *', not {expression!r}"]
    if expression.strip().startswith("@") and expression.strip().lower() not in ALIASES:
        hint = did_you_mean(expression.strip().lower(), ALIASES)
        return [f"{expression!r} is not an alias; known are {', '.join(ALIASES)}{hint}"]
    parts = _split_fields(expression)
    if len(parts) != 6:
        return [f"{expression!r} has {len(expression.split())} fields: 5 are needed, or 6 with seconds first"]
    problems = [
        f"{part!r} is not a valid {name}: {allowed}, or * , - /"
        for position, (part, name, allowed) in enumerate(zip(parts, _FIELD_NAMES, _FIELD_RANGES, strict=True))
        if not _is_valid_field(part, position)
    ]
    if not problems and not _has_any_match(parts):
        problems.append(f"{expression!r} names a day that never comes")
    return problems


def _split_fields(expression: str) -> list[str]:
    """Return the six fields, seconds first."""
    text = expression.strip().lower()
    parts = ALIASES.get(text, text).upper().split()
    return ["0", *parts] if len(parts) == 5 else parts


def _is_valid_field(part: str, position: int) -> bool:
    # cronsim names only the first bad field, so each is tried in an expression of stars.
    # A day of the month is tried without a month, so that 31 is valid.
    fields = ["*"] * 6
    fields[position] = part
    try:
        CronSim(" ".join(fields), _REFERENCE_DAY)
    except (CronSimError, ValueError):  # ValueError: a number too long to read
        return False
    return True


def _has_any_match(parts: list[str]) -> bool:
    try:
        return next(CronSim(" ".join(parts), _REFERENCE_DAY), None) is not None
    except CronSimError:
        return False
