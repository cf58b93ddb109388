"""Quantities of resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.workflows.cluster_options import parse_quantity


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (2, 2),
        (0.5, 0.5),
        ("2", 2),
        ("500m", 0.5),
        ("1500m", 1.5),
        ("2000m", 2),
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("128M", 128_000_000),
        ("1e3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("12e-1", 1.2),
    ],
)
def test_quantities_are_numbers(written: object, number: float) -> None:
    """The suffixes of Kubernetes; whole numbers stay whole."""
    parsed = parse_quantity(written)
    assert (parsed, type(parsed)) == (number, type(number))


@pytest.mark.parametrize(
    "written", ["", "1 Gi", "Gi", "1gi", "-1", 0, "0m", True, None, "1e999", "9Ei", [], "1Mi2", "∞"]
)
def test_other_values_are_refused(written: object) -> None:
    """The message has the value, and examples of the form."""
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(written)


@given(st.integers(1, 10**9))
def test_a_whole_number_in_thousandths_is_exact(number: int) -> None:
    """No binary fraction on the way changes the version of a workflow."""
    assert parse_quantity(f"{number}000m") == number
