"""Stored values, decoded without the author's classes."""

from typing import Any

import msgspec
import pytest

from tidemill.annotations.codec import build_codec, decode_untyped
from tidemill.annotations.variants import expand_variants


class Good(msgspec.Struct):
    total: int


class Bad(msgspec.Struct):
    worst: int


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Good, Good(1), {"total": 1}),
        (Good | Bad, Bad(2), {"worst": 2}),
        (list[Good | Bad], [Good(1), Bad(2)], [{"total": 1}, {"worst": 2}]),
        (list[Good | Bad], [], []),
        (list[str], ["a", "b"], ["a", "b"]),
        (list[Good], [Good(1), Good(2)], [{"total": 1}, {"total": 2}]),
        (list[str] | None, ["Good", "b"], ["Good", "b"]),
        (Any, ["Good", {"total": 1}], ["Good", {"total": 1}]),
    ],
)
def test_plain_values_have_no_names_of_variants(annotation: Any, value: Any, expected: Any) -> None:
    """The name of a union member is part of the stored form, not of the value."""
    kinds = [one.label for one in expand_variants(annotation) or () if isinstance(value, one.cls)]
    assert decode_untyped(build_codec(annotation).encode(value), next(iter(kinds), None)) == expected
