"""API: a graph on a reactor whose package has the same classes as its own, loaded twice."""

from typing import Any

import pytest

import tidemill as tm


def load(note: Any = float, origin: Any = tm.Boundary) -> Any:
    """Load a class: once more with every call."""

    class Book(origin):  # type: ignore[misc,valid-type]
        bid: note  # type: ignore[valid-type]

    return Book


class Quote(tm.Boundary):
    """A class that was loaded once."""

    price: float


def reactor(emits: Any) -> tm.Reactor:
    """Return a reactor of one accumulator."""

    def feed(event: Any) -> Any:
        return event

    feed.__annotations__["return"] = emits
    return tm.Reactor("market", [tm.passthrough(feed)])


def graph(*takes: Any) -> tm.Graph:
    """Return a graph with a node for each annotation, which says what it got."""
    made = tm.Graph("reader", reactor="market")
    for number, annotation in enumerate(takes):

        def node(feed: Any) -> Any:
            return type(feed)

        node.__annotations__["feed"] = annotation
        node.__name__ = f"node{number}"
        made.node(node)
    return made


def got(made: tm.Graph, on: tm.Reactor, value: Any) -> dict[str, Any]:
    """Return what each node got for a value of the reactor's."""
    compiled = made.compile_for(on)
    values = compiled.function([value])
    return dict(zip(compiled.layout.returned, values, strict=False))


def test_the_same_classes_cost_nothing() -> None:
    """Q: not even a line."""
    book = load()
    source = graph(book, Quote, Any).compile_for(reactor(book | Quote)).generated.source
    assert "    feed = inputs[0]\n" in source
    assert "own" not in source


def test_another_load_of_a_class_is_made_the_graphs_own() -> None:
    """API: for every node that takes the input, and only if some node names the class."""
    here, there = load(), load()
    on, value = reactor(there | Quote), there(1.0)
    assert "    feed = own_feed(inputs[0])\n" in graph(here).compile_for(on).generated.source
    assert got(graph(here, Quote, Any), on, value) == {"node0": here, "node1": None, "node2": here}
    assert got(graph(here, Quote), on, Quote(1.0)) == {"node0": None, "node1": Quote}
    assert got(graph(Any), on, value) == {"node0": there}
    assert got(graph(here | Quote), on, value) == {"node0": here}


def test_a_class_that_the_graph_has_from_the_reactors_package_stays() -> None:
    """API: whoever names that very class gets it."""
    here, there = load(), load()
    assert got(graph(there, here), reactor(there), there(1.0))["node0"] is there


def test_an_accumulator_that_does_not_say_what_it_emits_hands_it_on_as_it_is() -> None:
    """API: there is nothing to compare."""
    here, there = load(), load()
    assert got(graph(here), reactor(Any), there(1.0)) == {"node0": there}


def test_a_graph_that_is_called_takes_values_of_either_class() -> None:
    """API: and hands its nodes its own."""
    here, there = load(), load()
    on = reactor(there)
    made = tm.Graph("reader", reactor=on)

    @made.node
    def seen(feed: here) -> Any:  # type: ignore[valid-type]
        return type(feed)

    assert [made(feed=value).outputs["seen"] for value in (here(1.0), there(1.0), {"bid": 1.0})] == [here] * 3


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (load(str), load(), r"load\.<locals>\.Book is not the same on both sides: field 'bid' is float there and str"),
        (list[load(str)], list[load()], "Book is not the same on both sides"),  # type: ignore[misc]
        (load(str) | Quote, load() | Quote, r"takes Book \| Quote: .*Book is not the same on both sides"),
    ],
)
def test_classes_that_differ_are_refused(here: Any, there: Any, told: str) -> None:
    """API: naming the first field that does, also if something else could arrive."""
    with pytest.raises(tm.DefinitionError, match=told):
        graph(here).compile_for(reactor(there))


def test_classes_of_other_modules_are_named_with_them() -> None:
    """API: "takes Book, which can never arrive: it emits Book" helps nobody."""
    here, there = load(), load()
    there.__module__ = "elsewhere"
    with pytest.raises(tm.DefinitionError, match=r"emits Book; .*Book is another class than elsewhere\.load"):
        graph(here).compile_for(reactor(there))


def test_a_class_of_which_none_can_be_made_is_refused() -> None:
    """API: before the first value comes."""
    here, there = load(origin=float), load(origin=float)
    with pytest.raises(tm.DefinitionError, match=r"takes Book: no .*Book of this package can be made .*tm\.Boundary"):
        graph(here).compile_for(reactor(there))
