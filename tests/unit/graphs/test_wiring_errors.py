"""Problems of a graph's declaration: all reported together when it is built, with their locations."""

import inspect
from typing import Any, Literal, TypedDict

import pytest

import tidemill as tm


class A(tm.Boundary):
    """One variant."""


class B(tm.Boundary):
    """Another."""


class Other(tm.Boundary):
    """A variant that no node returns."""


class Row(TypedDict):
    """A dict with declared keys."""

    x: int


class Column(TypedDict):
    """Another dict with declared keys."""

    y: int


@tm.passthrough
def orderbook(event: dict) -> A | None:
    """Emit A."""
    return A()


@tm.passthrough
def pricing(event: dict) -> B:
    """Emit B."""
    return B()


def bound() -> tm.Graph:
    """Return a graph bound to a reactor of two accumulators."""
    return tm.Graph("maker", reactor=tm.Reactor("market", [orderbook, pricing]))


def problems(graph: tm.Graph) -> tuple[tm.Problem, ...]:
    """Return the problems of a graph."""
    with pytest.raises(tm.DefinitionError) as caught:
        graph.check()
    return caught.value.problems


def test_an_unknown_name_is_reported_with_node_parameter_reactor_and_location() -> None:
    """cloacina 69: a build error naming node, input and reactor."""
    graph = bound()

    @graph.node
    def decide(orderbok: A) -> int:
        return 1

    (problem,) = problems(graph)
    assert (problem.node, problem.parameter) == ("decide", "orderbok")
    assert problem.location is not None
    assert problem.location.file == __file__
    assert problem.location.line == inspect.getsourcelines(decide)[1]
    for word in ("'decide'", "'orderbok'", "'market'", "did you mean 'orderbook'?"):
        assert word in str(problem)
    assert str(problem).startswith(f"{__file__}:{problem.location.line}: ")


def test_a_misspelt_node_name_is_suggested() -> None:
    """A node of the graph is a known name as well."""
    graph = bound()

    @graph.node
    def decide(orderbook: A) -> int:
        return 1

    @graph.node
    def place(decid: int) -> int:
        return 1

    (problem,) = problems(graph)
    assert "did you mean 'decide'?" in problem.message


def test_all_problems_come_in_one_error() -> None:
    """G-17: all definition problems reported at once."""
    graph = bound()

    @graph.node
    def one(nothing: A) -> int:
        return 1

    @graph.node
    def two(orderbook: Other, *rest: int) -> int:
        return 1

    @graph.node
    def three(four: int) -> A | B:
        return A()

    @graph.node
    def four(three: A) -> int:
        return 1

    with pytest.raises(tm.DefinitionError) as caught:
        graph.check()
    found = caught.value.problems
    assert {problem.node for problem in found} == {"one", "two", "three"} | {found[-1].node}
    assert len(found) == 5
    assert all(problem.location for problem in found)
    assert "graph 'maker' has 5 problems" in str(caught.value)
    assert all(str(problem) in str(caught.value) for problem in found)


def test_problems_surface_at_the_first_call_and_in_the_source() -> None:
    """Wiring is checked when the graph is first built: at check(), at a call, at source_code."""
    graph = bound()

    @graph.node
    def one(nothing: A) -> int:
        return 1

    with pytest.raises(tm.DefinitionError):
        graph(orderbook=A())
    with pytest.raises(tm.DefinitionError):
        _ = graph.source_code


def test_a_variant_that_no_node_takes_is_an_error() -> None:
    """A union return needs a taker for each variant, or `ignores=`."""
    graph = tm.Graph("partial")

    @graph.node
    def route(x: int) -> A | B:
        return A()

    @graph.node
    def on_a(route: A) -> int:
        return 1

    (problem,) = problems(graph)
    assert problem.node == "route"
    assert "B" in problem.message
    assert "ignores=[B]" in problem.message


def test_a_terminal_node_may_return_a_union() -> None:
    """The variants of a terminal node need no consumer."""
    graph = tm.Graph("terminal")

    @graph.node
    def route(x: int) -> A | B:
        return A()

    graph.check()
    assert graph(x=1).outputs == {"route": A()}


def test_ignoring_what_is_never_returned_is_an_error() -> None:
    """`ignores=` names variants of the node's own result."""
    graph = tm.Graph("ignoring")

    @graph.node(ignores=[Other])
    def route(x: int) -> A | B:
        return A()

    (problem,) = problems(graph)
    assert (problem.node, "Other" in problem.message) == ("route", True)


