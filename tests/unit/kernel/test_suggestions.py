"""Suggestions for misspelt names."""

from tidemill.kernel.suggestions import did_you_mean


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    """Error messages say what to do."""
    assert did_you_mean("orderbok", ["pricing", "orderbook"]) == " (did you mean 'orderbook'?)"
    assert did_you_mean("zzz", ["pricing", "orderbook"]) == ""
    assert did_you_mean("x", []) == ""
