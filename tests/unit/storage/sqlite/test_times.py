"""Times in SQLite."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.storage.sqlite.run_rows import from_micros, to_micros

zones = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
within_range = {"min_value": datetime(2, 1, 1), "max_value": datetime(9998, 1, 1)}


@given(st.datetimes(**within_range, timezones=zones))
def test_a_time_comes_back_as_the_same_time_in_utc(time: datetime) -> None:
    """To the microsecond, in any century and from any zone."""
    found = from_micros(to_micros(time))
    assert (found, found.tzinfo) == (time, UTC)


def test_numbers_sort_as_times_do() -> None:
    first = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    assert [to_micros(first + timedelta(microseconds=step)) for step in range(3)] == [-1, 0, 1]


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        to_micros(datetime(2026, 1, 1))
