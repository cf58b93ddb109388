"""What users rely on of the types: `make lint` asks both checkers, and the tests run the same lines.

A decorator keeps the signature of its function; what a function returns is the type of its output, wherever it is read.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, assert_type

import tidemill as tm
from tidemill.api.handles import AsyncRun

if TYPE_CHECKING:
    pass


class Book(tm.Boundary):
    bid: float
    ask: float = 0.0


class Order(tm.Boundary):
    price: float


class Day(tm.Params):
    day: str
    limit: int = 10


@tm.passthrough
def orderbook(event: Book) -> Book | None:
    return event


@tm.polling(every="5s")
async def limits() -> float:
    return 4.0


@tm.batch(every="1s")
def trades(events: list[Book]) -> Order:
    return Order(events[0].bid)


@tm.stream(tm.Kafka(topic="prices"), state=Book)
def prices(event: Book, state: Book) -> Book:
    return event


market = tm.Reactor("market", [orderbook])
maker = tm.Graph("maker", reactor=market)


@maker.node
def place(orderbook: Book) -> Order:
    return Order(orderbook.bid)


@maker.node
async def report(place: Order) -> str:
    return f"placed at {place.price}"


quote = tm.Graph("quote")


@quote.node
def price(book: Book, ctx: tm.Context) -> float:
    assert_type(ctx.firing_id, str)
    return book.bid


checks = tm.Workflow("checks", params=Day, triggers=[tm.on_output(maker.report)])


@checks.task
def fetch(params: Day, ctx: tm.Context) -> list[float]:
    assert_type(ctx.secret("token"), str)
    assert_type(ctx.push(orderbook, Book(1.0)), tm.Receipt)
    assert_type(ctx.start(other).id, str)
    assert_type(ctx.slot, datetime | None)
    return [float(params.limit)]


@checks.task(retry=3, timeout="1m")
async def publish(fetch: list[float], ctx: tm.AsyncContext) -> str:
    assert_type(await ctx.secret("token"), str)
    assert_type(await ctx.push("orderbook", Book(1.0)), tm.Receipt)
    assert_type(await ctx.start("other", day="monday"), AsyncRun)
    return str(fetch)


other = tm.Workflow("other")


@other.task
def nothing(ctx: tm.Context) -> None:
    assert_type(ctx.run_id, str)


@tm.trigger(every="10s")
def new_file() -> tm.Fire | None:
    return None


def test_classes_of_values_have_a_constructor_with_their_fields() -> None:
    """`tm.Boundary` takes its fields by position or name, `tm.Params` by name."""
    assert assert_type(Book(1.0, ask=2.0).ask, float) == 2.0
    assert assert_type(Day(day="monday").limit, int) == 10


def test_decorators_keep_the_signature_of_a_function() -> None:
    """Nodes and tasks stay functions; accumulators and triggers are called as their functions."""
    assert assert_type(orderbook(Book(1.0)), Book | None) == Book(1.0)
    assert assert_type(trades([Book(1.0)]), Order) == Order(1.0)
    assert assert_type(prices(Book(1.0), state=Book(2.0)), Book) == Book(1.0)
    assert assert_type(place(Book(1.0)), Order) == Order(1.0)
    assert assert_type(new_file(), tm.Fire | None) is None


async def test_the_call_of_an_async_accumulator_is_awaited() -> None:
    """As that of its function."""
    assert assert_type(await limits(), float) == 4.0


async def test_the_call_of_a_graph_is_a_result_or_awaits_one() -> None:
    """Type checkers cannot know whether one of its nodes is async, and allow both."""
    result = quote(book=Book(1.0))
    assert assert_type(result.output(price), float) == 1.0
    assert assert_type(result.ok, bool)


async def test_a_node_of_tests_gives_outputs_the_type_of_the_function() -> None:
    """Of firings and of runs; a workflow is started by its object or its name."""
    async with tm.testing.node(load=[market, maker, other]) as node:
        assert_type(node, tm.testing.TestNode)
        assert assert_type(await node.push(orderbook, Book(1.0)), tm.Receipt).accepted
        await node.settle()
        firing = node.reactor("market").firings()[0]
        assert assert_type(firing.output(report), str) == "placed at 1.0"
        assert firing.output(maker.report) == "placed at 1.0"  # a checker knows the nodes of a graph by no name: Any
        run = assert_type(await node.start(other), AsyncRun)
        assert assert_type(await run.wait(), tm.RunResult).ok
        assert (await (await node.start("other")).wait()).ok


def test_the_output_of_a_task_has_the_type_that_its_function_declares() -> None:
    """Also of an `async def`."""

    def read(result: tm.RunResult) -> None:
        assert_type(result.output(publish), str)
        assert_type(result.output(fetch), list[float])
        assert_type(result.output("fetch"), Any)

    assert assert_type(other.run(), tm.RunResult).output(nothing) is None
    assert callable(read)
