"""Params: encoded from keywords, and decoded."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.workflows.params import decode_params, encode_params


class Place(tm.Boundary):
    name: str


class Some(tm.Params):
    day: date
    limit: Annotated[int, msgspec.Meta(ge=1)] = 1000
    places: tuple[Place, ...] = ()
    at: datetime | None = None
    share: Decimal = Decimal("0.5")


class Picky(tm.Params, rename="camel", array_like=True):
    first_day: int
    last_day: int

    def __post_init__(self) -> None:
        if self.last_day < self.first_day:
            raise ValueError("the last day is before the first")


def refused(kind: Any, given: dict[str, Any], **options: Any) -> dict[str, str]:
    with pytest.raises(tm.RequestError) as caught:
        encode_params(kind, given, **options)
    assert (caught.value.code, caught.value.status) == ("invalid_params", 400)
    for message in caught.value.facts["params"].values():
        assert message in str(caught.value)
    return caught.value.facts["params"]


@given(
    st.builds(
        Some,
        day=st.dates(),
        limit=st.integers(1, 2**62),
        places=st.lists(st.builds(Place, st.text())).map(tuple),
        at=st.none() | st.datetimes(timezones=st.just(UTC)),
        share=st.decimals(allow_nan=False, allow_infinity=False),
    )
)
def test_params_come_back_as_they_were(params: Some) -> None:
    """api.md: as an instance of their class."""
    given = {name: getattr(params, name) for name in params.__struct_fields__}
    stored = encode_params(Some, given)
    assert decode_params(Some, stored) == params
    assert set(msgspec.msgpack.decode(stored)) == set(given)


def test_values_are_converted_and_defaults_are_stored() -> None:
    """api.md: a run keeps the params that it was started with."""
    stored = encode_params(Some, {"day": "2026-01-01", "places": [{"name": "Ulm"}]})
    assert decode_params(Some, stored) == Some(day=date(2026, 1, 1), places=(Place("Ulm"),))
    assert msgspec.msgpack.decode(stored)["limit"] == 1000


def test_every_wrong_param_is_named() -> None:
    """api.md: wrong, missing and unknown, with a suggestion."""
    found = refused(Some, {"limt": 3, "places": 4, "limit": "many"})
    assert found["limt"] == "there is no param 'limt' (did you mean 'limit'?)"
    assert found["day"] == "'day' (date) is missing"
    assert "'places' takes tuple" in found["places"]
    assert "Expected `int`, got `str`" in found["limit"]
    assert "Expected `int` >= 1" in refused(Some, {"day": "2026-01-01", "limit": 0})["limit"]
    assert "there are 'day', 'limit'" in refused(Some, {"day": "2026-01-01", "zzz": 0})["zzz"]


def test_a_class_may_refuse_what_fits_by_type() -> None:
    """api.md: params are stored by name, for any class."""
    stored = encode_params(Picky, {"first_day": 1, "last_day": 2})
    assert msgspec.msgpack.decode(stored) == {"first_day": 1, "last_day": 2}
    assert decode_params(Picky, stored) == Picky(first_day=1, last_day=2)
    assert "the last day is before the first" in refused(Picky, {"first_day": 3, "last_day": 2})[""]


def test_a_workflow_without_params_takes_any_keywords() -> None:
    """api.md: any that can be stored."""
    stored = encode_params(None, {"a": 1, "b": [None, "x"], "day": date(2026, 1, 1)})
    assert decode_params(None, stored) == {"a": 1, "b": [None, "x"], "day": "2026-01-01"}
    assert "cannot be stored" in refused(None, {"a": object(), "b": 1})["a"]
    assert decode_params(None, encode_params(None, {})) == {}


def test_texts_of_a_command_line_are_read_as_what_is_asked_for() -> None:
    """api.md, `tidemill run FILE:daily --day 2026-01-01`."""
    given = {"day": "2026-01-01", "limit": "5", "places": '[{"name": "Ulm"}]', "share": "0.25"}
    stored = encode_params(Some, given, from_text=True)
    assert decode_params(Some, stored) == Some(
        day=date(2026, 1, 1), limit=5, places=(Place("Ulm"),), share=Decimal("0.25")
    )
    assert "limit" in refused(Some, {"day": "2026-01-01", "limit": "many"}, from_text=True)
    places = refused(Some, {"day": "2026-01-01", "places": '[{"name": 5}]'}, from_text=True)["places"]
    assert "Expected `str`, got `int` - at `$[0].name`" in places
    places = refused(Some, {"day": "2026-01-01", "places": "[{name: 5}]"}, from_text=True)["places"]
    assert "'[{name: 5}]' is not JSON" in places
    free = encode_params(None, {"n": "5", "day": "2026-01-01", "all": "true"}, from_text=True)
    assert decode_params(None, free) == {"n": 5, "day": "2026-01-01", "all": True}


def test_stored_params_that_no_longer_fit_are_the_operators_business() -> None:
    """W-19: a class that changed under its runs; what it no longer has is left out."""
    stored = encode_params(None, {"day": "never"})
    with pytest.raises(tm.OperationError, match="stored params no longer fit Some"):
        decode_params(Some, stored)
    assert decode_params(Some, encode_params(None, {"day": "2026-01-01", "gone": 1})).day == date(2026, 1, 1)


@pytest.mark.parametrize("name", ["half \ud800", "a\0b"])
@pytest.mark.parametrize("kind", [None, Some])
def test_a_name_that_no_store_can_hold_is_a_request_error(name: str, kind: Any) -> None:
    """Errors: all problems of params are reported together, and can be printed."""
    found = refused(kind, {name: 1, "day": "2026-01-01"})
    ((reported, message),) = found.items()
    assert repr(name) in message
    (reported + message).encode()


def test_a_text_for_anything_is_what_it_would_be_without_a_declaration() -> None:
    """A class whose param takes anything does not turn the numbers of a command line into strings."""

    class Anything(tm.Params):
        value: Any

    for text, value in {"5": 5, "five": "five", '{"a": 1}': {"a": 1}}.items():
        assert decode_params(Anything, encode_params(Anything, {"value": text}, from_text=True)).value == value
