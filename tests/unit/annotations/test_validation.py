"""Validation: instances pass unchanged, fitting values are converted, others are rejected."""

import enum
import json
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NewType, Protocol, TypedDict

import msgspec
import pytest

import tidemill as tm
from tidemill.annotations.validation import TypeMismatchError, TypeValidator


class Quote(tm.Boundary):
    """A boundary."""

    price: float
    day: date = date(2026, 1, 1)


class DeepQuote(Quote):
    """A kind of it."""

    depth: int = 0


@dataclass
class Point:
    """A dataclass."""

    x: int


@dataclass
class DeepPoint(Point):
    """A kind of it."""

    z: int = 0


class Plain:
    """A class that msgspec does not know."""


class Row(TypedDict):
    """A dict with declared keys."""

    x: int


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"


class Priced(Protocol):
    """Anything with a price."""

    price: float


Price = NewType("Price", float)
Prices = NewType("Prices", list[int])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Quote, Quote(1.0)),
        (Quote, DeepQuote(1.0)),
        (Quote | None, DeepQuote(1.0)),
        (Point, Point(1)),
        (Point, DeepPoint(1)),
        (Point | None, DeepPoint(1)),
        (Plain, Plain()),
        (Plain | None, Plain()),
        (Plain | Quote, Quote(1.0)),
        (Quote | DeepQuote, DeepQuote(1.0)),
        (Colour, Colour.RED),
        (dict, {"a": object()}),
        (list, [object()]),
        (Any, object()),
        (object, object()),
        (Priced, Quote(1.0)),
        (Priced, 3),
    ],
)
def test_an_instance_of_the_annotated_class_passes_unchanged(annotation: Any, value: Any) -> None:
    """`node.handle`: an instance of the annotated class passes unchanged."""
    assert TypeValidator(annotation).validate(value) is value


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Quote, {"price": 1, "day": "2026-02-03"}, Quote(1.0, date(2026, 2, 3))),
        (Quote | None, {"price": 1}, Quote(1.0)),
        (Point, {"x": 1}, Point(1)),
        (list[Quote], [{"price": 1}], [Quote(1.0)]),
        (dict[str, Quote], {"a": {"price": 1}}, {"a": Quote(1.0)}),
        (Row, {"x": 1}, {"x": 1}),
        (Colour, "red", Colour.RED),
        (Literal["a", "b"], "b", "b"),
        (float, 1, 1.0),
        (Price, 1.5, 1.5),
        (Prices, [1], [1]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Annotated[int, msgspec.Meta(gt=0)], 1, 1),
        (date, "2026-02-03", date(2026, 2, 3)),
    ],
)
def test_a_fitting_value_is_converted(annotation: Any, value: Any, expected: Any) -> None:
    """Anything else is converted."""
    assert TypeValidator(annotation).validate(value) == expected


MISMATCHES = [
    (Quote, {"price": "x"}),
    (Quote, {}),
    (Quote, 3),
    (Quote | None, {"price": "x"}),
    (Point, {"x": "a"}),
    (Row, {"x": "a"}),
    (Row, {}),
    (list[Quote], [{"price": "x"}]),
    (list[int], ["a"]),
    (Prices, ["a"]),
    (Literal["a"], "b"),
    (Colour, "blue"),
    (Annotated[int, msgspec.Meta(gt=0)], 0),
    (int, "1"),
    (int, None),
    (str, 1),
    (Plain, {}),
    (Plain | Quote, 3),
]


@pytest.mark.parametrize(("annotation", "value"), MISMATCHES)
def test_a_value_that_does_not_fit_is_a_mismatch(annotation: Any, value: Any) -> None:
    """G-7: the error says what was expected."""
    with pytest.raises(TypeMismatchError, match="expected"):
        TypeValidator(annotation).validate(value)


@pytest.mark.parametrize(("annotation", "value"), MISMATCHES)
@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_bytes_that_do_not_fit_are_mismatches_too(annotation: Any, value: Any, form: str) -> None:
    """G-7: an event that cannot be decoded raises the same error."""
    data = msgspec.msgpack.encode(value) if form == "msgpack" else msgspec.json.encode(value)
    with pytest.raises(TypeMismatchError):
        TypeValidator(annotation).decode(data, form)


@pytest.mark.parametrize("form", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("annotation", "value"),
    [(Quote, {"price": 1.0}), (Point, {"x": 1}), (dict, {"a": 1}), (Any, [1]), (list[int], [1]), (Quote | None, None)],
)
def test_bytes_are_decoded_into_the_annotated_type(annotation: Any, value: Any, form: str) -> None:
    """Bytes are JSON, or msgpack with form="msgpack"."""
    data = msgspec.msgpack.encode(value) if form == "msgpack" else json.dumps(value).encode()
    assert TypeValidator(annotation).decode(data, form) == msgspec.convert(value, annotation)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"nonsense", b"1 2"])
@pytest.mark.parametrize("annotation", [Quote, Any, dict, Plain])
def test_invalid_json_is_a_mismatch(annotation: Any, data: bytes) -> None:
    """G-7: for every annotation."""
    with pytest.raises(TypeMismatchError):
        TypeValidator(annotation).decode(data)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_an_error_in_post_init_is_a_mismatch(error: type[Exception]) -> None:
    """G-7: the author's `__post_init__` may raise any error."""

    class Picky(tm.Boundary):
        x: int

        def __post_init__(self) -> None:
            raise error("not today")

    validator = TypeValidator(Picky)
    for validate in (lambda: validator.validate({"x": 1}), lambda: validator.decode(b'{"x": 1}')):
        with pytest.raises(TypeMismatchError, match="not today"):
            validate()


def test_bytes_pass_where_bytes_are_declared() -> None:
    """An accumulator of bytes decodes by itself."""
    assert TypeValidator(bytes).decode(b"\x00raw") == b"\x00raw"


def test_nothing_is_converted_twice() -> None:
    """A converted value passes the second time as the same object."""
    validator = TypeValidator(Quote)
    quote = validator.validate({"price": 1})
    assert validator.validate(quote) is quote
