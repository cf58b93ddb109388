"""Spans of runs and attempts: what traces show of workflows."""

from datetime import datetime

from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.telemetry.tracing import Span, StoredTrace, TraceContext
from tidemill.workflows.attempt_results import AttemptResult, Failed
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState


def new_attempt_trace(run: RunRow) -> str | None:
    """Return the span of a new attempt, as a `traceparent`; None if its run is not traced."""
    stored = None if run.trace is None else StoredTrace.parse(run.trace)
    return None if stored is None else TraceContext.new(stored.context).to_traceparent()


def run_span(run: RunRow, now: datetime) -> Span | None:
    """Return the span of a run that has ended; None if it is not traced."""
    stored = None if run.trace is None else StoredTrace.parse(run.trace)
    if stored is None:
        return None
    attributes = {
        "tidemill.run_id": run.id,
        "tidemill.workflow": run.workflow,
        "tidemill.tenant": run.tenant,
        "tidemill.origin": run.origin,
        "tidemill.state": str(run.state),
    }
    return Span(
        stored.context,
        stored.parent_id,
        f"run {run.workflow}",
        run.created_at,
        run.ended_at or now,
        attributes=attributes,
        error=run.reason or str(run.state) if run.state is RunState.FAILED else None,
    )


def attempt_span(
    request: AttemptRequest, run: RunRow, result: AttemptResult, start: datetime, end: datetime
) -> Span | None:
    """Return the span of an attempt that has ended; None if its run is not traced."""
    context = None if request.trace is None else TraceContext.parse(request.trace)
    stored = None if run.trace is None else StoredTrace.parse(run.trace)
    if context is None or stored is None:
        return None
    fields = {f"tidemill.{name}": value for name, value in request.log_fields().items()}
    attributes = {**fields, "tidemill.executor": request.executor, "tidemill.result": type(result).__name__.lower()}
    error = result.error if isinstance(result, Failed) else None
    return Span(
        context,
        stored.context.span_id,
        f"task {request.key.task}",
        start,
        end,
        attributes=attributes,
        error=None if error is None else str(error),
    )
