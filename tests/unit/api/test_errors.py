"""Errors of requests name the field, and what was probably meant."""

import msgspec
import pytest

from tidemill.access.principal import Role
from tidemill.api.errors import invalid_field_error, to_problem
from tidemill.api.keys import create_key
from tidemill.client.calls import name_in_path
from tidemill.kernel.errors import RequestError


def test_a_value_that_resembles_a_known_one_gets_a_suggestion() -> None:
    """The members of an enumeration are known values."""
    with pytest.raises(msgspec.ValidationError) as invalid:
        msgspec.convert({"role": "admn"}, create_key.request_type)
    error = invalid_field_error(invalid.value, create_key.request_type, "the request is invalid")
    assert "role" in str(error)
    assert f"did you mean '{Role.ADMIN}'?" in str(error)


def test_a_name_that_no_address_can_hold_is_refused() -> None:
    """Names on a command line may be any bytes."""
    with pytest.raises(RequestError, match="is not a name"):
        name_in_path("caf\udce9")


def test_a_problem_inside_a_param_names_its_path() -> None:
    """UD-4: a form shows it at the field inside the object, without the address of msgspec."""
    params = {
        "person": "'person' takes Person: Expected `int`, got `str` - at `$.jobs[0].year`",
        "boss": "'boss' takes Person: Object missing required field `name`",
        "day": "it is missing",
    }
    errors = to_problem(RequestError("invalid params", code="invalid_params", params=params), "r").errors
    assert [(one.path, one.message) for one in errors] == [
        ("params.person.jobs[0].year", "Expected `int`, got `str`"),
        ("params.boss.name", "Object missing required field `name`"),
        ("params.day", "it is missing"),
    ]
