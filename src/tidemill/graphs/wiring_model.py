"""A wired graph as frozen values: nodes, the edges between them, inputs."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import msgspec

from tidemill.annotations.signatures import Parameter
from tidemill.graphs.definition import NodeDefinition


class Origin(Enum):
    """What a parameter is fed from."""

    NODE = "node"
    INPUT = "input"
    CONTEXT = "context"


class Edge(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One parameter of a node and where its value comes from."""

    parameter: Parameter
    origin: Origin
    source: str
    optional: bool
    admitted: tuple[type, ...] | None = None  # None: whatever comes

    @property
    def fallback(self) -> Any:
        """What the parameter gets when nothing arrives."""
        return self.parameter.default if self.parameter.has_default else None


class WiredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its edges, and the classes its result can have (None: anything)."""

    node: NodeDefinition
    edges: tuple[Edge, ...]
    classes: tuple[type, ...] | None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def upstream_edges(self) -> Iterable[Edge]:
        """The edges that come from other nodes."""
        return (edge for edge in self.edges if edge.origin is Origin.NODE)


class GraphInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a graph: its name, its type, and whether the graph cannot do without it."""

    name: str
    annotation: Any
    required: bool
    is_window: bool = False
    convert: Callable[[Any], Any] | None = None
    """Makes a value that the reactor's package has its own class for one of the graph's class; None if that is one."""


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """A graph that can be compiled: every name resolved, nothing left to doubt."""

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
        """Whether some node asks for the firing's context."""
        return any(edge.origin is Origin.CONTEXT for wired in self.nodes for edge in wired.edges)
