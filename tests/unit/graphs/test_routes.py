"""Union routing: the nodes that run for each variant, and the inputs of joins."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NewType, TypedDict

import pytest
from typing_extensions import TypeAliasType

import tidemill as tm


class A(tm.Boundary):
    """One variant."""

    x: int = 0


class B(tm.Boundary):
    """Another variant."""

    x: int = 0


class C(tm.Boundary):
    """A third one."""

    x: int = 0


class SmallA(A):
    """A subclass of A."""


class TinyA(SmallA):
    """A subclass of a subclass of A."""


class Row(TypedDict):
    """A dict with declared keys."""

    x: int


UserId = NewType("UserId", int)
Choice = TypeAliasType("Choice", A | B)


def routed(result: tm.GraphResult) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a text that shows where a value went."""
    assert result.error is None
    return result.outputs, result.skipped


def three_ways() -> tm.Graph:
    """Return a graph that routes on A, B and C, with a second hop behind A and B."""
    graph = tm.Graph("three_ways")

    @graph.node
    def route(value: Any) -> A | B | C:
        return value

    @graph.node
    def on_a(route: A) -> str:
        return "a"

    @graph.node
    def behind_a(on_a: str) -> str:
        return on_a + "a"

    @graph.node
    def on_b(route: B) -> str:
        return "b"

    @graph.node
    def behind_b(on_b: str) -> str:
        return on_b + "b"

    @graph.node
    def on_c(route: C) -> str:
        return "c"

    return graph


@pytest.mark.parametrize(
    ("value", "outputs", "skipped"),
    [
        (A(), {"behind_a": "aa"}, {"on_b", "behind_b", "on_c"}),
        (B(), {"behind_b": "bb"}, {"on_a", "behind_a", "on_c"}),
        (C(), {"on_c": "c"}, {"on_a", "behind_a", "on_b", "behind_b"}),
    ],
)
def test_only_the_taken_branch_runs(value: Any, outputs: dict[str, str], skipped: set[str]) -> None:
    """cloacina 65, 73: other branches and everything behind them are skipped, and absent from the outputs."""
    result = three_ways()(value=value)
    assert result.outputs == outputs
    assert set(result.skipped) == skipped
    assert set(result.ran) | skipped == {"route", "on_a", "behind_a", "on_b", "behind_b", "on_c"}


@pytest.mark.parametrize("value", [SmallA(), TinyA()])
def test_an_instance_of_a_subclass_takes_the_branch_of_its_variant(value: A) -> None:
    """A value is routed by its class, and an instance of a subclass is one of its base too."""
    assert three_ways()(value=value).outputs == {"behind_a": "aa"}


def test_the_nearest_variant_wins_when_one_is_a_subclass_of_another() -> None:
    """`A | SmallA`: a parameter annotated A takes both, one annotated SmallA only the smaller."""
    graph = tm.Graph("nearest")

    @graph.node
    def route(value: A) -> A | SmallA:
        return value

    @graph.node
    def any_a(route: A) -> str:
        return "any"

    @graph.node
    def small(route: SmallA) -> str:
        return "small"

    assert routed(graph(value=A())) == ({"any_a": "any"}, ("small",))
    assert graph(value=SmallA()).outputs == {"any_a": "any", "small": "small"}
    assert graph(value=TinyA()).outputs == {"any_a": "any", "small": "small"}


@pytest.mark.parametrize("value", [None, 3, "text", object()])
def test_an_undeclared_variant_is_an_error_that_names_node_and_class(value: Any) -> None:
    """cloacina 67: an unknown variant is an error naming node and variant."""
    result = three_ways()(value=[value])
    assert result.error is not None
    assert result.error.node == "route"
    assert isinstance(result.error.cause, TypeError)
    assert "'route'" in str(result.error)
    assert "list" in str(result.error)
    assert result.outputs == {}


