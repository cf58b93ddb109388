"""The context of a request: its id, which every answer, log record and audit entry has, and its trace."""

import asyncio
import logging
import re
import time
from contextlib import nullcontext
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from litestar.enums import ScopeType

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.server.connections import CONNECTION_STATE
from tidemill.server.event_stream import EVENT_STREAM
from tidemill.server.metrics import UNMATCHED, ServerMetrics
from tidemill.telemetry import events
from tidemill.telemetry.log_context import REQUEST_ID
from tidemill.telemetry.tracing import Span, SpanRecorder, TraceContext, trace_scope

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

_SERVER_ERRORS = 500
REQUEST_ID_HEADER = b"x-request-id"
HEAD = "HEAD"
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
        token = REQUEST_ID.set(request_id)
        try:
            await self._handle(scope, receive, send, request_id)
        finally:
            REQUEST_ID.reset(token)

    async def _handle(self, scope: "Scope", receive: "Receive", send: "Send", request_id: str) -> None:
        method = str(scope.get("method", "WEBSOCKET"))
        if method == HEAD:  # a copy: the HTTP server leaves the body out by the original
            scope = cast("Scope", {**scope, "method": "GET"})
        exchange = _Exchange(scope, receive, send, self._metrics, method)
        is_traced = self._spans.is_enabled and scope["type"] == ScopeType.HTTP  # a connection is not a unit of work
        trace = RequestTrace(scope, self._clock) if is_traced else None
        began = time.perf_counter()
        with nullcontext() if trace is None else trace_scope(trace.context):
            try:
                await self._app(scope, exchange.receive, exchange.send)
                await exchange.finish_head()
            except (Exception, asyncio.CancelledError) as error:  # a defect of ours, a store that fails, or the drain
                if not await exchange.break_off(error):
                    raise
            finally:
                duration = round(time.perf_counter() - began, 6)
                exchange.end(duration)
                if trace is not None:
                    self._spans.record(trace.end(exchange.status, duration, request_id))


class _Exchange:
    """One request with its answer, or one WebSocket connection with its frames."""

    def __init__(self, scope: "Scope", receive: "Receive", send: "Send", metrics: ServerMetrics, method: str) -> None:
        self._scope = scope
        self._method = method
        self._send = send
        self._receive = receive
        self._metrics = metrics
        self.receive = self._choose_receive()
        self._is_head_read = False
        self.status = 0
        self._is_stream = self._is_connected = self._is_complete = False

    @property
    def _route(self) -> str:
        return self._scope.get("path_template", UNMATCHED)

    async def send(self, message: "Message") -> None:
        """Send a message of the application; the first one gets the id of the request."""
        if message["type"] in ("http.response.start", "websocket.accept"):
            headers = [*message.get("headers", ()), (REQUEST_ID_HEADER, request_id_of(self._scope).encode("latin-1"))]
            message["headers"] = [*headers, (b"x-content-type-options", b"nosniff")]
            self._on_answered(message, next((value for name, value in headers if name == b"content-type"), b""))
        elif message["type"] == "websocket.send":
            self._metrics.frames[self._route, "sent"] += 1
        await self._send(message)
        if message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)

    def _on_answered(self, message: "Message", content_type: bytes) -> None:
        if message["type"] == "websocket.accept":
            self.status, self._is_stream, self._is_connected = SWITCHING_PROTOCOLS, True, True
            self._metrics.connections[self._route] += 1
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_stream = content_type.startswith(EVENT_STREAM.encode())

    def _choose_receive(self) -> "Receive":
        if self._method == HEAD:
            return self._receive_head
        return self._receive if self._scope["type"] == ScopeType.HTTP else self._receive_frame

    async def _receive_head(self) -> Any:
        """Return an empty body, then that the client has left: a stream of events ends at once."""
        if self._is_head_read:
            return {"type": "http.disconnect"}
        self._is_head_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def finish_head(self) -> None:
        """End the answer to a request for a head, if it is a stream that has been left."""
        if self._method == HEAD and self.status and not self._is_complete:
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _receive_frame(self) -> Any:
        message = await self._receive()
        if message["type"] == "websocket.receive":
            self._metrics.frames[self._route, "received"] += 1
        return message

    async def break_off(self, error: BaseException) -> bool:
        """Handle an error that no answer can tell: one has started, or the server stops. Return whether it was one.

        The client must see that the answer is not complete, so the connection is dropped.
        """
        connection = self._scope["state"].get(CONNECTION_STATE)
        if connection is None or not (self.status or isinstance(error, asyncio.CancelledError)):
            return False
        cause = error.__cause__ or error
        is_expected = isinstance(cause, TidemillError | asyncio.CancelledError)
        fields = {"request_id": request_id_of(self._scope), "route": self._route, "error": repr(cause)}
        logger.error("answer.broken", exc_info=None if is_expected else cause, extra=fields)
        self._metrics.broken[self._route] += 1
        if not self._is_complete:
            connection.drop()
            while not (await self._receive())["type"].endswith(".disconnect"):
                pass
        return True

    def end(self, duration: float) -> None:
        """Count and log the request after its answer."""
        if self._is_connected:
            self._metrics.connections[self._route] -= 1
        self._metrics.count_request(self._method, self._route, self.status, None if self._is_stream else duration)
        principal = self._scope.get("user")
        fields = {
            "method": self._method,
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
        if name == REQUEST_ID_HEADER:
            text = value.decode("latin-1")
            return text if _SANE_ID.fullmatch(text) else token_hex(8)
    return token_hex(8)


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
