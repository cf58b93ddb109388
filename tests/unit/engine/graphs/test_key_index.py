"""The index of stored keys."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.graphs.keys.key_index import KeyIndex

keys = st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1) | st.tuples(st.text(max_size=3), st.integers(0, 9))


@given(st.sets(keys, max_size=200))
def test_every_added_key_is_found(added: set[Any]) -> None:
    index = KeyIndex()
    for key in added:
        index.add(key)
    assert index.count == len(added)
    assert all(key in index for key in added)


def test_other_keys_are_hardly_ever_found() -> None:
    index = KeyIndex()
    for number in range(20_000):
        index.add(number * 4096)  # their lowest bits are the same
    assert sum(number * 4096 + 1 in index for number in range(20_000)) < 5


def test_a_key_takes_at_most_twelve_bytes() -> None:
    index = KeyIndex()
    for number in range(10_000):
        index.add(f"key {number}")
        assert index.size <= 12 * max(index.count, 8)
