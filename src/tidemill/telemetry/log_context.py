"""The context of log records: the request, the attempt and the firing that the logging code works for.

Every record that is written has their ids, even one of author code that knows nothing of them. The context only holds
functions that return the fields, and sinks of output: they are called when something is written.

Firings do not even set a context, since it would cost every event. While a graph runs, the function that called it is
on the stack, and its globals have a function that describes the firing, under the name `FIRING_ON_STACK`. Firings can
be nested: the innermost one counts. Only asynchronous graphs set a context: their nodes may run in their own tasks.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple, Protocol

LogFields = Mapping[str, Any]
ReadLogFields = Callable[[], LogFields]
"""Returns the fields of log records about something."""


class OutputSink(Protocol):
    """Keeps the output of one attempt or firing. Its methods may be called on any thread."""

    def add_printed(self, stream: str, data: bytes) -> None:
        """Accept what was written to a standard stream."""

    def add_logged(self, record: logging.LogRecord, *, is_shown: bool) -> None:
        """Accept a log record; `is_shown` says whether the handlers of the process get it too."""


class RunningFiring(NamedTuple):
    """A firing that runs now."""

    fields: LogFields
    output: OutputSink | None
    """Keeps what its nodes write; None if that is not kept."""


ReadFiringOnStack = Callable[[FrameType], RunningFiring | None]
"""Returns the firing that the function of a frame runs; None if it runs none."""

FIRING_ON_STACK = "__tidemill_firing__"
"""The name of the `ReadFiringOnStack` in the globals of functions that call graphs."""

REQUEST_ID: ContextVar[str | None] = ContextVar("tidemill_request_id", default=None)
"""The request that is being handled: the server sets it. Audit entries have it too."""
ATTEMPT: ContextVar[ReadLogFields | None] = ContextVar("tidemill_attempt", default=None)
ATTEMPT_OUTPUT: ContextVar[OutputSink | None] = ContextVar("tidemill_attempt_output", default=None)
"""Keeps what the code of the attempt writes."""


@contextmanager
def outside_attempt() -> Iterator[None]:
    """Keep what is written within the context out of the log of the attempt: the node works for it."""
    token = ATTEMPT_OUTPUT.set(None)
    try:
        yield
    finally:
        ATTEMPT_OUTPUT.reset(token)


FIRING: ContextVar[Callable[[], RunningFiring] | None] = ContextVar("tidemill_firing", default=None)
"""The innermost firing of asynchronous graphs; attempts set it to None, so that it never is outside of one."""


def current_log_fields() -> dict[str, Any]:
    """Return the fields of a record that is logged now."""
    fields: dict[str, Any] = {}
    if (request_id := REQUEST_ID.get()) is not None:
        fields["request_id"] = request_id
    if (read_attempt := ATTEMPT.get()) is not None:
        fields |= read_attempt()
    firing = find_firing()
    return fields if firing is None else {**fields, **firing.fields}


def find_firing() -> RunningFiring | None:
    """Return the firing whose code runs now; None if none does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        read_on_stack: ReadFiringOnStack | None = frame.f_globals.get(FIRING_ON_STACK)
        if read_on_stack is not None and (firing := read_on_stack(frame)) is not None:
            return firing
        frame = frame.f_back
    read_firing = FIRING.get()
    return None if read_firing is None else read_firing()
