"""Idempotency keys: a request that is repeated with its key gets the first answer, and is not handled again."""

from typing import TYPE_CHECKING, cast

from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware

from tidemill.engine.access.idempotency import IdempotentRequests
from tidemill.kernel.errors import RequestError
from tidemill.server.authorization import route_of
from tidemill.server.context import context_of

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

    from tidemill.storage.request_ports import RequestRecord

KEY_HEADER = "idempotency-key"
REPLAYED_HEADER = "idempotent-replayed"
KEPT_HEADERS = frozenset(["content-type", "location"])
"""The headers of an answer that are kept with it."""
TOO_MANY_REQUESTS, FIRST_SERVER_ERROR = 429, 500


class Idempotency(ASGIMiddleware):
    """Keeps the answers to requests with an idempotency key, on routes that take one."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, body_limit: int) -> None:
        self._body_limit = body_limit

    async def handle(self, scope: "Scope", receive: "Receive", send: "Send", next_app: "ASGIApp") -> None:
        """Handle a request, or answer it as before."""
        route, key = route_of(scope), Headers.from_scope(scope).get(KEY_HEADER)
        if not route.takes_key or key is None:
            await next_app(scope, receive, send)
            return
        body = await _read_body(receive, route.body_limit or self._body_limit)
        requests = context_of(scope).node.access.requests
        record = await requests.begin(scope["user"].tenant, key, f"{route.method} {scope['path']}", body)
        if record.status is not None:
            await _replay(record, send)
            return
        answer = _Answer(send)
        try:
            await next_app(scope, _Body(body, receive), answer)
        finally:
            await _keep(requests, record, answer)


class _Answer:
    """Sends an answer, and keeps a copy of it."""

    def __init__(self, send: "Send") -> None:
        self._send = send
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_complete = False

    async def __call__(self, message: "Message") -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableScopeHeaders.from_message(message)
            self.headers = {name: value for name, value in headers.items() if name in KEPT_HEADERS}
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            self.is_complete = not message.get("more_body", False)
        await self._send(message)


class _Body:
    """Gives a body that has been read to a handler; then what comes after it."""

    def __init__(self, body: bytes, receive: "Receive") -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> "HTTPReceiveMessage":
        """Return the next message."""
        if self._body is None:
            return cast("HTTPReceiveMessage", await self._receive())
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _read_body(receive: "Receive", limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise RequestError("the client closed the connection", code="malformed_body")
        body += message.get("body", b"")
        if len(body) > limit:
            raise RequestError(f"the body has more than {limit} bytes", code="body_too_large", status=413)
        if not message.get("more_body", False):
            return bytes(body)


async def _keep(requests: IdempotentRequests, record: "RequestRecord", answer: _Answer) -> None:
    """Keep an answer; forget the request if it had none, or one that another try may improve."""
    if not answer.is_complete or answer.status == TOO_MANY_REQUESTS or answer.status >= FIRST_SERVER_ERROR:
        await requests.abandon(record)
    else:
        await requests.finish(record, answer.status, answer.headers, bytes(answer.body))


async def _replay(record: "RequestRecord", send: "Send") -> None:
    """Send the answer that is kept."""
    headers = {**record.headers, "content-length": str(len(record.body)), REPLAYED_HEADER: "true"}
    raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert record.status is not None
    await send({"type": "http.response.start", "status": record.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": record.body, "more_body": False})
