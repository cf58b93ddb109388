"""Errors: what each branch of the tree carries."""

import tidemill as tm
from tidemill.kernel.errors import Location


def test_a_definition_error_lists_its_problems() -> None:
    """All problems are in one error, numbered, each with its location."""
    one = tm.Problem(message="no", location=Location("a.py", 3), node="n", parameter="p")
    two = tm.Problem(message="never")
    error = tm.DefinitionError([one, two], "graph 'g'")
    assert error.problems == (one, two)
    assert str(error) == "graph 'g' has 2 problems:\n  1. a.py:3: no\n  2. never"
    assert str(tm.DefinitionError([two], "graph 'g'")) == "graph 'g': never"


def test_a_request_error_has_code_and_status() -> None:
    """The caller must act: a code for programs, a status for HTTP, and the facts."""
    error = tm.RequestError("no such thing", code="not_found", status=404, name="x")
    assert (str(error), error.code, error.status, error.facts) == ("no such thing", "not_found", 404, {"name": "x"})
    assert tm.RequestError("no", code="bad").status == 400


def test_a_full_queue_is_a_request_error() -> None:
    """`tm.FullError`: a RequestError with code `full`."""
    error = tm.FullError("market", 10)
    assert isinstance(error, tm.RequestError)
    assert (error.code, error.status) == ("queue_full", 429)
    assert "market" in str(error)