def test_a_node_without_annotation_may_ignore_anything() -> None:
    """What is not annotated may return anything."""
    graph = tm.Graph("ignoring")

    @graph.node(ignores=[Other])
    def route(x):
        return x

    graph.check()
    assert graph(x=1).outputs == {"route": 1}


@pytest.mark.parametrize("annotation", [Other, Other | None, int, list[A], None])
def test_a_type_that_cannot_arrive_from_a_node_is_an_error(annotation: Any) -> None:
    """A type that cannot arrive is found before anything runs."""
    graph = tm.Graph("never")

    @graph.node
    def source(x: int) -> A | B:
        return A()

    graph.node(_taker("takes_all", A | B))
    graph.node(_taker("wrong", annotation))
    (problem,) = problems(graph)
    assert (problem.node, problem.parameter) == ("wrong", "source")
    assert "never arrive" in problem.message
    assert "A | B" in problem.message


def _taker(name: str, annotation: Any) -> Any:
    def taker(source):
        return 1

    taker.__name__ = name
    taker.__annotations__ = {"source": annotation}
    return taker


def test_a_type_that_cannot_arrive_from_an_accumulator_is_an_error() -> None:
    """The annotation of the accumulator's function decides what can arrive."""
    graph = bound()

    @graph.node
    def decide(orderbook: B) -> int:
        return 1

    (problem,) = problems(graph)
    assert (problem.node, problem.parameter) == ("decide", "orderbook")
    assert "accumulator 'orderbook' emits A" in problem.message


def test_nothing_but_none_arrives_from_a_node_that_returns_none() -> None:
    """A node that returns None cannot feed one that needs a value."""
    graph = tm.Graph("void")

    @graph.node
    def source(x: int) -> None:
        return None

    graph.node(_taker("wrong", A))
    (problem,) = problems(graph)
    assert problem.node == "wrong"


@pytest.mark.parametrize(
    "annotation",
    [
        list[int] | list[str],
        dict[str, int] | dict[str, str],
        Row | dict,
        Row | Column,
        Literal["a"] | Literal["b"],
        Literal["a"] | str,
        list[int] | list[str] | None,
    ],
)
def test_variants_of_one_class_cannot_be_distinguished(annotation: Any) -> None:
    """Corners: variants that are one class at run time are a DefinitionError."""
    graph = tm.Graph("clash")

    def route(x):
        return x

    route.__annotations__ = {"return": annotation}
    graph.node(route)
    (problem,) = problems(graph)
    assert problem.node == "route"
    assert "at run time" in problem.message


def test_variants_of_one_class_from_an_accumulator_cannot_be_routed() -> None:
    """The same holds for what an accumulator emits, when a node takes a part of it."""

    @tm.passthrough
    def many(event: dict) -> list[int] | list[str]:
        return [1]

    graph = tm.Graph("clash", reactor=tm.Reactor("r", [many]))

    @graph.node
    def numbers(many: list[int]) -> int:
        return 1

    (problem,) = problems(graph)
    assert "at run time" in problem.message


def test_a_part_of_a_literal_cannot_be_routed() -> None:
    """The values of a Literal are of one class: taking some of them would be taking all."""
    graph = tm.Graph("literal")

    @graph.node
    def source(x: int) -> Literal["buy", "sell"]:
        return "buy"

    graph.node(_taker("buy", Literal["buy"]))
    graph.node(_taker("either", Literal["sell", "buy"]))
    assert [problem.node for problem in problems(graph)] == ["buy"]


def test_a_cycle_is_an_error_that_shows_the_way() -> None:
    """Cycles are found when the graph is built."""
    graph = tm.Graph("round")

    @graph.node
    def one(three: int) -> int:
        return 1

    @graph.node
    def two(one: int) -> int:
        return 1

    @graph.node
    def three(two: int) -> int:
        return 1

    (problem,) = problems(graph)
    assert "cycle" in problem.message
    assert problem.node in {"one", "two", "three"}
    assert "one -> two -> three -> one" in problem.message * 2 or "->" in problem.message


def test_a_node_that_needs_itself_is_a_cycle() -> None:
    """The shortest cycle."""
    graph = tm.Graph("self")

    @graph.node
    def one(one: int) -> int:
        return 1

    (problem,) = problems(graph)
    assert "one -> one" in problem.message


def test_two_cycles_are_two_problems() -> None:
    """G-17: every cycle is reported."""
    graph = tm.Graph("rounds")

    @graph.node
    def a(b: int) -> int:
        return 1

    @graph.node
    def b(a: int) -> int:
        return 1

    @graph.node
    def c(d: int) -> int:
        return 1

    @graph.node
    def d(c: int) -> int:
        return 1

    assert len(problems(graph)) == 2


