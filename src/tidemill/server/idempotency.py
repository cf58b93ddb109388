"""Idempotency keys: a request that is repeated with its key gets the first answer, and has one effect.

An answer is kept before it is sent. Only successes are kept: what a request failed for, such as a paused workflow or a
name that is not loaded yet, may change. A request that is handled again finds the effect that it had before.
"""

from typing import TYPE_CHECKING, cast

from litestar.datastructures import Headers, MutableScopeHeaders

from tidemill.engine.access.idempotency import KeyedRequest
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import make_storable
from tidemill.server.requests import context_of
from tidemill.server.routing import Route

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

    from tidemill.storage.tables.requests import RequestRecord

KEY_HEADER = "idempotency-key"
REPLAYED_HEADER = "idempotent-replayed"
KEPT_HEADERS = frozenset(["content-type", "location"])
"""The headers of an answer that are kept with it."""
FIRST_ERROR_STATUS, FIRST_SERVER_ERROR = 400, 500


class Idempotency:
    """Wraps a route that takes idempotency keys: keeps the answers to requests with one."""

    def __init__(self, app: "ASGIApp", route: Route, body_limit: int) -> None:
        self._app = app
        self._route = route
        self._body_limit = route.body_limit or body_limit

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a request, or answer it as before."""
        route, key = self._route, Headers.from_scope(scope).get(KEY_HEADER)
        if key is None:
            await self._app(scope, receive, send)
            return
        body = await _read_body(receive, self._body_limit)
        requests = context_of(scope).node.access.requests
        keyed = await requests.begin(scope["user"].tenant, key, make_storable(f"{route.method} {scope['path']}"), body)
        if keyed.record.status is None:
            scope["state"]["keyed"] = keyed
            answer = _Answer()
            async with requests.handling(keyed):
                await self._app(scope, _Body(body, receive), answer)
                if answer.is_final(keyed):
                    kept = b"" if route.is_private else bytes(answer.body)
                    await requests.finish(keyed, answer.status, answer.headers, kept)
                keyed.had_no_effect |= FIRST_ERROR_STATUS <= answer.status < FIRST_SERVER_ERROR
            if keyed.record.status is None or route.is_private or answer.is_kept_in(keyed.record):
                await answer.send_to(send)
                return
        elif route.is_private:
            raise _not_kept_error(key)
        await _replay(keyed.record, send)


def _not_kept_error(key: str) -> RequestError:
    message = (
        f"a request with the Idempotency-Key {key!r} was answered; the answer is secret, and is not kept: look at what "
        "it has made, and choose a new key for each request"
    )
    return RequestError(message, code="answer_not_kept", status=409)


class _Answer:
    """Holds an answer back until it is kept."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self._messages: list[Message] = []

    async def __call__(self, message: "Message") -> None:
        """Take a message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableScopeHeaders.from_message(message)
            self.headers = {name: value for name, value in headers.items() if name in KEPT_HEADERS}
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
        self._messages.append(message)

    def is_final(self, keyed: KeyedRequest) -> bool:
        """Return whether repetitions get this answer."""
        return self.status < FIRST_ERROR_STATUS if keyed.is_final is None else keyed.is_final

    def is_kept_in(self, record: "RequestRecord") -> bool:
        """Return whether this answer was kept, and not that of another server which was faster."""
        return (record.status, record.body) == (self.status, bytes(self.body))

    async def send_to(self, send: "Send") -> None:
        """Send the answer."""
        for message in self._messages:
            await send(message)


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


async def _replay(record: "RequestRecord", send: "Send") -> None:
    """Send the answer that is kept."""
    headers = {**record.headers, "content-length": str(len(record.body)), REPLAYED_HEADER: "true"}
    raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert record.status is not None
    await send({"type": "http.response.start", "status": record.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": record.body, "more_body": False})
