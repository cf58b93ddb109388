"""The context of a request: its id, which every answer and log record has."""

import logging
import re
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType

from tidemill.kernel.clock import Clock
from tidemill.server.event_stream import EVENT_STREAM
from tidemill.server.metrics import UNMATCHED, ServerMetrics
from tidemill.server.request_trace import RequestTrace
from tidemill.telemetry import events
from tidemill.telemetry.log_context import request_scope
from tidemill.telemetry.tracing import SpanRecorder, trace_scope

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID_HEADER = "x-request-id"
SWITCHING_PROTOCOLS = 101
"""The status of a connection that became a WebSocket."""
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

logger = logging.getLogger("tidemill.server")


class RequestContext:
    """Wraps the application: gives each request an id, counts it, and logs how it was answered."""

    def __init__(self, app: "ASGIApp", metrics: ServerMetrics, spans: SpanRecorder, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._spans = spans
        self._clock = clock

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = _choose_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        exchange = _Exchange(scope, receive, send, self._metrics)
        is_traced = self._spans.is_enabled and scope["type"] == ScopeType.HTTP  # a connection is no unit of work
        trace = RequestTrace(scope, self._clock) if is_traced else None
        began = time.perf_counter()
        with request_scope(request_id), trace_scope(None if trace is None else trace.context):
            try:
                await self._app(scope, exchange.receive, exchange.send)
            finally:
                duration = round(time.perf_counter() - began, 6)
                exchange.end(duration)
                if trace is not None:
                    self._spans.record(trace.end(exchange.status, duration, request_id))


class _Exchange:
    """One request with its answer, or one WebSocket connection with its frames."""

    def __init__(self, scope: "Scope", receive: "Receive", send: "Send", metrics: ServerMetrics) -> None:
        self._scope = scope
        self._send = send
        self._receive = receive
        self._metrics = metrics
        self.receive = receive if scope["type"] == ScopeType.HTTP else self._receive_frame
        self.status = 0
        self._is_stream = self._is_connected = False

    @property
    def _route(self) -> str:
        return self._scope.get("path_template", UNMATCHED)

    async def send(self, message: "Message") -> None:
        """Send a message of the application; the first one gets the id of the request."""
        if message["type"] in ("http.response.start", "websocket.accept"):
            message.setdefault("headers", [])
            headers = MutableScopeHeaders.from_message(message)
            headers[REQUEST_ID_HEADER] = request_id_of(self._scope)
            self._on_answered(message, headers.get("content-type", ""))
        elif message["type"] == "websocket.send":
            self._metrics.frames[self._route, "sent"] += 1
        await self._send(message)

    def _on_answered(self, message: "Message", content_type: str) -> None:
        if message["type"] == "websocket.accept":
            self.status, self._is_stream, self._is_connected = SWITCHING_PROTOCOLS, True, True
            self._metrics.connections[self._route] += 1
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_stream = content_type.startswith(EVENT_STREAM)

    async def _receive_frame(self) -> Any:
        message = await self._receive()
        if message["type"] == "websocket.receive":
            self._metrics.frames[self._route, "received"] += 1
        return message

    def end(self, duration: float) -> None:
        """Count and log the request after its answer."""
        if self._is_connected:
            self._metrics.connections[self._route] -= 1
        method = str(self._scope.get("method", "WEBSOCKET"))
        self._metrics.count_request(method, self._route, self.status, None if self._is_stream else duration)
        principal = self._scope.get("user")
        fields = {
            "method": method,
            "route": self._route,  # never the query, which may hold a ticket
            "status": self.status,
            "duration": duration,
            "actor": getattr(principal, "actor", None),
            "tenant": getattr(principal, "tenant", None),
        }
        logger.info(events.REQUEST_ANSWERED, extra=fields)


def request_id_of(scope: "Scope") -> str:
    """Return the id of a request."""
    return str(scope["state"]["request_id"])


def _choose_id(scope: "Scope") -> str:
    """Return the caller's id of a request if it is a short, printable word, else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER.encode():
            text = value.decode("latin-1")
            return text if _SANE_ID.fullmatch(text) else token_hex(8)
    return token_hex(8)
