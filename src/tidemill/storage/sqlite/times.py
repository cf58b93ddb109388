"""Times as SQLite keeps them: whole microseconds since 1970 in UTC, so that none is rounded."""

from datetime import UTC, datetime, timedelta

from tidemill.storage.queries import check_timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CACHE_LIMIT = 64

_micros_cache: dict[int, tuple[datetime, int]] = {}
"""The numbers of some times, since the rows of a change are full of the same few. It keeps them alive.

By identity, since two times may be equal and yet an hour apart: where a zone has an hour twice.
"""


def to_micros(time: datetime) -> int:
    """Return a time as a number; a naive one is no point in time."""
    if (known := _micros_cache.get(id(time))) is not None:
        return known[1]
    check_timezone(time)
    number = (time - _EPOCH) // _MICROSECOND
    if len(_micros_cache) >= _CACHE_LIMIT:
        _micros_cache.clear()
    _micros_cache[id(time)] = time, number
    return number


def to_micros_or_none(time: datetime | None) -> int | None:
    """Return a time, if there is one, as a number."""
    if time is None:
        return None
    known = _micros_cache.get(id(time))  # as in `to_micros`: it is asked for every time of every row
    return to_micros(time) if known is None else known[1]


def from_micros_or_none(number: int | None) -> datetime | None:
    """Return the time, if there is one, that a number stands for."""
    return None if number is None else from_micros(number)


def from_micros(number: int) -> datetime:
    """Return the time that a number stands for, aware, in UTC; of a damaged one, the end of the calendar."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        return (datetime.max if number > 0 else datetime.min).replace(tzinfo=UTC)
