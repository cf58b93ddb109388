"""Outputs by node: the value that a node returned in a firing or in a call of a graph."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean


class NodeOfGraph(Protocol):
    """A node as its graph names it: `maker.place`."""

    @property
    def graph(self) -> Any:
        """The graph."""

    @property
    def name(self) -> str:
        """The name of the node."""

    @property
    def function(self) -> Any:
        """The function of the node, as its graph has captured it."""


class HasOutputs(Protocol):
    """The result of a call of a graph."""

    @property
    def outputs(self) -> dict[str, Any]:
        """The results of the terminal nodes that ran, by name."""


def find_output(results: Mapping[str, HasOutputs], node: Callable[..., Any] | NodeOfGraph | str, whole: str) -> Any:
    """Return what a node returned; RequestError unless exactly one graph has an output of this node.

    A result that has no name, "", is that of the right graph.
    """
    name = node if isinstance(node, str) else str(getattr(node, "__name__", None) or getattr(node, "name", ""))
    graph = getattr(getattr(node, "graph", None), "name", None)
    found = {key: one.outputs for key, one in results.items() if not key or graph in (None, key)}
    having = [key for key, outputs in found.items() if name in outputs]
    if len(having) == 1:
        return found[having[0]][name]
    known = [one for outputs in found.values() for one in outputs]
    reason = f"the node was skipped, failed, or is not a terminal one{did_you_mean(name, known)}"
    if having:
        reason = f"{', '.join(having)} each have one: write `graph.{name}` with one of these graphs"
    raise RequestError(f"{whole} has no output '{name}': {reason}", code="no_output", status=409)
