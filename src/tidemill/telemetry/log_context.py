"""The context of log records: the request, the attempt and the firing that the logging code works for.

Every record that is written has their ids, even one of author code that knows nothing of them. The context only holds
functions that return the fields: they are called when something is logged.

Firings do not even set a context, since it would cost every event. While a graph runs, the function that called it is
on the stack, and its globals have a function that describes the firing, under the name `FIRING_ON_STACK`. Firings can
be nested: the innermost one counts. Only asynchronous graphs set a context: their nodes may run in their own tasks.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

LogFields = Mapping[str, Any]
ReadLogFields = Callable[[], LogFields]
"""Returns the fields of log records about something."""
ReadFiringOnStack = Callable[[FrameType], LogFields]
"""Returns the fields of the firing that the function of a frame runs; none if it runs none."""

FIRING_ON_STACK = "__tidemill_firing__"
"""The name of the `ReadFiringOnStack` in the globals of functions that call graphs."""

REQUEST_ID: ContextVar[str | None] = ContextVar("tidemill_request_id", default=None)
ATTEMPT: ContextVar[ReadLogFields | None] = ContextVar("tidemill_attempt", default=None)
FIRING: ContextVar[ReadLogFields | None] = ContextVar("tidemill_firing", default=None)


@contextmanager
def request_scope(request_id: str) -> Iterator[None]:
    """Work for a request inside."""
    token = REQUEST_ID.set(request_id)
    try:
        yield
    finally:
        REQUEST_ID.reset(token)


def current_log_fields() -> dict[str, Any]:
    """Return the fields of a record that is logged now."""
    fields: dict[str, Any] = {}
    if (request_id := REQUEST_ID.get()) is not None:
        fields["request_id"] = request_id
    if (read_attempt := ATTEMPT.get()) is not None:
        fields |= read_attempt()
    return {**fields, **_read_firing()}


def _read_firing() -> LogFields:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        read_on_stack: ReadFiringOnStack | None = frame.f_globals.get(FIRING_ON_STACK)
        if read_on_stack is not None and (fields := read_on_stack(frame)):
            return fields
        frame = frame.f_back
    read_firing = FIRING.get()
    return {} if read_firing is None else read_firing()
