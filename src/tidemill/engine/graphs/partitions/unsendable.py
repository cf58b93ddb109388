"""Events that cannot be sent to the node that runs their partition: reduced to what their annotation needs.

A row of a database may hold values that msgpack does not know, in columns that nothing reads. An event that cannot be
sent even so must not stop those behind it: a partition gets a text instead, which does not fit the annotation, and
keeps that as a dead letter.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.engine.graphs.partitions.partitioned import EventPartitioner
from tidemill.graphs.outcomes import to_jsonable
from tidemill.kernel.errors import RequestError

MAX_SHOWN = 1_000  # characters of an event in its dead letter


def is_unsendable(error: Exception) -> bool:
    """Return whether an error says that an event cannot be sent, now or later."""
    return isinstance(error, RequestError) and error.code == "invalid_value"


def sendable_forms(partitioner: EventPartitioner, event: Any, encoding: str) -> Iterator[Any]:
    """Return forms of an event to send, the best one first; the last one can be sent, and becomes a dead letter."""
    if (reduced := _reduce(partitioner.route(event, encoding).event)) is not None:
        yield reduced
    shown = msgspec.json.encode(to_jsonable(event)).decode()[:MAX_SHOWN]
    text = f"cannot be sent to the node of its partition: {shown}"
    takes_any_bytes = partitioner.validator.exact_class is bytes  # others decode them, and find no value in the text
    yield {"error": text} if takes_any_bytes else text.encode()


def _reduce(event: Any) -> Any:
    """Return a validated event as plain values; None if its annotation names a class that msgpack does not know."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(event))
    except (TypeError, ValueError, OverflowError):
        return None
