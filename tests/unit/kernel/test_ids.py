"""Ids: unique, sortable by creation time, and safe everywhere."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernel.ids import new_instance_id, new_sortable_id

moments = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(moments, st.integers(1, 10**9))
def test_ids_sort_by_the_millisecond_of_their_creation(at: datetime, later: int) -> None:
    """A later id is greater, for every random part."""
    assert new_sortable_id(at) < new_sortable_id(at + timedelta(milliseconds=later))


def test_ids_are_unique_and_of_one_length() -> None:
    """Many ids of one moment are all different."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ids = {new_sortable_id(at) for _ in range(2000)}
    assert len(ids) == 2000
    assert {len(one) for one in ids} == {24}
    assert len({new_instance_id() for _ in range(2000)}) == 2000


def test_ids_of_one_moment_sort_in_the_order_of_creation() -> None:
    """Dead letters of one instant are listed oldest first."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ids = [new_sortable_id(at) for _ in range(100)]
    assert ids == sorted(ids)


def test_ids_are_lower_case_letters_and_digits() -> None:
    """An id fits a URL, a file name and a shell."""
    text = new_sortable_id(datetime(2026, 1, 1, tzinfo=UTC)) + new_instance_id()
    assert text.isascii()
    assert text.isalnum()
    assert text == text.lower()
