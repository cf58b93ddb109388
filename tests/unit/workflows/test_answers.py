"""Answers: what fits a type, as JSON Schema says it, and who may answer."""

from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from msgspec import Meta

import tidemill as tm
from tidemill.workflows.answerers import may_answer, parse_answerers
from tidemill.workflows.answers import check_answer
from tidemill.workflows.wait_types import describe_type
from tidemill.workflows.waits import ANSWER_LIMIT


class Item(tm.Boundary):
    """A thing."""

    name: str
    count: Annotated[int, Meta(ge=1, le=9)] = 1
    tags: tuple[str, ...] = ()
    inner: "Item | None" = None
    at: datetime | None = None


class Other(tm.Boundary):
    """Another thing."""

    name: str


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 5),
        (float, 5),
        (bool, False),
        (str, "x"),
        (str | None, None),
        (int | str, "x"),
        (Literal["a", "b"], "b"),
        (list[int], [1, 2]),
        (dict[str, int], {"a": 1}),
        (tuple[int, str], [1, "a"]),
        (datetime, "2026-01-01T00:00:00Z"),
        (date, date(2026, 1, 1)),
        (UUID, "12345678123456781234567812345678"),
        (Item, {"name": "a", "count": 9, "inner": {"name": "b"}}),
        (Item, Item(name="a")),
        (Any, {"what": [None]}),
    ],
)
def test_what_fits(kind: Any, value: Any) -> None:
    """L-9."""
    assert check_answer("it", describe_type(kind), value, None).variant is None


@pytest.mark.parametrize(
    ("kind", "value", "path", "message"),
    [
        (int, "5", "", "expected integer, got string"),
        (int, True, "", "expected integer, got boolean"),
        (float, None, "", "expected number, got null"),
        (Literal["a", "b"], "c", "", "it is one of 'a', 'b', not 'c'"),
        (list[int], [1, "x"], "[1]", "expected integer, got string"),
        (dict[str, int], {"a": "x"}, "a", "expected integer, got string"),
        (datetime, "tomorrow", "", "Invalid RFC3339"),
        (bytes, "%", "", "Invalid base64"),
        (Item, {}, "name", "it is missing"),
        (Item, {"name": "a", "cont": 3}, "cont", "there is no field of this name (did you mean 'count'?)"),
        (Item, {"name": "a", "count": 10}, "count", "maximum is 9"),
        (Item, {"name": "a", "inner": {"name": 3}}, "inner.name", "expected string, got integer"),
        (Item, {"name": "a", "inner": {"name": "b", "at": "soon"}}, "inner.at", "Invalid RFC3339"),
        (Item, {"name": "a", "tags": [None]}, "tags[0]", "expected string, got null"),
        (str, "x" * (ANSWER_LIMIT + 1), "", "are allowed"),
        (Any, {1, object()}, "", "JSON cannot hold it"),
    ],
)
def test_what_does_not_fit(kind: Any, value: Any, path: str, message: str) -> None:
    """L-9: with the path of each error."""
    with pytest.raises(tm.RequestError) as refused:
        check_answer("it", describe_type(kind), value, None)
    (error,) = refused.value.facts["errors"]
    assert error["path"] == path
    assert message in error["message"]
    assert refused.value.code == "invalid_answer"


@pytest.mark.parametrize(
    ("value", "variant", "chosen"),
    [({"name": "a"}, "Other", "Other"), ({"name": "a", "count": 2}, None, "Item"), (Other(name="a"), None, "Other")],
)
def test_a_variant_is_named_or_the_only_one_that_fits(value: Any, variant: str | None, chosen: str) -> None:
    """L-9."""
    assert check_answer("it", describe_type(Item | Other), value, variant).variant == chosen


def test_a_value_that_fits_two_variants_names_one() -> None:
    """L-9."""
    with pytest.raises(tm.RequestError, match="it fits Item, Other: name the variant") as refused:
        check_answer("it", describe_type(Item | Other), {"name": "a"}, None)
    assert refused.value.facts["suggestions"] == ["Item", "Other"]
    with pytest.raises(tm.RequestError, match="the wait has no variants"):
        check_answer("it", describe_type(int), 3, "Item")


@pytest.mark.parametrize("by", ["role:write", "account:ada", "key:4f2a91c0", "not:starter", "not:account:ada"])
def test_who_may_answer_is_well_formed(by: str) -> None:
    """L-14."""
    assert parse_answerers(by) == parse_answerers([by]) == (by,)


@pytest.mark.parametrize("by", ["ada", "role:owner", "account:", "not:", "not:role:read", "starter", 5])
def test_a_malformed_by_is_an_error(by: Any) -> None:
    """L-14."""
    with pytest.raises(ValueError, match="by= takes"):
        parse_answerers([by])


@pytest.mark.parametrize(
    ("by", "actor", "role", "allowed"),
    [
        ([], "account:ada", "write", True),
        ([], "account:ada", "read", False),
        (["role:read"], "account:ada", "read", True),
        (["role:admin"], "account:ada", "write", False),
        (["account:ada"], "account:ada", "read", True),
        (["account:ada"], "account:bob", "write", False),
        (["account:ada"], "account:bob", "admin", True),
        (["not:starter"], "account:bob", "write", True),
        (["not:starter"], "account:eve", "write", False),
        (["not:starter"], "account:eve", "admin", False),
        (["role:write", "not:account:ada"], "account:ada", "admin", False),
        (["account:ada", "not:starter"], "account:bob", "write", False),
    ],
)
def test_an_exclusion_binds_everybody_and_an_admin_needs_no_entry(
    by: list[str], actor: str, role: str, allowed: bool
) -> None:
    """L-14: without a positive entry everyone may who may write; the starter here is eve."""
    assert may_answer(by, actor, role, "account:eve") is allowed
