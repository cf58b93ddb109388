"""A wired graph as frozen values: nodes, the edges between them, inputs."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import msgspec

from tidemill.annotations.signatures import Parameter
from tidemill.graphs.definition import GraphNodeDefinition


class InputOrigin(Enum):
    """The kind of source that feeds a parameter."""

    NODE = "node"
    INPUT = "input"
    CONTEXT = "context"


class Edge(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One parameter of a node and the source of its value."""

    parameter: Parameter
    origin: InputOrigin
    source: str
    optional: bool
    admitted: tuple[type, ...] | None = None
    """The classes that travel along the edge; None for all."""

    @property
    def fallback(self) -> Any:
        """The value of the parameter when nothing arrives."""
        return self.parameter.default if self.parameter.has_default else None


class WiredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its edges, and the classes its result can have (None: any)."""

    node: GraphNodeDefinition
    edges: tuple[Edge, ...]
    classes: tuple[type, ...] | None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def upstream_edges(self) -> Iterable[Edge]:
        """Return the edges that come from other nodes."""
        return (edge for edge in self.edges if edge.origin is InputOrigin.NODE)


class GraphInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a graph: its name, its type, and whether it is required."""

    name: str
    annotation: Any
    required: bool
    is_window: bool = False
    convert: Callable[[Any], Any] | None = None
    """Converts a value from the reactor's class to the graph's own; None if they are the same."""


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """A graph that can be compiled: every name is resolved."""

    name: str
    nodes: tuple[WiredNode, ...]
    inputs: tuple[GraphInput, ...]
    terminals: frozenset[str]
    reactor: str | None = None

    @property
    def is_async(self) -> bool:
        """Whether some node must be awaited."""
        return any(wired.node.needs_await for wired in self.nodes)

    @property
    def needs_context(self) -> bool:
        """Whether some node takes the firing's context."""
        return any(edge.origin is InputOrigin.CONTEXT for wired in self.nodes for edge in wired.edges)
