"""Subscriptions of workflows to a reactor, and the values of nodes as they are delivered to workflows.

A value is encoded when its node has returned it, with the name of its class. So a delivery after a restart is the same
as one without, and each side may have its own loaded copy of the class.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from tidemill.annotations.codec import UnstorableError, encode_msgpack
from tidemill.annotations.variants import full_name
from tidemill.graphs.outcomes import to_jsonable


class Subscription(NamedTuple):
    """A workflow that a reactor's firings start: all of them, or those in which one terminal node returned a value."""

    tenant: str
    """The tenant of the workflow; a graph may be bound to a reactor of another tenant."""
    workflow: str
    graph: str | None = None
    """The name of the graph among those bound to the reactor; None for a subscription to all firings."""
    node: str | None = None


class FailedDelivery(NamedTuple):
    """Why a firing never starts the run of a subscription."""

    reason: str
    attempts: int


class GraphNodeOutput(msgspec.Struct, frozen=True, array_like=True):
    """A value that a node returned, as msgpack."""

    variant: str
    """The name of its class, or of the declared class that it is an instance of."""
    value: bytes

    @classmethod
    def encode(cls, value: Any, declared: Sequence[type] | None) -> "GraphNodeOutput":
        """Encode a value of a node that returns these classes; None for any.

        What msgspec does not know is described: the workflow then refuses it, or gets the description.
        """
        own = type(value)
        matching = [] if declared is None or own in declared else [one for one in declared if isinstance(value, one)]
        try:
            encoded = encode_msgpack(value)
        except UnstorableError:
            encoded = encode_msgpack(to_jsonable(value))
        return cls(full_name(matching[0] if matching else own), encoded)
