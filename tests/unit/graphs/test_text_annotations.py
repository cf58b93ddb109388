"""Annotations as text (`from __future__ import annotations`): resolved where the author wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tidemill as tm

if TYPE_CHECKING:
    from typing import Any


class Later:
    """A class at the module's top level."""


def test_classes_local_to_a_function_are_found() -> None:
    """Wiring and routing work with classes that only the author's function can see."""

    class A(tm.Boundary):
        pass

    class B(tm.Boundary):
        pass

    graph = tm.Graph("local")

    @graph.node
    def route(x: int) -> A | B:
        return A() if x else B()

    @graph.node
    def on_a(route: A) -> str:
        return "a"

    @graph.node(ignores=[])
    def on_b(route: B) -> str:
        return "b"

    assert graph(x=1).outputs == {"on_a": "a"}
    assert graph(x=0).outputs == {"on_b": "b"}


def test_classes_of_the_function_around_are_found() -> None:
    """A helper inside a function may declare nodes over that function's classes."""

    class A(tm.Boundary):
        pass

    graph = tm.Graph("outer")

    def declare() -> None:
        @graph.node
        def one(x: A) -> A | None:
            return x

        @graph.node
        def two(one: A) -> str:
            return "a"

    declare()
    assert graph(x=A()).outputs == {"two": "a"}


def test_accumulators_resolve_local_classes_too() -> None:
    """The annotation of an event decides how it is validated."""

    class Quote(tm.Boundary):
        price: float

    @tm.passthrough
    def quotes(event: Quote) -> Quote | None:
        return event

    @tm.batch(every="1s")
    def many(events: list[Quote]) -> Quote | None:
        return None

    @tm.polling(every="1s")
    async def polled() -> Quote | None:
        return None

    assert quotes.event_type is Quote
    assert (quotes.boundary_type, many.event_type, polled.boundary_type) == (Quote, Quote, Quote)


def test_the_context_is_recognised() -> None:
    """`tm.Context` as text is the context."""
    graph = tm.Graph("context")

    @graph.node
    def one(ctx: tm.Context, later: Later | None) -> list[tuple[str, object]]:
        return ctx.consumed

    assert graph().outputs == {"one": []}


def test_a_name_known_to_the_type_checker_only_is_reported() -> None:
    """A name that does not exist at run time cannot be resolved, and the error names it."""
    graph = tm.Graph("checker")

    @graph.node
    def one(x: Any) -> int:
        return 1

    with pytest.raises(tm.DefinitionError, match="Any"):
        graph.check()
