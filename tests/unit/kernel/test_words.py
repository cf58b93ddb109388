"""Small words that every layer shares: ids, suggestions, moves, errors."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.errors import IllegalTransitionError, Location
from tidemill.kernel.ids import new_instance_id, new_sortable_id
from tidemill.kernel.suggestions import did_you_mean
from tidemill.kernel.transitions import TransitionTable


class Light(StrEnum):
    """A small state machine."""

    RED = "red"
    GREEN = "green"
    BROKEN = "broken"


LIGHTS = TransitionTable({Light.RED: {Light.GREEN, Light.BROKEN}, Light.GREEN: {Light.RED}, Light.BROKEN: frozenset()})

moments = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@given(moments, st.integers(1, 10**9))
def test_ids_sort_by_the_millisecond_they_were_made_in(at: datetime, later: int) -> None:
    """A later id is greater, whatever its random part."""
    assert new_sortable_id(at) < new_sortable_id(at + timedelta(milliseconds=later))


def test_ids_are_unique_and_of_one_length() -> None:
    """Many ids of one moment are all different."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ids = {new_sortable_id(at) for _ in range(2000)}
    assert len(ids) == 2000
    assert {len(one) for one in ids} == {24}
    assert len({new_instance_id() for _ in range(2000)}) == 2000


def test_ids_of_one_moment_sort_in_the_order_of_making() -> None:
    """Dead letters of one instant are listed oldest first."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ids = [new_sortable_id(at) for _ in range(100)]
    assert ids == sorted(ids)


def test_ids_are_plain_words() -> None:
    """An id fits a URL, a file name and a shell."""
    text = new_sortable_id(datetime(2026, 1, 1, tzinfo=UTC)) + new_instance_id()
    assert text.isascii()
    assert text.isalnum()
    assert text == text.lower()


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    """Messages say what to do."""
    assert did_you_mean("orderbok", ["pricing", "orderbook"]) == " (did you mean 'orderbook'?)"
    assert did_you_mean("zzz", ["pricing", "orderbook"]) == ""
    assert did_you_mean("x", []) == ""


def test_moves_are_those_of_the_table() -> None:
    """Staying is no move and always allowed."""
    allowed = {(one, other) for one in Light for other in Light if LIGHTS.is_allowed(one, other)}
    assert allowed - {(one, one) for one in Light} == {
        (Light.RED, Light.GREEN),
        (Light.RED, Light.BROKEN),
        (Light.GREEN, Light.RED),
    }


def test_a_move_outside_the_table_is_refused() -> None:
    """The error says who, from where, to where."""
    LIGHTS.check("light", Light.RED, Light.GREEN)
    with pytest.raises(IllegalTransitionError) as caught:
        LIGHTS.check("light", Light.BROKEN, Light.RED)
    assert (caught.value.subject, caught.value.before, caught.value.after) == ("light", "broken", "red")


def test_a_table_draws_itself() -> None:
    """The diagram in the documentation comes from the table."""
    assert LIGHTS.to_mermaid().splitlines() == [
        "stateDiagram-v2",
        "    red --> broken",
        "    red --> green",
        "    green --> red",
    ]


def test_a_definition_error_lists_its_problems() -> None:
    """All problems come in one error, numbered, each with its place."""
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
    assert (error.code, error.status) == ("full", 429)
    assert "market" in str(error)
