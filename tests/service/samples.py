"""Small definitions that tests of the running service start from; every call makes fresh ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tidemill as tm


class Sample(NamedTuple):
    """A reactor, one graph bound to it, and what the graph has seen, oldest first."""

    reactor: tm.Reactor
    graph: tm.Graph
    seen: list[Any]

    @property
    def load(self) -> list[Any]:
        """Return what a node has to load."""
        return [self.reactor, self.graph]


def ignore(value: Any) -> None:
    """Do nothing with a value."""


def single(act: Callable[[Any], Any] = ignore, **options: Any) -> Sample:
    """Return reactor `r` over passthrough `a` with graph `g`, whose node `out` records the value, then acts on it."""

    @tm.passthrough
    def a(event: int) -> int | None:
        return None if event < 0 else event

    reactor = tm.Reactor("r", [a], **options)
    graph = tm.Graph("g", reactor=reactor)
    seen: list[Any] = []

    @graph.node
    def out(a: int) -> int:
        seen.append(a)
        act(a)
        return a * 10

    return Sample(reactor, graph, seen)


def pair(act: Callable[[Any], Any] = ignore, **options: Any) -> Sample:
    """Return reactor `r` over passthroughs `a` and `b` with graph `g`, which takes both if they are there."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def b(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, b], **options)
    graph = tm.Graph("g", reactor=reactor)
    seen: list[Any] = []

    @graph.node
    def out(a: int | None, b: int | None) -> tuple[int | None, int | None]:
        seen.append((a, b))
        act((a, b))
        return (a, b)

    return Sample(reactor, graph, seen)


def slow(act: Callable[[Any], Any], **options: Any) -> Sample:
    """Return what `single` does, but the node is async and awaits what `act` returns."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a], **options)
    graph = tm.Graph("g", reactor=reactor)
    seen: list[Any] = []

    @graph.node
    async def out(a: int) -> int:
        seen.append(a)
        await act(a)
        return a * 10

    return Sample(reactor, graph, seen)


def observer(reactor: tm.Reactor, name: str = "observer") -> tm.Graph:
    """Return another graph on a reactor of `single`, which does nothing."""
    graph = tm.Graph(name, reactor=reactor)

    @graph.node
    def look(a: int | None) -> None:
        return None

    return graph


def raising(*, when: Callable[[Any], bool], error: type[BaseException] = ValueError) -> Callable[[Any], None]:
    """Return an action that raises for some values."""

    def act(value: Any) -> None:
        if when(value):
            raise error(f"cannot take {value}")

    return act
