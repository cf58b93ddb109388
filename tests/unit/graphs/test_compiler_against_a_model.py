"""Random graphs with random routers: the compiled function against an interpreter that follows the documented rules.

The interpreter is the specification in its shortest form: an edge is live when its source ran and returned a variant
that the parameter admits; a node runs when all its required edges are live, and at least one if nodes feed it at all.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidemill as tm


class A(tm.Boundary):
    """One variant."""

    by: str


class B(tm.Boundary):
    """Another variant."""

    by: str


class C(tm.Boundary):
    """A third one."""

    by: str


class SmallA(A):
    """A subclass of A that no annotation names."""


VARIANTS: tuple[Any, ...] = (A, B, C, None)
UNSET: Any = inspect.Parameter.empty

Picks = dict[str, int]


@dataclass(frozen=True)
class Take:
    """One parameter: its source, the variants it admits, and its fallback."""

    source: str
    admits: tuple[Any, ...]
    optional: bool
    default: Any
    keyword_only: bool

    @property
    def fallback(self) -> Any:
        return None if self.default is UNSET else self.default

    def takes(self, value: Any) -> bool:
        return any(value is None if one is None else isinstance(value, one) for one in self.admits) or (
            value is None and self.optional and self.default is UNSET
        )

    def parameter(self) -> inspect.Parameter:
        notes = self.admits + ((None,) if self.optional and self.default is UNSET else ())
        kind = inspect.Parameter.KEYWORD_ONLY if self.keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.source, kind, default=self.default, annotation=union(notes))


@dataclass(frozen=True)
class Spec:
    """One node: its parameters, the variants it may return, and how it is run."""

    name: str
    takes: tuple[Take, ...]
    returns: tuple[Any, ...]
    mode: str


def union(parts: tuple[Any, ...]) -> Any:
    """Return `A | B | None` for its parts."""
    return reduce(or_, dict.fromkeys(type(None) if part is None else part for part in parts))


# Hypothesis checks every strategy that it meets first: these are made once, not once for each draw.

COUNTS, FLAGS, DEFAULTS = st.integers(2, 9), st.booleans(), st.sampled_from([UNSET, "instead", None])


@cache
def some_of(values: Sequence[Any], least: int, most: int | None = None) -> st.SearchStrategy[list[Any]]:
    """Draw different ones of some values."""
    return st.lists(st.sampled_from(values), min_size=least, max_size=most, unique=True)


@cache
def runs_of(count: int) -> st.SearchStrategy[list[Picks]]:
    """Draw six runs of a graph with so many nodes."""
    picks = st.fixed_dictionaries({f"n{index}": st.integers(0, 11) for index in range(count)})
    return st.lists(picks, min_size=6, max_size=6)


@cache
def orders_of(count: int) -> st.SearchStrategy[list[int]]:
    """Draw an order in which the nodes are declared."""
    return st.permutations(range(count))


@st.composite
def specs(draw: st.DrawFn, modes: tuple[str, ...]) -> list[Spec]:
    """Draw the nodes of a graph, each fed by some of those before it."""
    nodes: list[Spec] = []
    for index in range(draw(COUNTS)):
        sources = [nodes[one] for one in draw(some_of(range(index), 0, 3))] if nodes else []
        parameters = sorted((draw_take(draw, one) for one in sources), key=lambda one: one.keyword_only)
        optional_last = sorted(parameters, key=lambda one: (one.keyword_only, one.default is not UNSET))
        real = draw(some_of(VARIANTS[:3], 1))
        returns = (*real, None) if draw(FLAGS) else tuple(real)
        nodes.append(Spec(f"n{index}", tuple(optional_last), returns, draw(st.sampled_from(modes))))
    return nodes


def draw_take(draw: st.DrawFn, source: Spec) -> Take:
    """Draw a parameter that takes some of the variants a node may return."""
    real = tuple(one for one in source.returns if one is not None)
    admits = tuple(draw(some_of(real, 1)))
    optional = draw(FLAGS)
    default = draw(DEFAULTS) if optional else UNSET
    return Take(source.name, admits, optional, default, draw(FLAGS))


def pick(spec: Spec, picks: Picks) -> Any:
    """Return the value that a node returns in this run."""
    number = picks[spec.name]
    chosen = spec.returns[number % len(spec.returns)]
    if chosen is None:
        return None
    return SmallA(spec.name) if chosen is A and number % 2 else chosen(spec.name)


def interpret(nodes: list[Spec], picks: Picks) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the arguments and the result of every node that runs."""
    arguments: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    for node in nodes:
        live = [take.source in values and take.takes(values[take.source]) for take in node.takes]
        required = all(is_live or take.optional for take, is_live in zip(node.takes, live, strict=True))
        if required and (any(live) or not node.takes):
            pairs = zip(node.takes, live, strict=True)
            arguments[node.name] = {one.source: values[one.source] if ok else one.fallback for one, ok in pairs}
            values[node.name] = pick(node, picks)
    return arguments, values


