"""Where workflows meet graphs and reactors: their protocols, and the function of a task that calls a graph.

Workflows and graphs do not import each other. They meet in this module only: a graph or a reactor is any object that
fits the protocol.
"""

import inspect
import keyword
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypedDict

from tidemill.annotations.codec import UnstorableError, build_codec
from tidemill.annotations.signatures import AuthorFunction, Parameter
from tidemill.annotations.variants import is_required
from tidemill.kernel.errors import Location


class CallableGraph(Protocol):
    """A graph that is called with its inputs by keyword, and returns a result or an awaitable of one."""

    name: str

    @property
    def reactor_name(self) -> str | None:
        """The reactor that calls it; a workflow can only call a graph without one."""

    @property
    def is_async(self) -> bool:
        """Whether a call returns an awaitable."""

    def inputs(self) -> Sequence[Parameter]:
        """Return its parameters."""

    @property
    def boundary_types(self) -> Mapping[str, Any] | None:
        """The types of the inputs of its reactor's firings, by accumulator; None if they are not known here."""

    def returns(self) -> Mapping[str, Any]:
        """Return the annotated return types of its terminal nodes, by node."""

    def functions(self) -> Sequence[AuthorFunction]:
        """Return the authors' functions that it consists of."""


class ObservedNode(Protocol):
    """A node as its graph names it, `maker.place`, whose values start workflows."""

    @property
    def graph(self) -> CallableGraph:
        """The graph."""

    @property
    def name(self) -> str:
        """The name of the node."""


class ObservedReactor(Protocol):
    """A reactor whose firings start workflows."""

    name: str

    @property
    def boundary_types(self) -> Mapping[str, Any]:
        """The types of the inputs of its firings, by accumulator."""


def is_callable_graph(value: object) -> bool:
    """Return whether an object fits the protocol, without compiling the graph: `is_async` would."""
    return all(hasattr(type(value), name) for name in ("inputs", "returns", "functions", "is_async"))


def is_task_name(name: object) -> bool:
    """Return whether a task may have this name: a parameter must be able to have it too."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def placeholder_function(name: str, location: Location) -> AuthorFunction:
    """Return the function of a call until the graph is resolved."""

    def call() -> None:
        """Do nothing: the call of the graph replaces it."""

    call.__name__ = call.__qualname__ = name
    return AuthorFunction(call=call, location=location)


def build_call_function(graph: CallableGraph, name: str, location: Location, known: Collection[str]) -> AuthorFunction:
    """Return the function of a task that calls a graph: its inputs are parameters, its output is a dict by node.

    An optional input is left out if no known task has its name.
    """
    taken = [one for one in graph.inputs() if is_required(one) or (one.name in known and one.name != name)]
    call: Any = _async_call(graph) if graph.is_async else _sync_call(graph)
    call.__name__ = call.__qualname__ = name
    call.__annotations__ = {one.name: one.annotation for one in taken} | {"return": _output_type(name, graph)}
    call.__signature__ = inspect.Signature([_inspect_parameter(one) for one in taken])
    return AuthorFunction(call=call, location=location)


def _inspect_parameter(one: Parameter) -> inspect.Parameter:
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.annotation)


def _sync_call(graph: Any) -> Any:
    def call(**inputs: Any) -> dict[str, Any]:
        return _outputs(graph(**inputs))

    return call


def _async_call(graph: Any) -> Any:
    async def call(**inputs: Any) -> dict[str, Any]:
        return _outputs(await graph(**inputs))

    return call


def _outputs(result: Any) -> dict[str, Any]:
    """Return a result's outputs, or raise a node's own exception, so that retries see the author's error."""
    if result.error is not None:
        raise result.error.cause
    outputs: dict[str, Any] = result.outputs
    return outputs


def _output_type(name: str, graph: CallableGraph) -> Any:
    """Return the type of a call's output: by node, as annotated, if values of these types can be stored."""
    nodes = dict(graph.returns())
    named: Any = TypedDict(name, nodes, total=False)  # type: ignore[misc]
    try:
        build_codec(named)
    except UnstorableError:
        return dict[str, Any]
    return named
