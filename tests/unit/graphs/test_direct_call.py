"""Direct calls of a graph: inputs in, a GraphResult out, and errors with a code."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import tidemill as tm


class Book(tm.Boundary):
    """The state of an order book."""

    bid: float
    ask: float


class DeepBook(Book):
    """A subclass of Book."""


class Row(TypedDict):
    """A dict with declared keys."""

    x: int


@dataclass
class Point:
    """A dataclass."""

    x: int


class Plain:
    """A class that msgspec does not know."""


@tm.passthrough
def orderbook(event: dict) -> Book | None:
    """Emit a book."""
    return None


@tm.polling(every="5s")
def limits() -> int | None:
    """Emit a limit."""
    return None


def maker() -> tm.Graph:
    """Return a bound graph: one required input, one optional, one window."""
    ticks = tm.window("ticks", int, capacity=3)
    graph = tm.Graph("maker", reactor=tm.Reactor("market", [orderbook, limits, ticks]))

    @graph.node
    def decide(orderbook: Book, limits: int | None) -> tuple[float, int | None]:
        return (orderbook.bid, limits)

    @graph.node
    def trend(ticks: list[int]) -> list[int]:
        ticks.append(99)
        return ticks

    return graph


def refused(graph: tm.Graph, **inputs: Any) -> tm.RequestError:
    """Return the error of a call."""
    with pytest.raises(tm.RequestError) as caught:
        graph(**inputs)
    return caught.value


def echo(annotation: Any) -> tm.Graph:
    """Return a trigger-less graph whose one input has this annotation."""
    graph = tm.Graph("echo")

    def show(x):
        return x

    show.__annotations__ = {"x": annotation}
    graph.node(show)
    return graph


def test_a_bound_graph_is_called_with_its_accumulators() -> None:
    """`maker(orderbook=Book(...), ...)` calls it directly; a window that is not given is empty."""
    result = maker()(orderbook=Book(1.0, 2.0), limits=5, ticks=[1, 2])
    assert result.outputs == {"decide": (1.0, 5), "trend": [1, 2, 99]}


def test_an_optional_input_that_is_not_given_is_none() -> None:
    """cloacina 39: the entry of a silent source is None in the node's argument."""
    assert maker()(orderbook=Book(1.0, 2.0)).outputs == {"decide": (1.0, None), "trend": [99]}


def test_a_window_is_read_as_a_fresh_list() -> None:
    """A node that changes its list changes nothing outside."""
    ticks = [1]
    graph = maker()
    assert graph(orderbook=Book(1.0, 2.0), ticks=ticks).outputs["trend"] == [1, 99]
    assert ticks == [1]


def test_a_missing_input_is_rejected_with_a_code() -> None:
    """A missing input in a direct call is a RequestError."""
    error = refused(maker(), limits=3)
    assert (error.code, error.status) == ("missing_input", 400)
    assert "'orderbook'" in str(error)
    assert "'maker'" in str(error)
    assert refused(maker(), orderbook=None).code == "missing_input"


def test_an_unknown_input_is_rejected_with_a_suggestion() -> None:
    """A name that is not an input is rejected, with the nearest one as a suggestion."""
    error = refused(maker(), orderbok=Book(1.0, 2.0))
    assert error.code == "unknown_input"
    assert "did you mean 'orderbook'?" in str(error)


def test_the_name_of_a_node_is_no_input() -> None:
    """Inputs are what no node computes."""
    assert refused(maker(), orderbook=Book(1.0, 2.0), decide=3).code == "unknown_input"


@pytest.mark.parametrize("value", ["text", 3, {"bid": 1.0}, {"bid": "x", "ask": 1.0}, Plain()])
def test_an_input_of_the_wrong_type_is_rejected(value: Any) -> None:
    """A value that does not fit the annotation is a RequestError that names the input."""
    error = refused(maker(), orderbook=value)
    assert error.code == "invalid_input"
    assert "'orderbook'" in str(error)


