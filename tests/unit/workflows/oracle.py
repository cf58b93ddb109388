"""A slow and simple oracle for cron: walks over real minutes, and matches the fields with the wall clock.

It shares no code and no idea with the implementation, and knows only numbers, `*`, lists, ranges and steps.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


class Oracle:
    """The five fields of an expression, matched minute by minute."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.split()
        self.minutes = numbers(minute, 0, 59)
        self.hours = numbers(hour, 0, 23)
        self.days = numbers(day, 1, 31)
        self.months = numbers(month, 1, 12)
        self.weekdays = {number % 7 for number in numbers(weekday, 0, 7)}
        self.both_days = day.startswith("*") or weekday.startswith("*")
        self.is_fixed = hour.replace(",", "").isdigit()

    def matches(self, wall: datetime) -> bool:
        """Return whether a wall time matches the fields."""
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        by_day, by_weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return (by_day and by_weekday) if self.both_days else (by_day or by_weekday)

    def slots(self, walk: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
        """Yield the slots of a walk. It must begin with an hour without changes, longer than the next fold."""
        furthest = walk[0][1] - MINUTE
        for instant, wall in walk:
            if not self.is_fixed:
                if self.matches(wall):
                    yield instant
            elif wall > furthest:
                passed = int((wall - furthest) / MINUTE)
                if any(self.matches(furthest + number * MINUTE) for number in range(1, passed + 1)):
                    yield instant
                furthest = wall


def walk(zone: ZoneInfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Return every real minute from first to last, with its wall time."""
    minutes = (first + number * MINUTE for number in range(int((last - first) / MINUTE) + 1))
    return [(instant, instant.astimezone(zone).replace(tzinfo=None, fold=0)) for instant in minutes]


def changes(zone: ZoneInfo, years: range) -> Iterator[datetime]:
    """Yield the hours in which the zone's offset from UTC changes."""
    hour = timedelta(hours=1)
    instant, end = datetime(years.start, 1, 1, tzinfo=UTC), datetime(years.stop, 1, 1, tzinfo=UTC)
    offset = instant.astimezone(zone).utcoffset()
    while instant < end:
        instant += hour
        if (now := instant.astimezone(zone).utcoffset()) != offset:
            yield instant
            offset = now


def numbers(field: str, low: int, high: int) -> set[int]:
    """Read one field."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found.update(range(int(first), (int(last) if last else int(first)) + 1, int(step or 1)))
    return found
