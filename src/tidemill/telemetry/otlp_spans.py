"""Sends spans to an OpenTelemetry collector, by OTLP over HTTP. It needs the extra `opentelemetry`."""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.kernel.errors import OperationError
from tidemill.telemetry.tracing import NoSpans, Span, SpanRecorder, TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor  # extra: opentelemetry
    from opentelemetry.sdk.trace.export import SpanExporter  # extra: opentelemetry
    from opentelemetry.trace import SpanContext  # extra: opentelemetry

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The variables of OpenTelemetry that name a collector."""
TRACES_PATH = "/v1/traces"


def make_span_recorder(endpoint: str | None, environment: Mapping[str, str] = os.environ) -> SpanRecorder:
    """Return the recorder that sends spans to a collector; one that records nothing if no collector is named.

    OpenTelemetry's own variables name it too, and say everything else: headers, certificates, limits, the service.
    """
    if endpoint is None and not any(environment.get(name) for name in ENDPOINT_VARIABLES):
        return NoSpans()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # extra: opentelemetry
    except ImportError as error:
        message = f"sending traces needs an extra: pip install 'tidemill[opentelemetry]' ({error})"
        raise OperationError(message) from error
    if endpoint is None:
        return OtlpSpans(OTLPSpanExporter())
    has_path = endpoint.rstrip("/").endswith(TRACES_PATH)
    return OtlpSpans(OTLPSpanExporter(endpoint if has_path else endpoint.rstrip("/") + TRACES_PATH))


class OtlpSpans(SpanRecorder):
    """Sends spans through an exporter, in batches from a separate thread."""

    is_enabled = True

    def __init__(self, exporter: "SpanExporter", processor: "SpanProcessor | None" = None) -> None:
        from opentelemetry.sdk.resources import Resource  # extra: opentelemetry
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # extra: opentelemetry

        self._processor = processor or BatchSpanProcessor(exporter)
        given = Resource.create()  # with the service name of the environment
        is_named = not str(given.attributes.get("service.name", "unknown_service")).startswith("unknown_service")
        self._resource = given if is_named else given.merge(Resource({"service.name": "tidemill"}))

    def record(self, span: Span) -> None:
        from opentelemetry.sdk.trace import ReadableSpan  # extra: opentelemetry
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # extra: opentelemetry
        from opentelemetry.trace import SpanKind, Status, StatusCode  # extra: opentelemetry

        if not span.context.is_sampled:
            return
        parent = None if span.parent_id is None else span.context._replace(span_id=span.parent_id)
        status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_to_span_context(span.context),
                parent=None if parent is None else _to_span_context(parent),
                resource=self._resource,
                attributes={name: value for name, value in span.attributes.items() if value is not None},
                kind=SpanKind[span.kind.upper()],
                status=status,
                start_time=_to_nanoseconds(span.start),
                end_time=_to_nanoseconds(span.end),
                instrumentation_scope=InstrumentationScope("tidemill"),
            )
        )

    def close(self) -> None:
        self._processor.shutdown()


def _to_span_context(context: TraceContext) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags  # extra: opentelemetry

    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=False, trace_flags=flags)


def _to_nanoseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000) * 1000