def test_an_input_is_converted_like_a_pushed_event() -> None:
    """Anything that fits the annotation is converted; an instance passes unchanged."""
    deep = DeepBook(3.0, 4.0)
    assert maker()(orderbook={"bid": 1, "ask": 2}).outputs["decide"] == (1.0, None)
    assert maker()(orderbook=deep).outputs["decide"] == (3.0, None)
    assert echo(Book)(x=deep).outputs["show"] is deep
    assert echo(Book | None)(x=deep).outputs["show"] is deep


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (int, 1, "1"),
        (float, 1, "1"),
        (str, "a", 1),
        (list[int], [1, 2], ["a"]),
        (dict[str, int], {"a": 1}, {"a": "b"}),
        (Row, {"x": 1}, {"x": "a"}),
        (Row, {"x": 1}, {}),
        (Annotated[int, msgspec.Meta(gt=0)], 1, -1),
        (Point, Point(1), 3),
        (Plain, Plain(), 3),
        (Plain | None, Plain(), 3),
        (Plain | Book, Plain(), 3),
        (int | str, "a", 1.5),
        (tuple[int, str], (1, "a"), ("a", 1)),
    ],
)
def test_inputs_are_checked_against_the_annotation(annotation: Any, good: Any, bad: Any) -> None:
    """Fitting values pass with equal value; others are rejected."""
    graph = echo(annotation)
    assert graph(x=good).outputs == {"show": good}
    assert refused(graph, x=bad).code == "invalid_input"


def test_a_trigger_less_graph_takes_the_parameters_that_name_no_node() -> None:
    """A graph without a reactor is trigger-less: parameters that name no node are its inputs."""
    graph = tm.Graph("scoring")

    @graph.node
    def one(x: int, scale: int = 10) -> int:
        return x * scale

    @graph.node
    def two(one: int, extra: int | None, more: int | None = 7) -> tuple[int, int | None, int | None]:
        return (one, extra, more)

    assert graph(x=1).outputs == {"two": (10, None, 7)}
    assert graph(x=1, scale=2, extra=3, more=4).outputs == {"two": (2, 3, 4)}
    assert refused(graph, scale=1).code == "missing_input"


def test_an_input_that_one_node_requires_is_required() -> None:
    """Plain `X` means required, even if other nodes take it as optional."""
    graph = tm.Graph("strict")

    @graph.node
    def one(x: int | None) -> int | None:
        return x

    @graph.node
    def two(x: int) -> int:
        return x

    assert refused(graph).code == "missing_input"
    assert graph(x=1).outputs == {"one": 1, "two": 1}


@pytest.mark.parametrize("order", [(int, int | str), (int | str, int), (int, str), (str, int)])
def test_an_input_of_a_trigger_less_graph_is_the_union_of_its_annotations(order: tuple[Any, Any]) -> None:
    """Each consumer runs for the variants its annotation admits, and a variant that no node takes is rejected."""
    graph = tm.Graph("routing")
    for name, annotation in zip(("one", "two"), order, strict=True):
        graph.node(_taker(name, annotation))
    takes_number = [name for name, note in zip(("one", "two"), order, strict=True) if note is not str]
    takes_text = [name for name, note in zip(("one", "two"), order, strict=True) if note is not int]
    assert list(graph(x=1).outputs) == takes_number
    assert list(graph(x="a").outputs) == takes_text
    assert refused(graph, x=1.5).code == "invalid_input"


def test_an_unannotated_parameter_does_not_loosen_an_input() -> None:
    """The annotation of another node still counts."""
    graph = tm.Graph("loose")
    graph.node(_taker("one", Any))
    graph.node(_taker("two", Book))
    assert refused(graph, x=3).code == "invalid_input"
    assert graph(x={"bid": 1, "ask": 2}).outputs["one"] == Book(1.0, 2.0)