class RecordedGraph:
    """A real graph built from a specification, which records every call."""

    def __init__(self, nodes: list[Spec], order: list[Spec]) -> None:
        self.nodes = nodes
        self.picks: Picks = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.graph = tm.Graph("recorded")
        for spec in order:
            ignores = [one for one in spec.returns if one is not None]
            self.graph.node(thread=spec.mode == "thread", ignores=ignores)(self._function(spec))
        try:
            self.graph.check()
        except tm.DefinitionError as error:
            assume("can never run" not in str(error))
            raise

    def _function(self, spec: Spec) -> Callable[..., Any]:
        signature = inspect.Signature([take.parameter() for take in spec.takes])

        def plain(*values: Any, **named: Any) -> Any:
            assert spec.name not in self.calls, "a node runs once per call"
            self.calls[spec.name] = signature.bind(*values, **named).arguments
            return pick(spec, self.picks)

        async def waiting(*values: Any, **named: Any) -> Any:
            await asyncio.sleep(0)
            return plain(*values, **named)

        function: Any = waiting if spec.mode == "async" else plain
        function.__name__ = spec.name
        function.__signature__ = signature
        function.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
        function.__annotations__["return"] = union(spec.returns)
        return function

    def compare(self, result: tm.GraphResult, picks: Picks) -> None:
        """Check a result, and the calls that led to it, against the interpreter."""
        arguments, values = interpret(self.nodes, picks)
        consumed = {take.source for spec in self.nodes for take in spec.takes}
        assert result.error is None
        assert self.calls == arguments
        assert set(result.ran) == set(values)
        assert set(result.skipped) == {spec.name for spec in self.nodes} - set(values)
        assert result.outputs == {name: value for name, value in values.items() if name not in consumed}
        for spec in self.nodes:
            for take in spec.takes:
                if spec.name in result.ran and take.source in result.ran:
                    assert result.ran.index(take.source) < result.ran.index(spec.name)

    def prepare(self, picks: Picks) -> None:
        """Reset the records before a call."""
        self.calls, self.picks = {}, picks


@st.composite
def recorded_graphs(draw: st.DrawFn, modes: tuple[str, ...]) -> tuple[RecordedGraph, list[Picks]]:
    """Draw a graph, declared in any order, and some runs of it."""
    nodes = draw(specs(modes))
    recorded = RecordedGraph(nodes, [nodes[one] for one in draw(orders_of(len(nodes)))])
    return recorded, draw(runs_of(len(nodes)))


@given(recorded_graphs(modes=("plain",)))
def test_a_synchronous_graph_follows_the_rules(drawn: tuple[RecordedGraph, list[Picks]]) -> None:
    """G-17, cloacina 64, 65, 71, 73, 74: what runs, with which arguments, and what comes back."""
    recorded, runs = drawn
    for picks in runs:
        recorded.prepare(picks)
        result = recorded.graph()
        recorded.compare(result, picks)
        assert list(recorded.calls) == list(result.ran)