def test_a_parameter_that_admits_two_variants_runs_for_both() -> None:
    """A join after a route takes `A | B`."""
    graph = tm.Graph("both")

    @graph.node
    def route(value: Any) -> A | B | C:
        return value

    @graph.node
    def either(route: A | B) -> str:
        return type(route).__name__

    @graph.node
    def other(route: C) -> str:
        return "C"

    assert routed(graph(value=A())) == ({"either": "A"}, ("other",))
    assert routed(graph(value=B())) == ({"either": "B"}, ("other",))
    assert routed(graph(value=C())) == ({"other": "C"}, ("either",))


def test_a_join_with_optional_parameters_sees_only_the_taken_branch() -> None:
    """cloacina 74: convergence after routing receives only the taken branch."""
    graph = three_ways()

    @graph.node
    def join(on_a: str | None, on_b: str | None) -> tuple[str | None, str | None]:
        return (on_a, on_b)

    assert graph(value=A()).outputs["join"] == ("a", None)
    assert graph(value=B()).outputs["join"] == (None, "b")


def test_a_join_whose_inputs_were_all_skipped_is_skipped() -> None:
    """Corners: a join whose node inputs were all skipped is skipped, and so is what follows it."""
    graph = three_ways()

    @graph.node
    def join(on_a: str | None, behind_b: str | None, value: Any = None) -> str:
        return "joined"

    @graph.node
    def after(join: str) -> str:
        return "after"

    @graph.node
    def last(join: str | None, on_c: str | None) -> tuple[str | None, str | None]:
        return (join, on_c)

    result = graph(value=C())
    assert {"join", "after"} <= set(result.skipped)
    assert result.outputs == {"last": (None, "c")}


def test_a_join_of_overlapping_routes_runs_when_any_of_them_does() -> None:
    """Optional inputs from branches that overlap in part: at least one must be live."""
    graph = tm.Graph("overlap")

    @graph.node
    def route(value: Any) -> A | B | C:
        return value

    @graph.node
    def ab(route: A | B) -> str:
        return "ab"

    @graph.node
    def bc(route: B | C) -> str:
        return "bc"

    @graph.node
    def join(ab: str | None, bc: str | None) -> str:
        return f"{ab} {bc}"

    @graph.node
    def both(ab: str, bc: str) -> str:
        return ab + bc

    assert routed(graph(value=A())) == ({"join": "ab None"}, ("bc", "both"))
    assert graph(value=B()).outputs == {"join": "ab bc", "both": "abbc"}
    assert routed(graph(value=C())) == ({"join": "None bc"}, ("ab", "both"))


def test_a_join_of_two_independent_routers_runs_when_one_is_live() -> None:
    """The join of branches of different routers is skipped only when both are."""
    graph = tm.Graph("independent")

    @graph.node(ignores=[B])
    def left(one: bool) -> A | B:
        return A() if one else B()

    @graph.node(ignores=[B])
    def right(two: bool) -> A | B:
        return A() if two else B()

    @graph.node
    def join(left: A | None, right: A | None) -> tuple[bool, bool]:
        return (left is not None, right is not None)

    for one in (True, False):
        for two in (True, False):
            outputs = graph(one=one, two=two).outputs
            assert outputs == ({"join": (one, two)} if one or two else {})


def test_routes_nest() -> None:
    """A routed node may route again; everything behind an untaken branch is skipped at any depth."""
    graph = tm.Graph("nested")

    @graph.node
    def outer(value: int) -> A | B:
        return A(value) if value >= 0 else B(value)

    @graph.node
    def inner(outer: A) -> A | B:
        return A(outer.x) if outer.x > 0 else B(outer.x)

    @graph.node
    def plus(inner: A) -> str:
        return "plus"

    @graph.node
    def zero(inner: B) -> str:
        return "zero"

    @graph.node
    def minus(outer: B) -> str:
        return "minus"

    @graph.node
    def sign(plus: str | None, zero: str | None, minus: str | None) -> str:
        return plus or zero or minus or "?"

    assert [graph(value=value).outputs for value in (1, 0, -1)] == [
        {"sign": "plus"},
        {"sign": "zero"},
        {"sign": "minus"},
    ]
    assert graph(value=-1).skipped == ("inner", "plus", "zero")


