"""Receipts, dead letters and outputs: what becomes of events, with their values as JSON."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean

Outcome = Literal["emitted", "suppressed", "buffered", "rejected", "dead_lettered"]
"""What became of an event."""


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a pushed event."""

    accepted: bool
    sequence: int
    outcome: Outcome
    reason: str | None = None


RejectionCode = Literal["accumulator_down", "not_stored", "paused", "queue_full", "rejected"]
"""Why an event was rejected, for programs."""


class Rejection(Receipt, frozen=True):
    """The receipt of an event that was rejected: it had no effect, and may be pushed again."""

    code: RejectionCode = "rejected"


def may_accept_later(receipt: Receipt) -> bool:
    """Return whether an event was rejected, and not because its reactor rejects what does not fit into its queue."""
    return isinstance(receipt, Rejection) and receipt.code != "queue_full"


DeadLetterKind = Literal["event", "firing", "start"]


class DeadLetter(msgspec.Struct, frozen=True):
    """An event or a firing that could not be processed, or a run that could not be started, kept for replay."""

    id: str
    kind: DeadLetterKind
    source: str
    at: datetime
    error: str
    event: Any = None
    inputs: dict[str, Any] | None = None
    attempts: int = 1
    workflow: str | None = None
    """The workflow of which a firing could not start a run."""
    firing_id: str | None = None
    """The firing that could not start it."""
    key: Any = None
    """Of a keyed reactor: the key of the event or the firing; None if the event has none."""
    omitted: dict[str, int] = {}
    """By path, the bytes of values that a list leaves out because they are large."""


def to_jsonable(value: Any, describe_unknown: Callable[[Any], Any] = repr) -> Any:
    """Return a value as JSON-able builtins; `describe_unknown` converts values that msgspec does not know."""
    try:
        return msgspec.to_builtins(value, enc_hook=describe_unknown, str_keys=True)
    except Exception:  # author code: a value may be of any class, and its repr may raise
        return f"<{type(value).__name__}>"


class GraphNode(Protocol):
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


def find_output(results: Mapping[str, HasOutputs], node: Callable[..., Any] | GraphNode | str, whole: str) -> Any:
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