@given(recorded_graphs(modes=("plain",)))
def test_the_function_that_a_reactor_calls_does_the_same(drawn: tuple[RecordedGraph, list[Picks]]) -> None:
    """G-17: a direct call and a firing run the same body."""
    recorded, runs = drawn
    compiled = recorded.graph.compiled()
    for picks in runs:
        recorded.prepare(picks)
        recorded.compare(tm.GraphResult(compiled.layout, compiled.function([])), picks)


@given(recorded_graphs(modes=("plain", "async")))
def test_an_asynchronous_graph_follows_the_rules(drawn: tuple[RecordedGraph, list[Picks]]) -> None:
    """G-17, cloacina 77: the same where nodes wait, one by one or at the same time."""
    recorded, runs = drawn

    async def call_all() -> None:
        for picks in runs:
            recorded.prepare(picks)
            result = recorded.graph()
            recorded.compare(await result if inspect.isawaitable(result) else result, picks)

    asyncio.run(call_all())


@given(recorded_graphs(modes=("plain", "plain", "async")))
def test_every_failure_names_its_node_and_keeps_what_ran(drawn: tuple[RecordedGraph, list[Picks]]) -> None:
    """cloacina 75: whichever node fails, it is named, and nothing behind it runs."""
    recorded, (picks, *_) = drawn
    arguments, _ = interpret(recorded.nodes, picks)
    for victim in arguments:
        recorded.prepare({name: number for name, number in picks.items() if name != victim})
        result = recorded.graph()
        result = asyncio.run(_await(result)) if inspect.isawaitable(result) else result
        assert result.error is not None
        assert (result.error.node, type(result.error.cause)) == (victim, KeyError)
        assert set(result.ran) <= set(arguments) - _behind(recorded.nodes, victim)
        assert sorted((*result.ran, *result.skipped, victim)) == sorted(spec.name for spec in recorded.nodes)


async def _await(result: Any) -> tm.GraphResult:
    return await result


def _behind(nodes: list[Spec], victim: str) -> set[str]:
    behind = {victim}
    for spec in nodes:
        if any(take.source in behind for take in spec.takes):
            behind.add(spec.name)
    return behind


@given(specs(modes=("plain",)))
def test_the_generated_source_is_a_function_of_the_declaration(nodes: list[Spec]) -> None:
    """G-17: building twice gives the same text."""
    assert RecordedGraph(nodes, nodes).graph.source_code == RecordedGraph(nodes, nodes).graph.source_code


def test_the_interpreter_knows_a_simple_route() -> None:
    """The model itself, checked by one example that a person can follow."""
    nodes = [
        Spec("route", (), (A, B), "plain"),
        Spec("on_a", (Take("route", (A,), False, UNSET, False),), (C,), "plain"),
        Spec("join", (Take("on_a", (C,), True, UNSET, False),), (C,), "plain"),
    ]
    assert list(interpret(nodes, {"route": 0, "on_a": 0, "join": 0})[1]) == ["route", "on_a", "join"]
    assert list(interpret(nodes, {"route": 1, "on_a": 0, "join": 0})[1]) == ["route"]


@pytest.mark.parametrize("mode", ["thread"])
async def test_threads_follow_the_same_rules(mode: str) -> None:
    """cloacina 77: a fan of blocking nodes, joined."""
    fan = [Spec(f"n{index}", (), (A, None), mode) for index in range(4)]
    join = Spec("join", tuple(Take(one.name, (A,), True, UNSET, True) for one in fan), (B,), mode)
    recorded = RecordedGraph([*fan, join], [join, *fan])
    picks = {"n0": 0, "n1": 1, "n2": 2, "n3": 3, "join": 0}
    recorded.prepare(picks)
    recorded.compare(await recorded.graph(), picks)
