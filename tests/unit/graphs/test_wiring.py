"""Wiring by parameter name: sources, order and results."""

import functools
from typing import Any

import pytest

import tidemill as tm


class Book(tm.Boundary):
    """The state of an order book."""

    bid: float
    ask: float


def test_a_parameter_names_the_node_that_feeds_it() -> None:
    """G-17: nodes are wired by parameter name, in any order of declaration."""
    graph = tm.Graph("sum")

    @graph.node
    def total(left: int, right: int) -> int:
        return left * 10 + right

    @graph.node
    def right(number: int) -> int:
        return number + 2

    @graph.node
    def left(number: int) -> int:
        return number + 1

    assert graph(number=1).outputs == {"total": 23}


def test_arguments_bind_by_name_and_never_by_order_of_declaration() -> None:
    """cloacina 71: fan-in arguments bind by name."""
    graph = tm.Graph("fan_in")
    for name in ("c", "a", "b"):
        graph.node(_constant(name))

    @graph.node
    def join(b: str, c: str, a: str) -> str:
        return b + c + a

    assert graph().outputs == {"join": "bca"}


def _constant(name: str) -> Any:
    def constant() -> str:
        return name

    constant.__name__ = name
    return constant


def test_a_diamond_runs_every_node_once() -> None:
    """cloacina 64: topological order, each node once per traversal."""
    calls: list[str] = []
    graph = tm.Graph("diamond")

    @graph.node
    def bottom(left: int, right: int) -> int:
        calls.append("bottom")
        return left + right

    @graph.node
    def left(top: int) -> int:
        calls.append("left")
        return top + 1

    @graph.node
    def right(top: int) -> int:
        calls.append("right")
        return top + 2

    @graph.node
    def top(x: int) -> int:
        calls.append("top")
        return x

    result = graph(x=1)
    assert result.outputs == {"bottom": 5}
    assert sorted(calls) == ["bottom", "left", "right", "top"]
    assert (calls[0], calls[-1]) == ("top", "bottom")
    assert result.ran == tuple(calls)


def test_terminals_are_the_nodes_that_no_node_consumes() -> None:
    """cloacina 73: all terminal outputs come back, by node name."""
    graph = tm.Graph("fan_out")

    @graph.node
    def source(x: int) -> int:
        return x

    @graph.node
    def one(source: int) -> int:
        return source + 1

    @graph.node
    def two(source: int) -> int:
        return source + 2

    result = graph(x=0)
    assert result.outputs == {"one": 1, "two": 2}
    assert (result.ran, result.skipped, result.error, result.ok) == (("source", "one", "two"), (), None, True)


def test_fan_out_hands_the_same_value_to_all() -> None:
    """cloacina 72: values are shared by reference, and a boundary cannot be changed."""
    graph = tm.Graph("shared")

    @graph.node
    def one(book: Book) -> Book:
        return book

    @graph.node
    def two(book: Book) -> Book:
        return book

    book = Book(bid=1.0, ask=2.0)
    result = graph(book=book)
    assert result.outputs["one"] is book
    assert result.outputs["two"] is book
    with pytest.raises(AttributeError):
        book.bid = 3.0


def test_a_decorated_node_stays_an_ordinary_function() -> None:
    """A node can be called and tested by itself."""
    graph = tm.Graph("plain")

    @graph.node
    def double(x: int) -> int:
        return 2 * x

    @graph.node(ignores=[])
    def triple(x: int) -> int:
        return 3 * x

    assert (double(2), triple(2)) == (4, 6)


def test_a_node_without_parameters_always_runs() -> None:
    """A node that needs nothing is due on every call."""
    graph = tm.Graph("constant")

    @graph.node
    def answer() -> int:
        return 42

    assert graph().outputs == {"answer": 42}


def test_a_node_may_be_added_after_a_call() -> None:
    """Wiring is redone when the graph has grown."""
    graph = tm.Graph("growing")

    @graph.node
    def one(x: int) -> int:
        return x

    assert graph(x=1).outputs == {"one": 1}

    @graph.node
    def two(one: int) -> int:
        return one + 1

    assert graph(x=1).outputs == {"two": 2}


def test_none_is_a_result_like_any_other() -> None:
    """A node that returns None ran; its None is its output."""
    graph = tm.Graph("none")

    @graph.node
    def quiet(x: int) -> None:
        return None

    result = graph(x=1)
    assert result.outputs == {"quiet": None}
    assert result.ran == ("quiet",)


def test_an_unannotated_parameter_takes_anything() -> None:
    """Corners: an unannotated parameter is `Any`."""
    graph = tm.Graph("loose")

    @graph.node
    def first(x):
        return [x]

    @graph.node
    def second(first, *, y):
        return (first, y)

    assert graph(x=1, y="z").outputs == {"second": ([1], "z")}
    assert graph(x={"a": 1}, y=Book).outputs == {"second": ([{"a": 1}], Book)}


def test_keyword_only_and_positional_only_parameters_are_wired_alike() -> None:
    """Parameters of every kind are wired by name."""
    graph = tm.Graph("kinds")

    @graph.node
    def one(x: int, /, y: int, *, z: int, w: int = 7) -> tuple[int, ...]:
        return (x, y, z, w)

    assert graph(x=1, y=2, z=3).outputs == {"one": (1, 2, 3, 7)}
    assert graph(x=1, y=2, z=3, w=4).outputs == {"one": (1, 2, 3, 4)}


def test_a_decorated_function_keeps_its_wiring() -> None:
    """A wrapper made with functools.wraps is wired like what it wraps, and its problems point there."""
    graph = tm.Graph("wrapped")

    def twice(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*values: Any, **named: Any) -> Any:
            return 2 * function(*values, **named)

        return wrapper

    @graph.node
    @twice
    def one(x: int, *, y: int) -> int:
        return x + y

    assert graph(x=1, y=2).outputs == {"one": 6}
    assert graph.nodes[0].function.location.line == one.__wrapped__.__code__.co_firstlineno


def test_the_same_inputs_give_the_same_outputs_in_the_same_order() -> None:
    """G-17, cloacina 76: same inputs, same order of nodes, same outputs."""
    graph = tm.Graph("steady")
    for name in ("e", "b", "d", "a", "c"):
        graph.node(_constant(name))
    first, second = graph(), graph()
    assert first.outputs == second.outputs
    assert first.ran == second.ran == ("e", "b", "d", "a", "c")


def test_one_function_may_be_a_node_of_two_graphs() -> None:
    """Declaring leaves the function alone, so graphs can share it."""
    one, two = tm.Graph("one"), tm.Graph("two")

    @one.node
    @two.node
    def double(x: int) -> int:
        return 2 * x

    assert one(x=1).outputs == two(x=1).outputs == {"double": 2}
