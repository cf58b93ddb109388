"""Graphs, firings and results as every surface shows them: as JSON, whatever classes authors declare."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from tidemill.annotations.declared import to_declared
from tidemill.graphs.key_forms import key_to_json
from tidemill.graphs.outcomes import GraphNode, Receipt, find_output, to_jsonable
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.telemetry.log_records import LogRecord

if TYPE_CHECKING:
    from tidemill.graphs.result import Firing, GraphResult, NodeError

Output = TypeVar("Output")

ReactorCommand = Literal["force_fire", "fire_with", "pause", "resume", "restart"]
"""What an operator can tell a reactor."""

FIRING_COMMANDS = ("force_fire", "fire_with")
"""Commands to a keyed reactor that are for one key."""


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a node."""

    node: str
    message: str
    traceback: str
    """Where it was raised: in the generated function, and in the author's code."""

    @classmethod
    def of(cls, error: "NodeError") -> "NodeFailure":
        """Return the view of an error."""
        return cls(node=error.node, message=str(error), traceback=error.traceback)


class GraphResultView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call of a graph."""

    ok: bool
    outputs: dict[str, Any]
    """The results of the terminal nodes that ran, by name."""
    ran: list[str]
    skipped: list[str]
    error: NodeFailure | None

    @classmethod
    def of(cls, result: "GraphResult") -> "GraphResultView":
        """Return the view of a result."""
        error = result.error
        return cls(
            ok=result.ok,
            outputs={name: to_jsonable(value) for name, value in result.outputs.items()},
            ran=list(result.ran),
            skipped=list(result.skipped),
            error=None if error is None else NodeFailure.of(error),
        )

    @overload
    def output(self, node: Callable[..., Awaitable[Output]], /) -> Output: ...
    @overload
    def output(self, node: Callable[..., Output], /) -> Output: ...
    @overload
    def output(self, node: GraphNode | str, /) -> Any: ...
    def output(self, node: Any, /) -> Any:
        """Return what a terminal node returned. Name it by its function: the output has the type that this declares.

        `maker.place` names the graph too, where several have a node of this name; type checkers see `Any`. A name,
        "place", gives a plain value.
        """
        return to_declared(find_output({"": self}, node, "the result"), node)


class FiringView(msgspec.Struct, frozen=True, kw_only=True):
    """One firing of a reactor: the snapshot it saw, and the result of each graph."""

    id: str
    reactor: str
    at: datetime
    duration: float
    """In seconds."""
    ok: bool
    manual: bool
    degraded: bool
    attempt: int
    inputs: dict[str, Any]
    results: dict[str, GraphResultView]
    key: Any = None
    """Of a keyed reactor: the key whose inputs it saw, as JSON."""
    runs: list[str] = []
    """The runs that it has started; only in lists of firings."""
    omitted: dict[str, int] = {}
    """By path, the bytes of values that a list leaves out because they are large."""
    log: list[LogRecord] = []
    """What its nodes printed, logged and warned about; at most 64 KiB."""

    @classmethod
    def of(cls, firing: "Firing") -> "FiringView":
        """Return the view of a firing."""
        return cls(
            id=firing.id,
            reactor=firing.reactor,
            at=firing.at,
            duration=firing.duration,
            ok=firing.ok,
            manual=firing.manual,
            degraded=firing.degraded,
            attempt=firing.attempt,
            inputs={name: to_jsonable(value) for name, value in firing.inputs.items()},
            results={name: GraphResultView.of(result) for name, result in firing.results.items()},
            key=key_to_json(firing.key),
            log=firing.log,
        )

    @overload
    def output(self, node: Callable[..., Awaitable[Output]], /) -> Output: ...
    @overload
    def output(self, node: Callable[..., Output], /) -> Output: ...
    @overload
    def output(self, node: GraphNode | str, /) -> Any: ...
    def output(self, node: Any, /) -> Any:
        """Return what a terminal node returned. Name it by its function: the output has the type that this declares.

        `maker.place` names the graph too, where several have a node of this name; type checkers see `Any`. A name,
        "place", gives a plain value.
        """
        return to_declared(find_output(self.results, node, f"firing {self.id}"), node)


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command has done: the firing, if it was one to fire, and the state of the reactor afterwards."""

    firing: FiringView | None
    state: ReactorState


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a dead letter that was processed again: a receipt, a firing or a run, by its kind."""

    receipt: Receipt | None = None
    firing: FiringView | None = None
    run: str | None = None
    """The id of the run that was started; null if the firing starts none now."""


class AccumulatorDetails(AccumulatorState, frozen=True, kw_only=True):
    """One accumulator at one moment, and what it takes."""

    reactors: list[str]
    """The reactors that it feeds."""
    event_schema: dict[str, Any] | None
    """The JSON Schema of an event; null if its type has none."""
    boundary_schema: dict[str, Any] | None
    """The JSON Schema of the boundaries that it emits, which are the inputs of `fire_with`."""


class GraphSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded graph."""

    name: str
    reactor: str | None
    """The reactor it is bound to; null for a graph that is only called."""
    nodes: list[str]


class GraphInputView(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a graph."""

    name: str
    type: str
    required: bool
    is_window: bool


class NodeInputView(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a node, and the source of its value."""

    parameter: str
    type: str
    origin: Literal["node", "input", "context"]
    source: str
    """The name of the node or of the input."""
    optional: bool


class GraphNodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a graph."""

    name: str
    inputs: list[NodeInputView]
    returns: str
    routes: dict[str, list[str]]
    """By the class of its result: the nodes that receive it. Empty if its result is not routed by class."""
    is_terminal: bool
    is_async: bool
    feeds: str | None
    """The accumulator that its results are pushed into."""
    owner: str = ""
    description: str = ""
    """Its description, or the docstring of its function."""


class GraphEdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """A connection from an input or a node to a node."""

    source: str
    target: str
    parameter: str
    classes: list[str] | None
    """The classes of values that pass; null for all."""
    optional: bool


class GraphDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded graph with its nodes in execution order, its edges, and the function that it is compiled to."""

    name: str
    reactor: str | None
    is_async: bool
    inputs: list[GraphInputView]
    nodes: list[GraphNodeView]
    edges: list[GraphEdgeView]
    source: str
    """The generated function, as Python text."""
    owner: str = ""
    """Whom to ask, as its author declares it."""
    description: str = ""
    """What it is for."""
