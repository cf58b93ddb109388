"""Values come back as what they were: by their declared types, and aloud where that is no longer possible."""

import logging
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

import tidemill as tm

KEPT = ["interval", "fire", "boundary"]


class Up(tm.Boundary):
    """One variant."""

    by: float


class Down(tm.Boundary):
    """Another variant with the very same fields."""

    by: float


class Tagged(tm.Boundary, tag=True):
    """A variant that msgspec itself can tell apart."""

    by: float


@dataclass(frozen=True)
class Point:
    """A boundary that is a dataclass."""

    x: int
    at: datetime
    tags: tuple[str, ...] = ()


class Colour(Enum):
    """A boundary that is an enum."""

    RED = "red"


class Deep(tm.Boundary):
    """Everything at once."""

    points: list[Point]
    by_day: dict[date, Decimal]
    maybe: Up | None = None


NOON = datetime(2026, 3, 29, 12, 30, 15, 123_456, UTC)
POINT = Point(1, NOON, ("a", "b"))

VALUES: list[tuple[Any, Any]] = [
    (Up | Down, Down(2.5)),
    (Up | Down | None, Up(2.5)),
    (Up | Tagged | Point, POINT),
    (Up | int | str, 7),
    (list[Up | Down], [Up(1.0), Down(2.0)]),
    (Point, POINT),
    (Point | None, POINT),
    (datetime, NOON),
    (timedelta, timedelta(seconds=90)),
    (date | None, date(2026, 2, 28)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Deep, Deep([POINT], {date(2026, 1, 1): Decimal("2.50")}, Up(1.0))),
    (dict, {"a": [1, {"b": None}], "c": 1.5}),
    (dict[str, Up], {"x": Up(1.0)}),
    (dict[int, list[int]], {1: [2, 3]}),
    (list, [1, "a", None]),
    (list[int], []),
    (Any, {"free": [1, 2.5, "x", True, None]}),
    (Any, 0),
    (bytes, b"\x00\xff"),
    (str, ""),
    (float, float("inf")),
    (int | float, 3),
    (bool, False),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
]