def test_annotations_that_differ_only_in_detail_agree() -> None:
    """`dict` and `dict[str, int]` do not contradict each other."""
    graph = tm.Graph("detail")
    graph.node(_taker("one", dict))
    graph.node(_taker("two", dict[str, int]))
    assert graph(x={"a": 1}).outputs == {"one": {"a": 1}, "two": {"a": 1}}


def test_annotations_that_cannot_be_distinguished_are_a_definition_error() -> None:
    """Variants that are one class at run time cannot be routed."""
    graph = tm.Graph("disagreeing")
    graph.node(_taker("one", list[int]))
    graph.node(_taker("two", list[str]))
    with pytest.raises(tm.DefinitionError, match="'x'") as caught:
        graph.check()
    assert {problem.parameter for problem in caught.value.problems} == {"x"}


def _taker(name: str, annotation: Any) -> Any:
    def taker(x):
        return x

    taker.__name__ = name
    taker.__annotations__ = {"x": annotation}
    return taker


def test_a_graph_bound_by_name_can_be_called_too() -> None:
    """`reactor="name"` is checked at load; until then its inputs are open."""
    graph = tm.Graph("far", reactor="market")

    @graph.node
    def one(orderbook: Book) -> float:
        return orderbook.bid

    assert graph(orderbook=Book(1.0, 2.0)).outputs == {"one": 1.0}


def test_a_node_may_ask_for_its_context() -> None:
    """A parameter annotated `tm.Context` gives firing_id, consumed and log."""
    graph = tm.Graph("knowing")

    @graph.node
    def one(x: int, ctx: tm.Context, y: int | None = None) -> tm.Context:
        ctx.log.info("seen")
        return ctx

    context = graph(x=1).outputs["one"]
    assert context.consumed == [("x", 1)]
    assert isinstance(context.firing_id, str)


def test_the_log_of_a_node_is_structured(caplog: pytest.LogCaptureFixture) -> None:
    """API: `ctx.log`. Keywords are fields, like those in `extra`, and the graph is one of them."""
    graph = tm.Graph("telling")

    @graph.node
    def one(x: int, ctx: tm.Context) -> int:
        ctx.log.info("seen %d", x, rows=3, name="no logger's", extra={"table": "orders", "graph": "another"})
        return x

    with caplog.at_level("INFO"):
        assert graph(x=1).ok
    (record,) = [record for record in caplog.records if record.getMessage() == "seen 1"]
    assert (vars(record)["rows"], vars(record)["table"], vars(record)["graph"]) == (3, "orders", "telling")


@pytest.mark.parametrize("name", ["", " ", "a b ", "a\nb", "a/b", "a\0b", "\udcff", "x" * 201, None, 3])
def test_a_name_can_be_printed_and_stored(name: Any) -> None:
    """Of graphs and of reactors alike."""
    with pytest.raises(tm.DefinitionError, match="a graph needs a name, a text of 1 to 200 characters"):
        tm.Graph(name)
    with pytest.raises(tm.DefinitionError, match="a reactor needs a name, a text of 1 to 200 characters"):
        tm.Reactor(name, [tm.window("rows", int, capacity=1)])


def test_a_context_may_be_optional_and_have_any_name() -> None:
    """The annotation makes it the context, not the name."""
    graph = tm.Graph("knowing")

    @graph.node
    def one(x: int, *, context: tm.Context | None = None) -> bool:
        return isinstance(context, tm.Context)

    assert graph(x=1).outputs == {"one": True}


def test_a_context_is_no_input() -> None:
    """A caller cannot pass the context."""
    graph = tm.Graph("knowing")

    @graph.node
    def one(ctx: tm.Context) -> int:
        return 1

    assert graph().outputs == {"one": 1}
    assert refused(graph, ctx=1).code == "unknown_input"


def test_inputs_are_given_by_name() -> None:
    """Nodes are wired by name, so inputs have no positions."""
    with pytest.raises(TypeError):
        maker()(Book(1.0, 2.0))  # type: ignore[call-arg]
