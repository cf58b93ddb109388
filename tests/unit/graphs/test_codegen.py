"""The generated function: readable, the same every time, and safe from the author's names."""

import os
import subprocess
import sys
from typing import Any

import pytest

import tidemill as tm


class A(tm.Boundary):
    """One variant."""


class B(tm.Boundary):
    """Another."""


NAMES = [
    *("list", "type", "dict", "print", "Exception", "BaseException", "NoneType", "object", "isinstance"),
    *(
        "inputs",
        "context",
        "SKIPPED",
        "error",
        "event",
        "unknown",
        "graph",
        "tasks",
        "FirstErrorGroup",
        "layout",
        "state",
        "counter",
        "push_slow",
    ),
    *("reject_unknown", "failed", "GraphResult", "in_thread", "fresh", "self", "cls", "function", "values", "result"),
    *("validate_x", "call_first", "first_is", "first_task", "variant_of_first", "default_first_x", "A", "B", "x_is"),
]


def chain(name: str) -> tm.Graph:
    """Return a graph with a node of this name between two others, the first of which routes."""
    graph = tm.Graph("graph")

    @graph.node
    def first(x: int) -> A | B:
        return A() if x else B()

    namespace: dict[str, Any] = {"A": A}
    exec(f"def {name}(first, x=5): return ('middle', x)", namespace)
    namespace[name].__annotations__ = {"first": A}
    graph.node(namespace[name])
    exec(f"def last({name}): return {name}", namespace)
    graph.node(namespace["last"])

    @graph.node
    def other(first: B) -> str:
        return "other"

    return graph


@pytest.mark.parametrize("name", NAMES)
def test_a_node_may_have_any_name(name: str) -> None:
    """G-17: names of builtins and of the generated function's own helpers are free for nodes."""
    graph = chain(name)
    assert graph(x=1).outputs == {"last": ("middle", 1)}
    assert graph(x=0).outputs == {"other": "other"}
    assert graph(x=1).ran == ("first", name, "last")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("x_is", "first_is", "first_task")])
def test_an_input_may_have_any_name(name: str) -> None:
    """G-17: names of builtins and of the generated function's own helpers are free for inputs."""
    graph = tm.Graph("inputs")
    namespace: dict[str, Any] = {}
    exec(f"def first({name}: int, ctx): return ({name}, ctx.consumed)", namespace)
    namespace["first"].__annotations__["ctx"] = tm.Context
    graph.node(namespace["first"])
    assert graph(**{name: 1}).outputs == {"first": (1, [(name, 1)])}


@pytest.mark.parametrize("name", NAMES)
async def test_an_async_node_may_have_any_name(name: str) -> None:
    """G-17: the same where nodes wait at the same time."""
    graph = tm.Graph("graph")

    @graph.node
    async def first(x: int) -> A | B:
        return A() if x else B()

    @graph.node
    async def second(x: int) -> int:
        return x

    namespace: dict[str, Any] = {}
    exec(f"async def {name}(first, second): return ('middle', second)", namespace)
    namespace[name].__annotations__ = {"first": A}
    graph.node(namespace[name])
    exec(f"def last({name}, first): return {name}", namespace)
    graph.node(namespace["last"])

    @graph.node
    def other(first: B) -> str:
        return "other"

    assert (await graph(x=1)).outputs == {"last": ("middle", 1)}
    assert (await graph(x=0)).outputs == {"other": "other"}


@pytest.mark.parametrize("name", ["a graph", "2nd", "class", "x²", "été", "list", "a-b.c", "!", "first"])
def test_a_graph_may_have_any_name(name: str) -> None:
    """A graph's name is a text for people; the function is named as nearly as Python allows."""
    graph = tm.Graph(name)

    @graph.node
    def first(x: int) -> int:
        return x

    assert graph(x=1).outputs == {"first": 1}
    assert graph.source_code.startswith("def ")


async def test_a_keyword_only_parameter_named_function_reaches_a_thread_node() -> None:
    """G-17: the helper that calls a thread takes no name away from the author."""
    graph = tm.Graph("thread")

    @graph.node(thread=True)
    def first(x: int, *, function: int, values: int) -> tuple[int, int, int]:
        return (x, function, values)

    result = await graph(x=1, function=2, values=3)
    assert result.outputs == {"first": (1, 2, 3)}


def test_the_source_reads_like_a_hand_written_function() -> None:
    """G-17: one generated function; routes are plain ifs on the class of a value."""
    graph = tm.Graph("maker")

    @graph.node
    def decide(price: int) -> A | B:
        return A() if price else B()

    @graph.node
    def place(decide: A) -> int:
        return 1

    @graph.node
    def audit(decide: B) -> int:
        return 2

    source = graph.source_code
    assert source.startswith("def maker(")
    assert "decide = call_decide(price)" in source
    assert "if decide_is is A:\n        place = call_place(decide)" in source
    assert "else:\n        audit = call_audit(decide)" in source
    compile(source, "maker", "exec")


def test_the_source_is_the_same_every_time() -> None:
    """G-17: two builds of one declaration give one text."""
    assert chain("middle").source_code == chain("middle").source_code


def test_the_source_does_not_depend_on_hashes() -> None:
    """G-17, cloacina 71: nothing follows hash order."""
    script = "from tests.unit.graphs.test_codegen import chain; print(chain('middle').source_code)"
    sources = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert sources == {chain("middle").source_code + "\n"}


def test_two_classes_of_one_name_are_distinguished() -> None:
    """Classes are compared by identity, not by name."""
    inner = type("A", (tm.Boundary,), {"__module__": "elsewhere"})
    graph = tm.Graph("twins")
    namespace: dict[str, Any] = {}
    exec("def route(x): return x\ndef one(route): return 1\ndef two(route): return 2", namespace)
    for name, notes in {"route": {"return": A | inner}, "one": {"route": A}, "two": {"route": inner}}.items():
        namespace[name].__annotations__ = notes
        graph.node(namespace[name])
    assert graph(x=A()).outputs == {"one": 1}
    assert graph(x=inner()).outputs == {"two": 2}
