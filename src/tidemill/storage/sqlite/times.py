"""Times as SQLite keeps them: whole microseconds since 1970 in UTC, so that none is rounded."""

from datetime import UTC, datetime, timedelta

from tidemill.storage.times import check_zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(time: datetime) -> int:
    """Return a time as a number; a naive one is no point in time."""
    check_zone(time)
    return (time - _EPOCH) // _MICROSECOND


def from_micros(number: int) -> datetime:
    """Return the time that a number stands for, aware, in UTC; of a damaged one, the end of the calendar."""
    try:
        return _EPOCH + number * _MICROSECOND
    except OverflowError:
        return (datetime.max if number > 0 else datetime.min).replace(tzinfo=UTC)
