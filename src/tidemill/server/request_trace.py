"""The span of a request: continues the trace of its caller, or begins one."""

from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.kernel.clock import Clock
from tidemill.server.metrics import UNMATCHED
from tidemill.telemetry.tracing import Span, TraceContext

if TYPE_CHECKING:
    from litestar.types import Scope

_SERVER_ERRORS = 500


class RequestTrace:
    """A request that is being traced."""

    def __init__(self, scope: "Scope", clock: Clock) -> None:
        given = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        self._scope = scope
        self._start = clock.now()
        self._parent = TraceContext.parse(given.decode("latin-1"))
        self.context = TraceContext.new(self._parent)

    def end(self, status: int, duration: float, request_id: str) -> Span:
        """Return the span of the answered request."""
        method, route = str(self._scope.get("method")), self._scope.get("path_template", UNMATCHED)
        attributes = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "tidemill.request_id": request_id,
            "tidemill.tenant": getattr(self._scope.get("user"), "tenant", None),
        }
        return Span(
            self.context,
            None if self._parent is None else self._parent.span_id,
            f"{method} {route}",
            self._start,
            self._start + timedelta(seconds=duration),
            kind="server",
            attributes=attributes,
            error=f"status {status}" if status >= _SERVER_ERRORS else None,
        )
