"""Sequence numbers: what is repeated is dropped, what is missing is reported."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.sources.sequence import SequenceTracker, number_at


def track(last: int | None, messages: list[Any], *, replays: bool = True) -> tuple[list[Any], list[str]]:
    gaps: list[str] = []
    tracker = SequenceTracker(number_at("seq"), last, replays=replays, report_gap=gaps.append)
    return [message["seq"] for message in messages if tracker.admits(message)], gaps


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"seq": number} for number in numbers]


def test_the_first_number_is_taken_as_it_is() -> None:
    assert track(None, numbered(812, 813)) == ([812, 813], [])


def test_what_was_delivered_before_is_dropped() -> None:
    assert track(3, numbered(2, 3, 4, 4, 5)) == ([4, 5], [])


def test_what_is_missing_is_reported() -> None:
    expected = "the sequence continues at 9 after 4: 4 missing"
    assert track(3, numbered(4, 9, 10)) == ([4, 9, 10], [expected])


def test_a_feed_that_does_not_replay_and_begins_lower_counts_anew() -> None:
    expected = "the sequence begins again at 1 after 500: events may be missing"
    assert track(500, numbered(1, 2, 2, 3), replays=False) == ([1, 2, 3], [expected])
    assert track(500, numbered(500, 501), replays=False) == ([501], [])


def test_a_feed_that_replays_and_begins_with_the_first_number_may_count_anew() -> None:
    """Its messages are dropped as repetitions, so that must be visible: the feed may have lost its numbers."""
    admitted, gaps = track(500, numbered(1, 2, 3))
    assert admitted == []
    assert gaps == [
        "the sequence begins again at 1, and numbers up to 500 are dropped as repetitions: "
        "if the feed counts from the start, rename the accumulator"
    ]


@pytest.mark.parametrize("replays", [False, True])
def test_a_feed_that_begins_again_within_a_connection_is_followed(replays: bool) -> None:
    """Its server has lost its counter: to drop what follows would be silence."""
    admitted, gaps = track(None, numbered(5, 6, 7, 1, 2, 3, 3), replays=replays)
    assert admitted == [5, 6, 7, 1, 2, 3]
    assert gaps == ["the sequence begins again at 1 after 7: events may be missing"]


def test_a_feed_that_replays_all_from_zero_does_not_begin_again() -> None:
    assert track(3, numbered(0, 1, 2, 3, 4))[0] == [4]


@pytest.mark.parametrize("message", [{}, {"seq": None}, {"seq": "4"}, {"seq": True}, [], None])
def test_a_message_without_a_number_is_new(message: Any) -> None:
    tracker = SequenceTracker(number_at("seq"), 7, replays=True, report_gap=pytest.fail)
    assert tracker.admits(message)
    assert tracker.last == 7


def test_a_path_leads_into_nested_objects() -> None:
    assert number_at("data.seq")({"data": {"seq": 5}}) == 5
    assert number_at("data.seq")({"data": 5}) is None


def test_a_function_that_raises_finds_no_number() -> None:
    tracker = SequenceTracker(lambda message: message["a"]["b"], None, replays=True, report_gap=pytest.fail)
    assert tracker.admits({})


@given(st.integers(2, 5), st.lists(st.integers(2, 30)))
def test_numbers_only_grow_and_every_jump_is_reported(last: int, numbers: list[int]) -> None:
    admitted, gaps = track(last, numbered(*numbers))
    assert admitted == sorted(set(admitted))
    steps = zip([last, *admitted], admitted, strict=False)
    assert len(gaps) == sum(after > before + 1 for before, after in steps)
