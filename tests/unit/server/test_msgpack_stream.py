"""Streams of msgpack values: every value is found, and a stream that is cut off is not mistaken for a shorter one."""

from datetime import UTC
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.server.msgpack_stream import split_msgpack

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300)
    | st.datetimes(timezones=st.just(UTC)),  # of an encoded time only the moment stays, so other zones add nothing
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=30,
)


@given(st.lists(values, max_size=8))
def test_every_value_of_a_stream_is_found(stream: list[Any]) -> None:
    """http.md: a msgpack stream is values one after another."""
    encoded = [msgspec.msgpack.encode(one) for one in stream]
    assert list(split_msgpack(b"".join(encoded))) == encoded


@given(values, st.data())
def test_a_value_that_is_cut_off_is_an_error(value: Any, data: st.DataObject) -> None:
    """S-7: truncated bodies."""
    encoded = msgspec.msgpack.encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    if cut:
        with pytest.raises(msgspec.DecodeError, match="cut off"):
            list(split_msgpack(cut))


@given(st.binary(max_size=64))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    """S-7: the pieces are the whole, or there is an error."""
    try:
        pieces = list(split_msgpack(data))
    except msgspec.DecodeError:
        return
    assert b"".join(pieces) == data


def test_long_texts_bytes_and_lists_are_measured_by_their_length() -> None:
    """The sizes of 8, 16 and 32 bits."""
    for size in (40, 300, 70_000):
        encoded = [msgspec.msgpack.encode(one) for one in ("x" * size, b"x" * size, [1] * size, {str(1): [0] * size})]
        assert list(split_msgpack(b"".join(encoded))) == encoded
