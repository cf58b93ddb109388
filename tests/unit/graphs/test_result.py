"""The results of graph calls: outputs, errors, and the lines they point at."""

import gc
import linecache
import traceback

import pytest

import tidemill as tm
from tidemill.graphs import result
from tidemill.kernel.author_errors import TRACEBACK_LIMIT


class A(tm.Boundary):
    """One variant."""


class B(tm.Boundary):
    """Another."""


def failing() -> tm.Graph:
    """Return a chain whose middle node raises."""
    graph = tm.Graph("failing")

    @graph.node
    def first(x: int) -> int:
        return x

    @graph.node
    def side(x: int) -> int:
        return x

    @graph.node
    def middle(first: int) -> int:
        raise ValueError("no luck")  # the author's line

    @graph.node
    def last(middle: int) -> int:
        return middle

    return graph


def test_a_node_that_raises_is_the_error_of_the_result() -> None:
    """cloacina 75: `node 'n' failed: ...`, with node and cause."""
    error = failing()(x=1).error
    assert isinstance(error, tm.NodeError)
    assert isinstance(error, tm.OperationError)
    assert (error.node, type(error.cause)) == ("middle", ValueError)
    assert str(error) == "node 'middle' failed: ValueError: no luck"
    assert error.__cause__ is error.cause


def test_nodes_after_an_error_do_not_run() -> None:
    """cloacina 75: later nodes do not run; earlier ones did."""
    result = failing()(x=1)
    assert not result.ok
    assert result.ran == ("first", "side")
    assert result.skipped == ("last",)
    assert result.outputs == {"side": 1}


def test_a_failed_node_neither_ran_nor_was_skipped() -> None:
    """`ran` are the nodes that finished; the failed one is in `error`."""
    graph = tm.Graph("variant")

    @graph.node
    def route(x: int) -> A | B:
        return x

    @graph.node
    def on_a(route: A) -> int:
        return 1

    @graph.node
    def on_b(route: B) -> int:
        return 2

    result = graph(x=1)
    assert result.error is not None
    assert result.error.node == "route"
    assert "route" not in (*result.ran, *result.skipped)


def test_the_traceback_ends_at_the_authors_line() -> None:
    """G-18: tracebacks of node errors point at the author's line."""
    error = failing()(x=1).error
    assert error is not None
    last = traceback.extract_tb(error.cause.__traceback__)[-1]
    assert (last.filename, last.name) == (__file__, "middle")
    assert last.line is not None
    assert "the author's line" in last.line


def test_the_generated_code_shows_in_the_traceback() -> None:
    """G-18: the generated code shows in tracebacks, through linecache."""
    graph = failing()
    error = graph(x=1).error
    assert error is not None
    text = "".join(traceback.format_exception(error.cause))
    assert "<graph failing" in text
    assert "middle = call_middle(first)" in text


def test_the_lines_of_a_graph_leave_linecache_with_it() -> None:
    """Building and dropping graphs leaves nothing behind."""
    gc.collect()
    before = [name for name in linecache.cache if name.startswith("<graph passing")]
    graph = tm.Graph("passing")
    graph.node(first_of_passing)
    graph(x=1)
    assert [name for name in linecache.cache if name.startswith("<graph passing")] != before
    del graph
    gc.collect()
    assert [name for name in linecache.cache if name.startswith("<graph passing")] == before


def first_of_passing(x: int) -> int:
    """Return the value."""
    return x


def test_an_error_inside_a_branch_names_its_node() -> None:
    """The failing node is known however deep in a route it stands."""
    graph = tm.Graph("branch")

    @graph.node
    def route(x: int) -> A | B:
        return A() if x else B()

    @graph.node
    def on_a(route: A) -> int:
        raise LookupError("gone")

    @graph.node
    def on_b(route: B) -> int:
        return 2

    @graph.node
    def join(on_a: int | None, on_b: int | None) -> int:
        return 3

    result = graph(x=1)
    assert result.error is not None
    assert (result.error.node, result.ran, result.outputs) == ("on_a", ("route",), {})
    assert set(result.skipped) == {"on_b", "join"}
    assert graph(x=0).ok


def test_a_node_that_calls_its_own_graph_is_still_the_one_named() -> None:
    """The error of an inner call, raised again, is the outer node's."""
    graph = tm.Graph("recursive")

    @graph.node
    def outer(depth: int) -> int:
        if not depth:
            return 0
        inner = graph(depth=depth - 1)
        return inner.outputs["last"] + 1

    @graph.node
    def last(outer: int) -> int:
        return 10 // outer

    result = graph(depth=1)
    assert result.error is not None
    assert (result.error.node, type(result.error.cause)) == ("outer", KeyError)


def test_a_base_exception_passes_through_a_call() -> None:
    """KeyboardInterrupt is not an outcome of a graph."""
    graph = tm.Graph("interrupted")

    @graph.node
    def first(x: int) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph(x=1)


def test_a_result_describes_itself() -> None:
    """The repr of a result shows outputs, skipped nodes and the error."""
    text = repr(failing()(x=1))
    assert "outputs={'side': 1}" in text
    assert "skipped=('last',)" in text
    assert "no luck" in text


def test_a_result_outlives_later_calls() -> None:
    """Every call has a result of its own."""
    graph = tm.Graph("own")

    @graph.node
    def keep(x: int) -> int:
        return x

    first, second = graph(x=1), graph(x=2)
    assert (first.outputs, second.outputs) == ({"keep": 1}, {"keep": 2})


def test_the_traceback_of_an_error_is_formatted_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-9: people look at a failing reactor several times a second."""
    graph = tm.Graph("verbose")

    @graph.node
    def fail(x: int) -> int:
        raise ValueError("x" * 1_000_000)

    error = graph(x=1).error
    assert error is not None
    text = error.traceback
    assert len(text) <= TRACEBACK_LIMIT
    assert "in fail" in text
    monkeypatch.setattr(result, "format_traceback", lambda _: "again")
    assert error.traceback == text
