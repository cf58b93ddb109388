"""A graph as far as a workflow knows it: something with inputs and outputs that a task may call.

Workflows and graphs know nothing of one another. This is the one place where they meet, and they meet as strangers: a
graph is whatever looks like this.
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
    """A graph that is called with its inputs by keyword, and gives a result or an awaitable of one."""

    name: str

    @property
    def reactor_name(self) -> str | None:
        """The reactor that calls it; a workflow calls only what has none."""

    @property
    def is_async(self) -> bool:
        """Whether calling it gives an awaitable."""

    def inputs(self) -> Sequence[Parameter]:
        """Return what it is called with."""

    def returns(self) -> Mapping[str, Any]:
        """Return what its terminal nodes return, by their names, as annotated."""

    def functions(self) -> Sequence[AuthorFunction]:
        """Return the authors' functions that it is made of."""


def is_callable_graph(value: object) -> bool:
    """Return whether something looks like a graph; nothing of it is built in order to find out."""
    return all(hasattr(type(value), name) for name in ("inputs", "returns", "functions", "is_async"))


def is_task_name(name: object) -> bool:
    """Return whether a task may have this name, so that a parameter can have it too."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def placeholder_function(name: str, location: Location) -> AuthorFunction:
    """Return what stands for the call of a graph until that is known."""

    def call() -> None:
        """Hold the place."""

    call.__name__ = call.__qualname__ = name
    return AuthorFunction(call=call, location=location)


def build_call_function(graph: CallableGraph, name: str, location: Location, known: Collection[str]) -> AuthorFunction:
    """Return the function of a task that calls a graph: its inputs are parameters, its outputs a dict by node.

    An input that the graph can do without is left out if nothing known has its name.
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
    """Return a result's outputs, or raise what a node raised, so that retries see the author's own error."""
    if result.error is not None:
        raise result.error.cause
    outputs: dict[str, Any] = result.outputs
    return outputs


def _output_type(name: str, graph: CallableGraph) -> Any:
    """Return what a call gives: by node, each as annotated, if values of these can be stored at all."""
    nodes = dict(graph.returns())
    named: Any = TypedDict(name, nodes, total=False)  # type: ignore[misc]
    try:
        build_codec(named)
    except UnstorableError:
        return dict[str, Any]
    return named