def test_a_node_declared_twice_is_an_error_that_names_both_locations() -> None:
    """Two functions of one name would hide each other."""
    graph = tm.Graph("twice")

    @graph.node
    def one(x: int) -> int:
        return 1

    first = graph.nodes[0].function.location

    @graph.node
    def one(x: int) -> int:  # noqa: F811
        return 2

    (problem,) = problems(graph)
    assert problem.node == "one"
    assert str(first) in problem.message
    assert problem.location != first


def test_a_node_named_like_an_accumulator_is_an_error() -> None:
    """Corners: a node named like an accumulator is an error."""
    graph = bound()

    @graph.node
    def orderbook(pricing: B) -> int:
        return 1

    (problem,) = problems(graph)
    assert problem.node == "orderbook"


def test_a_graph_without_nodes_is_an_error() -> None:
    """A graph needs at least one node."""
    (problem,) = problems(tm.Graph("empty"))
    assert "node" in problem.message


def test_parameters_must_be_named() -> None:
    """`*args` and `**kwargs` name nothing that could be wired."""
    graph = tm.Graph("varargs")

    @graph.node
    def one(*values: int, **named: int) -> int:
        return 1

    assert [problem.parameter for problem in problems(graph)] == ["values", "named"]


def test_a_node_that_needs_branches_which_exclude_each_other_is_an_error() -> None:
    """A join of branches takes `A | B` or optional parameters; with required ones it could never run."""
    graph = tm.Graph("exclusive")

    @graph.node
    def route(x: int) -> A | B:
        return A()

    @graph.node
    def on_a(route: A) -> int:
        return 1

    @graph.node
    def on_b(route: B) -> int:
        return 2

    @graph.node
    def join(on_a: int, on_b: int) -> int:
        return 3

    (problem,) = problems(graph)
    assert problem.node == "join"
    assert "| None" in problem.message


def test_an_annotation_that_cannot_be_resolved_is_a_problem_of_its_node() -> None:
    """A misspelt class in a text annotation is reported like everything else."""
    graph = tm.Graph("unresolved")

    @graph.node
    def one(x: "Missing") -> int:  # type: ignore[name-defined] # noqa: F821
        return 1

    (problem,) = problems(graph)
    assert problem.node == "one"
    assert "Missing" in problem.message


def test_an_unresolved_annotation_of_an_accumulator_is_a_problem_too() -> None:
    """What decides how events are validated must not be lost silently."""

    @tm.passthrough
    def feed(event: "Missing") -> A:  # type: ignore[name-defined] # noqa: F821
        return A()

    graph = tm.Graph("unresolved", reactor=tm.Reactor("r", [feed]))

    @graph.node
    def one(feed: A) -> int:
        return 1

    (problem,) = problems(graph)
    assert "Missing" in problem.message
    assert "feed" in problem.message


def test_a_node_feeds_a_window_only_what_it_holds() -> None:
    """The element type of a window is checked against what the node returns."""
    ticks = tm.window("ticks", A, capacity=3)
    graph = tm.Graph("feeding", reactor=tm.Reactor("r", [orderbook, ticks]))

    @graph.node(feeds=ticks)
    def wrong(orderbook: A) -> B:
        return B()

    @graph.node(feeds=ticks)
    def right(orderbook: A) -> A | None:
        return orderbook

    (problem,) = problems(graph)
    assert problem.node == "wrong"


@pytest.mark.parametrize("thing", [lambda x: x, 3, "text", len.__call__, type("Callable", (), {"__call__": id})()])  # type: ignore[operator]
def test_only_a_function_with_a_name_can_be_a_node(thing: Any) -> None:
    """The name is the wiring: what has none cannot be a node."""
    with pytest.raises(tm.DefinitionError):
        tm.Graph("g").node(thing)


def test_a_graph_needs_a_name_and_a_reactor_or_its_name() -> None:
    """Mistakes in the declaration of the graph itself are found at once."""
    for arguments in [("",), (3,)]:
        with pytest.raises(tm.DefinitionError):
            tm.Graph(*arguments)
    with pytest.raises(tm.DefinitionError, match="reactor"):
        tm.Graph("g", reactor=3)


def test_the_three_branches_of_errors() -> None:
    """Errors: one root, three branches by who must act."""
    for branch in (tm.DefinitionError, tm.RequestError, tm.OperationError):
        assert branch.__mro__[1] is tm.TidemillError
    assert issubclass(tm.FullError, tm.RequestError)
    assert issubclass(tm.NodeError, tm.OperationError)
