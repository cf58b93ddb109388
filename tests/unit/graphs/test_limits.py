"""Graphs at the edges: very deep, very long, and full of names that look alike."""

import pickle
from typing import Any

import pytest

import tidemill as tm


class A(tm.Boundary):
    """One variant."""


class B(tm.Boundary):
    """Another."""


def ladder(depth: int) -> tuple[tm.Graph, dict[str, Any]]:
    """Return a graph of routes behind routes that leaves the chain at rung `stop`."""
    graph, names = tm.Graph("ladder"), {"A": A, "B": B, "stop": -1}
    for rung in range(depth):
        takes = "x: int" if rung == 0 else f"rung_{rung - 1}: A"
        exec(f"def rung_{rung}({takes}) -> A | B: return B() if stop == {rung} else A()", names)
        exec(f"def exit_{rung}(rung_{rung}: B) -> int: return {rung}", names)
        graph.node(names[f"rung_{rung}"])
        graph.node(names[f"exit_{rung}"])
    exec(f"def top(rung_{depth - 1}: A) -> str: return 'top'", names)
    graph.node(names["top"])
    return graph, names


@pytest.mark.parametrize("stop", [0, 19, 20, 21, 60, 119])
def test_routes_behind_more_routes_than_python_nests(stop: int) -> None:
    """G-17: a hundred and twenty routes deep, exactly one exit is taken."""
    graph, names = ladder(120)
    names["stop"] = stop
    result = graph(x=1)
    assert result.outputs == {f"exit_{stop}": stop}
    assert len(result.ran) == stop + 2
    names["stop"] = -1
    assert graph(x=1).outputs == {"top": "top"}


def test_classes_that_look_alike_route_by_identity() -> None:
    """Equal names and fields count as one class only for two loaded copies."""

    def make() -> type:
        class Twin(tm.Boundary):
            number: int

        return Twin

    one, other = make(), make()
    graph = tm.Graph("twins")

    def choose(x: int) -> Any:
        return one(x)

    choose.__annotations__["return"] = one | other
    for name, cls in (("first", one), ("second", other)):
        names: dict[str, Any] = {"cls": cls}
        exec(f"def {name}(choose: cls) -> str: return '{name}'", names)
        graph.node(names[name])
    graph.node(choose)
    assert graph(x=1).outputs == {"first": "first"}


def test_a_node_gets_its_own_list_of_consumed_boundaries() -> None:
    """Nodes share values, not lists."""
    graph = tm.Graph("greedy")

    @graph.node
    def eat(x: int, ctx: tm.Context) -> int:
        ctx.consumed.clear()
        return x

    @graph.node
    def count(eat: int, ctx: tm.Context) -> int:
        return len(ctx.consumed)

    assert graph(x=1).outputs == {"count": 1}


def test_a_generator_cannot_be_a_node() -> None:
    """The error says what to do instead."""
    graph = tm.Graph("yields")
    with pytest.raises(tm.DefinitionError, match="return one value instead of yielding"):

        @graph.node
        def several(x: int) -> Any:
            yield x


@pytest.mark.parametrize("ignores", [B, None, "B"])
def test_ignores_needs_a_list(ignores: Any) -> None:
    """A bare class is a common slip."""
    with pytest.raises(tm.DefinitionError, match=r"such as ignores=\[Hold\]"):
        tm.Graph("slip").node(ignores=ignores)


@pytest.mark.parametrize(
    "wrong", [{"on": ("x",)}, {"on": int}, {"backoff": float("nan")}, {"backoff": "2"}, {"delay": float("inf")}]
)
def test_an_invalid_retry_is_rejected_where_it_is_declared(wrong: dict[str, Any]) -> None:
    """G-15: not at the first failure."""
    with pytest.raises(tm.DefinitionError, match="Retry"):
        tm.Retry(2, **wrong)


def test_an_error_without_a_text_is_still_reported() -> None:
    """G-15: the result names the node for every error of author code."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    graph = tm.Graph("mute")

    @graph.node
    def speak(x: int) -> int:
        raise MuteError

    error = graph(x=1).error
    assert error is not None
    assert str(error) == "node 'speak' failed: MuteError: (its text cannot be read)"


def test_errors_travel_between_processes() -> None:
    """A pickled error is equal after unpickling."""
    with pytest.raises(tm.RequestError) as caught:
        tm.testing.node().reactor("r")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.code, again.status) == (
        type(caught.value), str(caught.value), caught.value.code, caught.value.status,
    )  # fmt: skip
    node_error = pickle.loads(pickle.dumps(tm.NodeError("place", ValueError("no"))))
    assert (node_error.node, str(node_error.cause)) == ("place", "no")