def giving(annotation: Any, value: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return reactor `r` whose accumulator `a` emits a value of an annotation, and what its graph saw."""
    seen: list[Any] = []

    def a(event: int) -> Any:
        return value

    a.__annotations__["return"] = annotation
    reactor = tm.Reactor("r", [tm.passthrough(a)], **options)
    graph = tm.Graph("g", reactor=reactor)

    def out(a: Any) -> None:
        seen.append(a)

    graph.node(out)
    return [reactor, graph], seen


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda one: str(one)[:40])
async def test_a_value_comes_back_as_its_declared_type(annotation: Any, value: Any, durability: Any) -> None:
    """G-23: unions by their variant, nested values, None-able types."""
    load, seen = giving(annotation, value, durability=durability, strategy="sequential")
    async with tm.testing.node(store="memory://", load=load) as node:
        await node.reactor("r").pause()
        assert (await node.push("a", 1)).outcome == "emitted"
        await node.settle()
        node = await node.crash()
        await node.reactor("r").resume()
        await node.settle()
        assert await node.reactor("r").dead_letters() == []
    assert seen == [value]
    assert type(seen[0]) is type(value)
    if isinstance(value, list) and value:
        assert [type(one) for one in seen[0]] == [type(one) for one in value]


async def test_what_cannot_come_back_is_refused_aloud_under_boundary() -> None:
    """G-24: not acknowledged: better a dead letter now than a loss later."""
    load, seen = giving(Any, {1, 2}, durability="boundary")
    async with tm.testing.node(store="memory://", load=load) as node:
        receipt = await node.push("a", 1)
        letters = await node.reactor("r").dead_letters()
    assert (receipt.outcome, receipt.accepted, seen) == ("dead_lettered", False, [])
    assert "set" in letters[0].error


# -- another declaration than the one that was stored


def valued(annotation: Any, durability: Any) -> list[Any]:
    """Return reactor `r` over `a`, which emits what the annotation says, and `b`, which emits numbers."""

    def a(event: Any) -> Any:
        return msgspec.convert(event, annotation)

    a.__annotations__["return"] = annotation

    @tm.passthrough
    def b(event: int) -> int:
        return event

    return [tm.Reactor("r", [tm.passthrough(a), b], when="all", durability=durability)]


def quote(**fields: Any) -> Any:
    """Return a class `Quote`, as if its module had been edited."""
    return msgspec.defstruct("Quote", list(fields.items()), frozen=True)


class Opaque:
    """A class that no database can hold."""


CHANGES: list[tuple[Any, Any]] = [
    (quote(bid=float), quote(bid=float, ask=float)),
    (quote(bid=float), quote(bid=str)),
    (quote(bid=float), int),
    (quote(bid=float), Up | Down),
]


@pytest.mark.parametrize("durability", KEPT)
@pytest.mark.parametrize(("before", "after"), CHANGES)
async def test_a_value_that_no_longer_fits_is_left_out_aloud(
    sqlite: str, before: Any, after: Any, durability: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """G-23: never silently empty, never a crash; everything else is there."""
    async with tm.testing.node(store=sqlite, load=valued(before, durability)) as node:
        await node.push("b", 5)
        await node.reactor("r").pause()
        await node.push("a", {"bid": 1.0})
        await node.settle()
        await node.crash()
    caplog.set_level(logging.ERROR)
    async with tm.testing.node(store=sqlite, load=valued(after, durability)) as node:
        state = node.reactor("r").state()
        events = node.reactor("r").events()
    assert (state.cache, state.dirty) == ({"b": 5}, {"a": False, "b": True})
    assert {event.action for event in events} == {"restored"}
    assert any(record.levelno == logging.ERROR for record in caplog.records)


@pytest.mark.parametrize("durability", KEPT)
async def test_a_type_that_cannot_be_stored_is_refused_at_load(durability: Any) -> None:
    """API, G-23: all definition problems at load, none at the first checkpoint; "none" takes anything."""
    with pytest.raises(tm.DefinitionError, match=r"'a'.*Opaque"):
        async with tm.testing.node(store="memory://", load=valued(Opaque, durability)):
            pass
    async with tm.testing.node(store="memory://", load=valued(Opaque, "none")) as node:
        assert node.registry.reactors() == ["r"]


async def test_a_field_with_a_default_takes_old_values_along(sqlite: str) -> None:
    """G-23: what still fits is restored, without a complaint."""
    newer = msgspec.defstruct("Quote", [("bid", float), ("ask", float, 9.0)], frozen=True)
    async with tm.testing.node(store=sqlite, load=valued(quote(bid=float), "interval")) as node:
        await node.push("a", {"bid": 1.0})
    async with tm.testing.node(store=sqlite, load=valued(newer, "interval")) as node:
        assert node.reactor("r").state().cache == {"a": {"bid": 1.0, "ask": 9.0}}
        assert node.reactor("r").events() == []


@pytest.mark.parametrize("durability", KEPT)
async def test_running_state_that_no_longer_fits_starts_anew_aloud(sqlite: str, durability: Any) -> None:
    """G-6, G-23: as T() does, and said."""

    def load(state: Any) -> list[Any]:
        def total(event: int, state: Any) -> Any:
            return type(state)(state.value + event)

        total.__annotations__["return"] = state
        return [tm.Reactor("r", [tm.passthrough(state=state)(total)], durability=durability)]

    before = msgspec.defstruct("Total", [("value", int, 0)], frozen=True)
    after = msgspec.defstruct("Total", [("value", float, 0.5), ("unit", str, "kg")], frozen=True, array_like=True)
    async with tm.testing.node(store=sqlite, load=load(before)) as node:
        await node.push("total", 4)
    async with tm.testing.node(store=sqlite, load=load(after)) as node:
        assert {event.action for event in node.reactor("r").events()} == {"restored"}
        await node.push("total", 1)
        assert node.reactor("r").state().cache == {"total": [1.5, "kg"]}
