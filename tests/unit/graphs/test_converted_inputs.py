"""API: a graph on a reactor of another package, which has its own copies of the graph's classes."""

from typing import Any

import pytest

import tidemill as tm


def load(note: Any = float, origin: Any = tm.Boundary) -> Any:
    """Load a class; each call loads another copy."""

    class Book(origin):
        bid: note

    return Book


class Quote(tm.Boundary):
    """A class of which there is one copy."""

    price: float


def reactor(emits: Any) -> tm.Reactor:
    """Return a reactor of one accumulator."""

    def feed(event: Any) -> Any:
        return event

    feed.__annotations__["return"] = emits
    return tm.Reactor("market", [tm.passthrough(feed)])


def graph(*takes: Any) -> tm.Graph:
    """Return a graph with a node for each annotation, which returns the class of its input."""
    made = tm.Graph("reader", reactor="market")
    for number, annotation in enumerate(takes):

        def node(feed: Any) -> Any:
            return type(feed)

        node.__annotations__["feed"] = annotation
        node.__name__ = f"node{number}"
        made.node(node)
    return made


def received(made: tm.Graph, on: tm.Reactor, value: Any) -> dict[str, Any]:
    """Return the class that each node received for a value of the reactor."""
    compiled = made.compile_for(on)
    values = compiled.function([value])
    return dict(zip(compiled.layout.returned, values, strict=False))


def test_the_same_classes_cost_nothing() -> None:
    """Q: the generated function has no line for them."""
    book = load()
    source = graph(book, Quote, Any).compile_for(reactor(book | Quote)).generated.source
    assert "    feed = inputs[0]\n" in source
    assert "own" not in source


def test_another_copy_of_a_class_is_converted_to_the_graphs_own() -> None:
    """API: for every node that takes the input, and only if some node names the class."""
    here, there = load(), load()
    on, value = reactor(there | Quote), there(1.0)
    assert "    feed = own_feed(inputs[0])\n" in graph(here).compile_for(on).generated.source
    assert received(graph(here, Quote, Any), on, value) == {"node0": here, "node1": None, "node2": here}
    assert received(graph(here, Quote), on, Quote(1.0)) == {"node0": None, "node1": Quote}
    assert received(graph(Any), on, value) == {"node0": there}
    assert received(graph(here | Quote), on, value) == {"node0": here}


def test_a_class_that_the_graph_has_from_the_reactors_package_is_not_converted() -> None:
    """API: a node that names exactly that class gets it."""
    here, there = load(), load()
    assert received(graph(there, here), reactor(there), there(1.0))["node0"] is there


def test_the_values_of_an_untyped_accumulator_are_not_converted() -> None:
    """API: there is nothing to compare."""
    here, there = load(), load()
    assert received(graph(here), reactor(Any), there(1.0)) == {"node0": there}


def test_a_direct_call_takes_values_of_either_class() -> None:
    """API: and passes its own to its nodes."""
    here, there = load(), load()
    on = reactor(there)
    made = tm.Graph("reader", reactor=on)

    @made.node
    def seen(feed: here) -> Any:  # type: ignore[valid-type]
        return type(feed)

    assert [made(feed=value).outputs["seen"] for value in (here(1.0), there(1.0), {"bid": 1.0})] == [here] * 3


@pytest.mark.parametrize(
    ("here", "there", "message"),
    [
        (load(str), load(), r"load\.<locals>\.Book is not the same on both sides: field 'bid' is float there and str"),
        (list[load(str)], list[load()], "Book is not the same on both sides"),  # type: ignore[misc]
        (load(str) | Quote, load() | Quote, r"takes Book \| Quote: .*Book is not the same on both sides"),
    ],
)
def test_different_classes_are_rejected(here: Any, there: Any, message: str) -> None:
    """API: with the first different field, even if other values could arrive."""
    with pytest.raises(tm.DefinitionError, match=message):
        graph(here).compile_for(reactor(there))


def test_classes_of_other_modules_are_named_with_them() -> None:
    """API: "takes Book, which can never arrive: it emits Book" would not help."""
    here, there = load(), load()
    there.__module__ = "tests.elsewhere"
    with pytest.raises(tm.DefinitionError, match=r"emits Book; .*Book is another class than tests\.elsewhere\.load"):
        graph(here).compile_for(reactor(there))


def test_a_class_of_another_package_counts_as_the_own_one_if_name_and_fields_are_equal() -> None:
    """The graph gets its own class, whatever the module of the other one is."""
    here, there = load(), load()
    there.__module__ = "elsewhere"
    bound = graph(here).compile_for(reactor(there))
    assert bound.wiring.needs_context is False
    different = load(str)
    different.__module__ = "elsewhere"
    with pytest.raises(tm.DefinitionError, match=r"than elsewhere\.load.*: field 'bid' is str there and float"):
        graph(here).compile_for(reactor(different))


def test_an_unconvertible_class_is_rejected() -> None:
    """API: before the first value arrives."""
    here, there = load(origin=float), load(origin=float)
    with pytest.raises(tm.DefinitionError, match=r"takes Book: no .*Book of this package can be made .*tm\.Boundary"):
        graph(here).compile_for(reactor(there))
