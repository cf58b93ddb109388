"""Times as SQLite keeps them: whole microseconds since 1970 in UTC, so that none is rounded."""

from datetime import UTC, datetime, timedelta

from tidemill.storage.times import check_zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


_last: tuple[datetime, int] = _EPOCH, 0
"""The last time that was asked for, and its number: the rows of one change are full of the same one."""


def to_micros(time: datetime) -> int:
    """Return a time as a number; a naive one is no point in time."""
    global _last  # one tuple, so that no thread sees half of it
    known, number = _last
    if time is not known:
        check_zone(time)
        number = (time - _EPOCH) // _MICROSECOND
        _last = time, number
    return number


def micros(time: datetime | None) -> int | None:
    """Return a time, if there is one, as a number."""
    if time is None:
        return None
    known, number = _last
    return number if time is known else to_micros(time)


def moment(number: int | None) -> datetime | None:
    """Return the time, if there is one, that a number stands for."""
    return None if number is None else from_micros(number)


def from_micros(number: int) -> datetime:
    """Return the time that a number stands for, aware, in UTC; of a damaged one, the end of the calendar."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        return (datetime.max if number > 0 else datetime.min).replace(tzinfo=UTC)
