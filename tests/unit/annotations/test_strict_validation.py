"""Strict validation: unknown fields are found at any depth, and nothing else changes."""

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from tidemill.annotations.strict_validation import StrictTypeValidator, has_fields
from tidemill.annotations.validation import TypeMismatchError, TypeValidator


class Level(msgspec.Struct):
    price: float
    size: int = 1


class Book(msgspec.Struct, rename={"best": "bestLevel"}):
    symbol: str
    levels: list[Level] = []
    by_venue: dict[str, Level] = {}
    best: Level | None = None


class Buy(msgspec.Struct, tag="buy"):
    price: float


class Sell(msgspec.Struct, tag="sell"):
    amount: int


class Note(TypedDict):
    text: str


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Level, {"price": 1.0, "sise": 3}, "unknown field 'sise' (did you mean 'size'?)"),
        (Level, {"price": 1.0, "colour": "red"}, "unknown field 'colour'; Level has price, size"),
        (Book, {"symbol": "A", "levels": [{"price": 1.0, "prize": 2.0}]}, "'levels.0.prize' (did you mean 'price'?)"),
        (Book, {"symbol": "A", "by_venue": {"x": {"price": 1.0, "q": 1}}}, "unknown field 'by_venue.x.q'"),
        (Book, {"symbol": "A", "best": None}, "unknown field 'best' (did you mean 'bestLevel'?)"),
        (Buy | Sell, {"type": "buy", "price": 1.0, "amount": 1}, "unknown field 'amount'; Buy has price"),
        (Note, {"text": "a", "author": "b"}, "unknown field 'author'; Note has text"),
        (Point, {"x": 1, "y": 2}, "unknown field 'y'; Point has x"),
    ],
)
def test_an_unknown_field_is_named_with_its_path_and_a_suggestion(annotation: Any, value: Any, message: str) -> None:
    """G-7: as a Python value, as JSON and as msgpack."""
    strict = StrictTypeValidator(annotation)
    for read in (
        lambda: strict.validate(value),
        lambda: strict.decode(msgspec.json.encode(value)),
        lambda: strict.decode(msgspec.msgpack.encode(value), "msgpack"),
    ):
        with pytest.raises(TypeMismatchError) as raised:
            read()
        assert message in str(raised.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Book, {"symbol": "A", "levels": [{"price": 1.0}], "by_venue": {"x": {"price": 2.0}}, "bestLevel": None}),
        (Buy | Sell, {"type": "sell", "amount": 3}),
        (Buy | Sell, Sell(amount=3)),
        (Note, {"text": "a"}),
        (Point, {"x": 1}),
        (dict, {"anything": 1}),
        (Any, {"anything": 1}),
        (int, 3),
    ],
)
def test_what_fits_is_read_as_without_strictness(annotation: Any, value: Any) -> None:
    """G-7: only unknown fields make a difference."""
    assert StrictTypeValidator(annotation).validate(value) == TypeValidator(annotation).validate(value)


def test_a_value_that_does_not_fit_is_reported_as_ever() -> None:
    """G-7."""
    with pytest.raises(TypeMismatchError, match="price"):
        StrictTypeValidator(Level).validate({"price": "high"})
    with pytest.raises(TypeMismatchError, match="malformed"):
        StrictTypeValidator(Level).decode(b"no json")


@pytest.mark.parametrize(
    ("annotation", "expected"), [(Level, True), (Buy | Sell, True), (Note, True), (dict, False), (object, False)]
)
def test_only_types_with_fields_can_refuse_others(annotation: Any, expected: bool) -> None:
    """G-17."""
    assert has_fields(annotation) is expected