def test_a_parameter_with_a_default_joins_like_an_optional_one() -> None:
    """A default stands in for a branch that was not taken, mutable or not."""
    graph = three_ways()
    fallback: list[str] = ["none"]

    @graph.node
    def join(on_a: str = "no a", on_b: Any = fallback) -> tuple[str, Any]:
        return (on_a, on_b)

    assert graph(value=A()).outputs["join"] == ("a", ["none"])
    assert graph(value=B()).outputs["join"] == ("no a", "b")
    assert "join" not in graph(value=C()).outputs


def test_a_required_input_beside_an_optional_one_decides() -> None:
    """A node runs when every required edge is live, with or without the optional ones."""
    graph = three_ways()

    @graph.node
    def join(on_a: str | None, route: A | B) -> tuple[str | None, str]:
        return (on_a, type(route).__name__)

    assert graph(value=A()).outputs["join"] == ("a", "A")
    assert graph(value=B()).outputs["join"] == (None, "B")
    assert "join" in graph(value=C()).skipped


def test_none_needs_no_consumer_and_skips_nodes_that_do_not_take_it() -> None:
    """Corners: a node's `None` needs no consumer."""
    graph = tm.Graph("maybe")

    @graph.node
    def maybe(x: int) -> A | None:
        return A() if x else None

    @graph.node
    def takes_a(maybe: A) -> str:
        return "a"

    @graph.node
    def takes_either(maybe: A | None) -> str:
        return repr(maybe)

    assert graph(x=1).outputs == {"takes_a": "a", "takes_either": "A(x=0)"}
    assert routed(graph(x=0)) == ({"takes_either": "None"}, ("takes_a",))


def test_none_may_have_a_consumer_of_its_own() -> None:
    """A parameter annotated None runs for the variant None alone."""
    graph = tm.Graph("nothing")

    @graph.node
    def maybe(x: int) -> A | None:
        return A() if x else None

    @graph.node
    def something(maybe: A) -> str:
        return "something"

    @graph.node
    def nothing(maybe: None) -> str:
        return "nothing"

    assert routed(graph(x=1)) == ({"something": "something"}, ("nothing",))
    assert routed(graph(x=0)) == ({"nothing": "nothing"}, ("something",))


def test_a_none_that_arrived_is_not_replaced_by_the_default() -> None:
    """A default replaces a missing value, not None."""
    graph = tm.Graph("default")

    @graph.node
    def maybe(x: int) -> A | None:
        return A() if x else None

    @graph.node
    def show(maybe: A | None = SmallA()) -> str:  # noqa: B008
        return repr(maybe)

    assert graph(x=0).outputs == {"show": "None"}


def test_an_ignored_variant_goes_nowhere() -> None:
    """`ignores=[Hold]` on the node makes an unused variant explicit."""
    graph = tm.Graph("ignoring")

    @graph.node(ignores=[B, C])
    def route(value: Any) -> A | B | C:
        return value

    @graph.node
    def on_a(route: A) -> str:
        return "a"

    assert routed(graph(value=A())) == ({"on_a": "a"}, ())
    assert routed(graph(value=B())) == ({}, ("on_a",))


def test_ignores_takes_a_union() -> None:
    """`ignores=[B | C]` is equivalent to `ignores=[B, C]`."""
    graph = tm.Graph("ignoring")

    @graph.node(ignores=[B | C])
    def route(value: Any) -> A | B | C:
        return value

    @graph.node
    def on_a(route: A) -> str:
        return "a"

    assert routed(graph(value=C())) == ({}, ("on_a",))


