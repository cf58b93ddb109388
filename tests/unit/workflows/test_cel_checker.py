"""The types of expressions: what can never be right is refused, and all else passes."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict

import pytest

import tidemill as tm
from tidemill.workflows.cel_checker import check_types
from tidemill.workflows.cel_syntax import parse
from tidemill.workflows.cel_types import record_of, type_of


class Side(Enum):
    """An enum of texts."""

    BUY = "buy"


@dataclass
class Level:
    """A dataclass."""

    price: float
    depth: int


class Extra(TypedDict):
    """A typed dict."""

    note: str


class Book(tm.Boundary, rename={"inner": "innerBook"}):
    """Fields of all kinds."""

    bid: float
    size: int
    venue: str
    side: Side
    live: bool
    at: datetime
    day: date
    fee: Decimal
    levels: list[Level]
    extra: Extra
    tags: dict[str, int]
    free: dict[str, Any]
    kind: Literal["a", "b"]
    limit: float | None = None
    inner: "Book | None" = None


class Calm(tm.Boundary):
    """Another variant."""

    reason: str


def problems(text: str, *, is_condition: bool = True) -> list[str]:
    """Return what is wrong with an expression over `payload`, which has `book`, `either` and `any`."""
    payload = record_of("payload", {"book": type_of(Book), "either": type_of(Book | Calm), "any": type_of(Any)})
    return check_types(parse(text), {"payload": payload}, is_condition=is_condition)


@pytest.mark.parametrize(
    "text",
    [
        "payload.book.bid > 100 && payload.book.size >= 2.5",
        "payload.book.bid * 2 + 1 > payload.book.size % 3",
        "payload.book.side == 'buy' || payload.book.kind in ['a']",
        "payload.book.at > '2026' && payload.book.day == '2026-01-01' && payload.book.fee != '1.5'",
        "timestamp(payload.book.at) - timestamp('2026-01-01T00:00:00Z') > duration('1h')",
        "payload.book.levels.exists(x, x.price > 1.0 && x.depth == 2) && payload.book.levels[0].depth > 1",
        "payload.book.levels.map(x, x.price).filter(p, p > 1).size() > 0",
        "payload.book.tags.all(key, key.startsWith('a')) && payload.book.tags['x'] > 1 && payload.book.tags.y == 2",
        "payload.book.free.anything.at.all > 'x'",
        "payload.book.limit == null || payload.book.limit > 3",
        "payload.book.innerBook.innerBook.bid > 1",
        "has(payload.book.innerBook) && !payload.book.live",
        "payload.either.reason == 'x' || payload.either.bid > 1",
        "payload.any.whatever > 1 && payload.any[3].x == 'y' && payload.any",
        "payload.book.live ? payload.book.bid > 1 : payload.book.venue.matches('x')",
        "payload['book']['bid'] > 1 && payload.book.extra.note + 'x' == 'yx'",
        "size(payload.book.venue) == 3 && type(payload.book.bid) == double && -payload.book.bid < 0",
    ],
)
def test_what_fits_the_types_passes(text: str) -> None:
    """A check must not refuse what works."""
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("payload.book.bd > 1", "payload.book has no field 'bd' (did you mean 'bid'?)"),
        ("payload.bok.bid > 1", "payload has no field 'bok' (did you mean 'book'?)"),
        ("payload['book']['bd'] > 1", "payload['book'] has no field 'bd' (did you mean 'bid'?)"),
        ("has(payload.book.bd)", "payload.book has no field 'bd' (did you mean 'bid'?)"),
        ("payload.book.inner.bid > 1", "payload.book has no field 'inner' (did you mean 'innerBook'?)"),
        ("payload.either.bod > 1", "payload.either has no field 'bod' (did you mean 'bid'?)"),
        ("payload.book.levels.exists(x, x.prise > 1.0)", "x has no field 'prise' (did you mean 'price'?)"),
        ("payload.book.bid.x > 1", "payload.book.bid is a number and has no field 'x'"),
        ("payload.book.bid > 'x'", "'payload.book.bid > 'x'' compares payload.book.bid, a number, with 'x', a string"),
        ("payload.book.side == 3", "compares payload.book.side, a string, with 3, a number"),
        ("payload.book.live > 1", "compares payload.book.live, a bool, with 1, a number"),
        ("payload.book.limit > 'x'", "compares payload.book.limit, a number or a null, with 'x', a string"),
        ("payload.book > 1", "payload.book is a Book, and '>' takes bool or bytes or duration"),
        ("payload.book.at > timestamp('2026-01-01T00:00:00Z')", "a string, with timestamp("),
        ("payload.book.bid + 'x' == 'y'", "combines payload.book.bid, a number, with 'x', a string"),
        ("payload.book.venue * 2 > 1", "payload.book.venue is a string, and '*' takes number"),
        ("payload.book.bid && true", "payload.book.bid is a number, and '&&' takes bool"),
        ("!payload.book.bid", "payload.book.bid is a number, and '!' takes bool"),
        ("payload.book.bid ? true : false", "payload.book.bid is a number, and '?' takes bool"),
        ("payload.book.bid.startsWith('x')", "payload.book.bid is a number, and startsWith() takes string"),
        ("payload.book.venue.startsWith(3)", "3 is a number, and startsWith() takes string"),
        ("size(payload.book.bid) > 1", "payload.book.bid is a number, and size() takes"),
        ("payload.book.bid in ['a', 'b']", "looks for payload.book.bid, a number, in ['a', 'b'], a list"),
        ("payload.book.bid in payload.book.size", "payload.book.size is a number, and 'in' takes list or map"),
        ("payload.book.levels['x'].price > 1.0", "'x' is a string, and an index of payload.book.levels takes number"),
        ("payload.book.bid.exists(x, x > 1)", "payload.book.bid is a number, and exists() takes list or map"),
        ("payload.book.bid", "it gives a number, neither true nor false"),
        ("payload.book.levels.map(x, x.price)", "it gives a list, neither true nor false"),
    ],
)
def test_what_can_never_be_right_is_refused(text: str, said: str) -> None:
    """Issue: a misspelt field, a comparison of unlike types; with the part of the expression that is meant."""
    (problem,) = problems(text)
    assert said in problem


def test_all_problems_are_reported_together() -> None:
    """As for graphs and workflows."""
    assert len(problems("payload.book.bd > 1 && payload.book.venue > 2 || payload.book.bid")) == 3


def test_a_key_may_be_of_any_type() -> None:
    """`dedup=` is no condition."""
    assert problems("payload.book.venue", is_condition=False) == []


async def test_problems_have_the_line_of_the_trigger() -> None:
    """Issue: definition errors with file and line, when the types are known in the same load, by name too."""

    @tm.passthrough
    def book(event: Calm) -> Calm:
        return event

    reactor = tm.Reactor("market", [book])
    flow = tm.Workflow("w", triggers=[tm.on_firing("market", when="payload.book.raeson == 'x'")])

    @flow.task
    def act() -> None: ...

    flow.check()  # the reactor is not known here
    said = re.escape("payload.book has no field 'raeson' (did you mean 'reason'?)")
    async with tm.testing.node(load=[reactor]) as node:
        with pytest.raises(tm.DefinitionError, match=rf"test_cel_checker.py:\d+: on_firing\('market'.*{said}"):
            await node.load(flow)
    unknown = tm.on_firing(reactor, when="payload.book.reason.strtsWith('x')")
    with pytest.raises(tm.DefinitionError, match=r"no function 'strtsWith' \(did you mean 'startsWith'\?\)"):
        tm.Workflow("w", triggers=[unknown]).check()
