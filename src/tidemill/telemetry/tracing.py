"""Tracing: one trace from a request through the run that it starts, its tasks, and the firings between them.

A trace context is passed on: by a header, with the stored run, with the request of an attempt. Spans are recorded whole
when they end, with ids and times that are given, because a run may begin on one node and end on another. The node
chooses what records them. Without a collector nothing is created, stored or passed on.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from secrets import token_hex
from typing import Any, Literal, NamedTuple, Protocol

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 0x01

SpanKind = Literal["server", "internal", "consumer"]


class TraceContext(NamedTuple):
    """A span within its trace, as W3C Trace Context identifies it."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @classmethod
    def parse(cls, traceparent: str) -> "TraceContext | None":
        """Return the context of a `traceparent`; None if it is malformed: then a new trace begins."""
        found = _TRACEPARENT.fullmatch(traceparent)
        if found is None:
            return None
        return cls(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))

    @classmethod
    def new(cls, parent: "TraceContext | None") -> "TraceContext":
        """Return the context of a new span: in the trace of its parent, or in a new one."""
        if parent is None:
            return cls(token_hex(16), token_hex(8))
        return cls(parent.trace_id, token_hex(8), parent.is_sampled)

    def to_traceparent(self) -> str:
        """Return the context as the value of a `traceparent` header."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


class Span(NamedTuple):
    """Something that took time, as it is recorded at its end."""

    context: TraceContext
    parent_id: str | None
    name: str
    start: datetime
    end: datetime
    kind: SpanKind = "internal"
    attributes: Mapping[str, Any] = {}
    error: str | None = None
    """Why it failed; None if it did not."""


class SpanRecorder(Protocol):
    """Records spans."""

    is_enabled: bool
    """Whether there is anything that wants spans."""

    def record(self, span: Span) -> None:
        """Record a span that has ended."""

    def close(self) -> None:
        """Send what is recorded, and end. It may block for some seconds."""


class NoSpans(SpanRecorder):
    """Records nothing."""

    is_enabled = False

    def record(self, span: Span) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class StoredTrace(NamedTuple):
    """The span of a run, and its parent, as they are stored with the run."""

    context: TraceContext
    parent_id: str | None

    @classmethod
    def new(cls, parent: TraceContext | None) -> "StoredTrace":
        """Return the trace of a new run."""
        return cls(TraceContext.new(parent), None if parent is None else parent.span_id)

    @classmethod
    def parse(cls, text: str) -> "StoredTrace | None":
        """Return the trace that a text holds; None if it is damaged."""
        traceparent, _, parent_id = text.partition("/")
        context = TraceContext.parse(traceparent)
        return None if context is None else cls(context, parent_id or None)

    def to_text(self) -> str:
        """Return the trace as it is stored."""
        return f"{self.context.to_traceparent()}/{self.parent_id or ''}"


CURRENT_TRACE: ContextVar[TraceContext | None] = ContextVar("tidemill_trace", default=None)
"""The span that the current code works for."""


@contextmanager
def trace_scope(context: TraceContext | None) -> Iterator[None]:
    """Work for a span inside; for none if the context is None."""
    token = CURRENT_TRACE.set(context)
    try:
        yield
    finally:
        CURRENT_TRACE.reset(token)


def enter_trace(traceparent: str) -> None:
    """Work for a span until the end of the current task, thread or process.

    If author code uses OpenTelemetry itself, its spans become children of this one.
    """
    context = TraceContext.parse(traceparent)
    CURRENT_TRACE.set(context)
    if context is not None and "opentelemetry.trace" in sys.modules:
        from opentelemetry import context as otel  # extra: opentelemetry
        from opentelemetry import trace  # extra: opentelemetry

        flags = trace.TraceFlags(_SAMPLED if context.is_sampled else 0)
        parent = trace.SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, flags)
        otel.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