def test_builtin_classes_route_too() -> None:
    """Variants need no boundary class: any class will do, `int` stands for `float`, `bool` is an `int`."""
    graph = tm.Graph("builtins")

    @graph.node
    def route(value: Any) -> float | str | list[int] | Row:
        return value

    for name, annotation in {"number": float, "text": str, "many": list[int], "row": Row}.items():
        graph.node(_taker(name, "route", annotation))

    assert graph(value=1.5).outputs == {"number": 1.5}
    assert graph(value=1).outputs == {"number": 1}
    assert graph(value="x").outputs == {"text": "x"}
    assert graph(value=[1]).outputs == {"many": [1]}
    assert graph(value={"x": 1}).outputs == {"row": {"x": 1}}


def _taker(name: str, parameter: str, annotation: Any) -> Any:
    namespace: dict[str, Any] = {"annotation": annotation}
    exec(f"def {name}({parameter}: annotation): return {parameter}", namespace)
    return namespace[name]


def test_a_newtype_routes_by_the_class_behind_it() -> None:
    """NewType has no class of its own at run time."""
    graph = tm.Graph("newtype")

    @graph.node
    def route(value: Any) -> UserId | str:
        return value

    @graph.node
    def user(route: UserId) -> str:
        return "user"

    @graph.node
    def name(route: str) -> str:
        return "name"

    assert graph(value=1).outputs == {"user": "user"}
    assert graph(value="x").outputs == {"name": "name"}


def test_literals_of_different_classes_route() -> None:
    """A Literal is the class of its values."""
    graph = tm.Graph("literal")

    @graph.node
    def route(value: Any) -> Literal["a", "b"] | Literal[1]:
        return value

    @graph.node
    def text(route: Literal["a", "b"]) -> str:
        return "text"

    @graph.node
    def number(route: int) -> str:
        return "number"

    assert graph(value="b").outputs == {"text": "text"}
    assert graph(value=1).outputs == {"number": "number"}


def test_abstract_classes_route_by_registration() -> None:
    """`Sequence | Mapping`: a list does not inherit from Sequence, but is an instance of it."""
    graph = tm.Graph("abstract")

    @graph.node
    def route(value: Any) -> Sequence[int] | Mapping[str, int]:
        return value

    @graph.node
    def many(route: Sequence[int]) -> str:
        return "many"

    @graph.node
    def keyed(route: Mapping[str, int]) -> str:
        return "keyed"

    assert graph(value=[1]).outputs == {"many": "many"}
    assert graph(value={"a": 1}).outputs == {"keyed": "keyed"}


def test_an_alias_of_a_union_routes_like_the_union() -> None:
    """`type Choice = A | B` means what it stands for."""
    graph = tm.Graph("alias")

    @graph.node
    def route(value: Any) -> Choice:
        return value

    @graph.node
    def on_a(route: A) -> str:
        return "a"

    @graph.node
    def on_b(route: B) -> str:
        return "b"

    assert routed(graph(value=B())) == ({"on_b": "b"}, ("on_a",))


def test_accumulators_route_by_the_variants_they_emit() -> None:
    """A union from an accumulator routes like one from a node."""

    @tm.passthrough
    def feed(event: dict[str, Any]) -> A | B | None:
        return None

    graph = tm.Graph("inputs", reactor=tm.Reactor("r", [feed]))

    @graph.node
    def on_a(feed: A) -> str:
        return "a"

    @graph.node
    def on_b(feed: B) -> str:
        return "b"

    @graph.node
    def show(feed: A | None = None) -> str:
        return repr(feed)

    assert graph(feed=A()).outputs == {"on_a": "a", "show": "A(x=0)"}
    assert graph(feed=SmallA()).outputs == {"on_a": "a", "show": "SmallA(x=0)"}
    assert graph(feed=B()).outputs == {"on_b": "b", "show": "None"}
