"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.durations import MAX_DURATION_SECONDS, format_duration, parse_duration, parse_positive_duration

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("5s", 5),
        ("10m", 600),
        ("3h", 10800),
        ("90d", 90 * 86400),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (" 5s ", 5),
        ("0s", 0),
        (3, 3),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_are_seconds(text: Any, seconds: float) -> None:
    """cloacina 8: ms, s, m, h and d, combined, or a number of seconds, or a timedelta."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["", "5", "s", "5x", "-5s", "5 s s", "5s!", "s5", "1e3s", ".5s", None, True, False, [], b"5s", -1, float("nan")],
)
def test_anything_else_is_rejected_with_an_example(value: Any) -> None:
    """cloacina 8: anything else is an error, which says what a duration looks like."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(value)
    with pytest.raises(ValueError, match="duration"):
        parse_positive_duration(value)


@pytest.mark.parametrize("value", ["0s", 0, timedelta(0), timedelta(seconds=-1), float("inf")])
def test_an_interval_is_longer_than_zero(value: Any) -> None:
    """A repeated action needs a pause."""
    with pytest.raises(ValueError, match="duration"):
        parse_positive_duration(value)


@pytest.mark.parametrize(
    "value", ["36500.1d", "10000000d", "9" * 400 + "d", 10**12, 10**400, float("inf"), 1e300, timedelta.max]
)
def test_a_duration_ends_within_a_hundred_years(value: Any) -> None:
    """W-5: a duration that is added to a moment stays in the range of datetime."""
    for read in (parse_duration, parse_positive_duration):
        with pytest.raises(ValueError, match="it is finite, and at most a hundred years, '36500d'"):
            read(value)
    assert parse_duration("36500d") == MAX_DURATION_SECONDS == timedelta(days=36_500).total_seconds()


@given(st.integers() | st.floats() | st.integers(200, 400).map(lambda digits: -(10**digits)))
def test_no_number_breaks_the_parser(number: float) -> None:
    """A number is a duration with that value, or a ValueError."""
    try:
        assert parse_duration(number) == number <= MAX_DURATION_SECONDS
    except ValueError as error:
        assert "is not a duration" in str(error)  # noqa: PT017


parts = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(UNITS))), min_size=1, max_size=4)


@given(parts)
def test_parts_add_up(drawn: list[tuple[int, str]]) -> None:
    """Any sequence of parts is the sum of them."""
    text = "".join(f"{number}{unit}" for number, unit in drawn)
    assert parse_duration(text) == pytest.approx(sum(number * UNITS[unit] for number, unit in drawn))


@given(st.text(max_size=8))
def test_no_text_breaks_the_parser(text: str) -> None:
    """A text is a duration or a ValueError, never anything else."""
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert "is not a duration" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.2, "0.2s"), (30, "30s"), (60, "1m"), (100, "1m40s"), (5400, "1h30m"), (90061.5, "1d1h1m1.5s")],
)
def test_a_duration_is_formatted_as_people_write_it(seconds: float, text: str) -> None:
    """W-17: messages show it as the author wrote it."""
    assert format_duration(seconds) == text


@given(st.floats(0, MAX_DURATION_SECONDS))
def test_a_formatted_duration_can_be_parsed(seconds: float) -> None:
    """To the microsecond, however small or large."""
    assert parse_duration(format_duration(min(seconds, MAX_DURATION_SECONDS))) == pytest.approx(seconds, abs=1e-6)
