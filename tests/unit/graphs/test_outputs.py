"""`output(node)`: the value of a node by its function, its reference or its name."""

from datetime import UTC, datetime
from typing import Any, assert_type

import msgspec
import pytest

import tidemill as tm
from tidemill.graphs.result import Firing
from tidemill.graphs.views import FiringView
from tidemill.workflows.result import RunResult

maker, other = tm.Graph("maker"), tm.Graph("other")


class Order(tm.Boundary):
    """What a node decides."""

    price: float
    at: datetime


class Hold(tm.Boundary):
    """Another decision."""


@maker.node
def decide(price: float) -> Order | Hold:
    """Order at a positive price."""
    return Order(price, datetime(2026, 1, 1, tzinfo=UTC)) if price > 0 else Hold()


@maker.node
def place(decide: Order) -> Order:
    """Place an order."""
    return decide


@maker.node
async def audit(decide: Hold) -> str:
    """Note that nothing is done."""
    return "held"


@other.node(ignores=[])
def double(price: float) -> float:
    """Double a price."""
    return 2 * price


same = tm.Graph("same")
same.node(double)


async def fire(price: float) -> Firing:
    """Return a firing of all graphs."""
    results = {"maker": await maker(price=price), "other": other(price=price), "same": same(price=price)}
    return Firing("1", "market", datetime(2026, 1, 1, tzinfo=UTC), {"price": price}, results, 0.0)


async def test_an_output_has_the_type_of_the_function() -> None:
    """Issue 24: `firing.output(place)`; type checkers infer the type, of async functions too."""
    firing, held = await fire(1.5), await fire(-1.0)
    placed = assert_type(firing.output(place), Order)
    assert placed.price == 1.5
    assert assert_type(held.output(audit), str) == "held"
    assert firing.output(maker.place) is firing.output("place") is placed
    assert firing.results["maker"].output(place) is placed
    assert firing.output(other.double) == firing.output(same.double) == 3.0


async def test_a_node_without_an_output_is_an_error() -> None:
    """It was skipped, is unknown or inside, or several graphs have one of its name."""
    firing = await fire(1.5)
    for node, reason in (
        (audit, "firing 1 has no output 'audit': the node was skipped"),
        ("plce", "did you mean 'place'"),
        (decide, "not a terminal one"),
        (double, "other, same each have one"),
        (other.double._replace(name="place"), "no output 'place'"),
    ):
        with pytest.raises(tm.RequestError, match=reason) as raised:
            firing.output(node)
        assert (raised.value.code, raised.value.status) == ("no_output", 409)


async def test_a_client_gets_the_declared_type_too() -> None:
    """What came as JSON is converted to what the function declares; by its name it is a plain value."""
    view = FiringView.of(await fire(1.5))
    assert assert_type(view.output(place), Order) == (await fire(1.5)).output(place)
    assert view.output(maker.place) == view.output(place)
    assert view.results["maker"].output("place") == {"price": 1.5, "at": "2026-01-01T00:00:00Z"}

    def place_(decide: Order) -> int: ...

    place_.__name__ = "place"
    with pytest.raises(tm.RequestError, match="is not what the function declares"):
        view.output(place_)


def test_a_run_at_a_client_has_the_declared_types() -> None:
    """What a server sends is plain: the function says what it was."""
    flow = tm.Workflow("shop")

    @flow.task
    def order() -> Order:
        return Order(1.5, datetime(2026, 1, 1, tzinfo=UTC))

    result = flow.run()
    sent = msgspec.convert(msgspec.to_builtins(result), RunResult)
    assert sent.output("order") == {"price": 1.5, "at": "2026-01-01T00:00:00Z"}
    assert assert_type(sent.output(order), Order) == result.output(order) == result.output("order")
    assert sent.output(flow.tasks[0]) == result.output(order)
    text = msgspec.structs.replace(result.tasks["order"], output="text")
    with pytest.raises(tm.RequestError, match="is not what the function declares"):
        msgspec.structs.replace(result, tasks={"order": text}).output(order)


def test_a_run_has_the_outputs_of_its_tasks() -> None:
    """`result.output(publish)`, with the reason if there is none."""
    flow = tm.Workflow("report")

    @flow.task
    def fetch() -> list[int]:
        return [1, 2]

    @flow.task(each="fetch")
    def clean(fetch: int) -> int:
        return fetch + 1

    @flow.task
    def publish(clean: list[int]) -> str:
        return str(clean)

    @flow.task(after=[publish])
    def fail() -> int:
        raise tm.Fail("no")

    result = flow.run()
    assert assert_type(result.output(publish), str) == result.output("publish") == "[2, 3]"
    assert result.output("clean") == [2, 3]
    problems: list[tuple[Any, str]] = [(clean, "is mapped"), (fail, "it is failed"), ("nothing", "has no task")]
    for task, reason in problems:
        with pytest.raises(tm.RequestError, match=reason):
            result.output(task)
