"""Requests and answers: bodies are decoded strictly, from JSON or msgpack; a client that accepts it gets msgpack.

A request whose body comes too slowly is answered with status 408.

The context of the server is in the scope of each connection. So routes and middleware know no node, and are made once
for all servers of a process.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.enums import MediaType, ScopeType

from tidemill.access.principal import Caller, Principal
from tidemill.api.errors import FieldProblem, InvalidRequestError, invalid_field_error
from tidemill.engine.access.idempotency import KeyedRequest
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import is_storable, make_storable
from tidemill.node import Node
from tidemill.server.oidc.login import OidcLogin
from tidemill.server.rate_limits import RateLimits
from tidemill.server.static_site import StaticSite

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send


MOUNTED_AT = "mounted_at"
"""Where the state of a connection has the path below which the application is mounted; "" for a server."""
PREVIEW = "tidemill.preview"
"""The key of the state of a request that is only a preview: it changes nothing, and the audit log does not have it."""
GRACE_SECONDS = 20.0
"""Seconds that the server waits for a body however slow it is."""


class Authenticator(Protocol):
    """Finds out who makes a request."""

    async def authenticate(self, connection: "ASGIConnection[object, Principal, object, State]", /) -> Principal | None:
        """Return the principal of a connection; None if it names none, RequestError if what it names is not valid."""


class ServerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The node that the server serves, and its services."""

    node: Node
    authenticator: Authenticator
    limits: RateLimits
    oidc: OidcLogin | None
    openapi_document: Callable[[], bytes]
    ui: StaticSite
    docs: StaticSite


class ContextInjection:
    """Wraps the routes: puts the context into the scope of each connection, and watches how fast a body comes."""

    def __init__(self, routes: "ASGIApp", context: ServerContext) -> None:
        self._routes = routes
        self._context = context
        self._bytes_per_second = context.node.settings.body_bytes_per_second

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        scope.setdefault("state", {})["context"] = self._context
        is_request = scope["type"] == ScopeType.HTTP
        await self._routes(scope, _PacedBody(receive, self._bytes_per_second) if is_request else receive, send)


class _PacedBody:
    """Receives a body. Only the time counts in which the server waits for the client."""

    def __init__(self, receive: "Receive", bytes_per_second: int) -> None:
        self._receive = receive
        self._bytes_per_second = bytes_per_second
        self._seconds_left = GRACE_SECONDS
        self._is_whole = False

    async def __call__(self) -> "HTTPReceiveMessage":
        """Return the next message; RequestError if it takes too long, or if the client leaves before the end.

        After the body, it waits for the client to leave.
        """
        if self._is_whole:
            return cast("HTTPReceiveMessage", await self._receive())
        time = asyncio.get_running_loop().time
        began = time()
        try:
            async with asyncio.timeout(self._seconds_left):
                message = cast("HTTPReceiveMessage", await self._receive())
        except TimeoutError as error:
            reason = f"the body comes too slowly: send at least {self._bytes_per_second} bytes per second"
            raise RequestError(reason, code="body_too_slow", status=408) from error
        if message["type"] == "http.disconnect":
            raise RequestError("the client closed the connection", code="malformed_body")
        self._is_whole = not message["more_body"]
        self._seconds_left += len(message["body"]) / self._bytes_per_second - (time() - began)
        return message


def context_of(scope: "Scope") -> ServerContext:
    """Return the context of a connection."""
    return cast(ServerContext, scope["state"]["context"])


def caller_of(principal: Principal) -> Caller:
    """Return the caller that the engines see."""
    return Caller(principal.tenant, principal.actor)


if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.response.base import ASGIResponse

JSON_MEDIA_TYPES = frozenset(["", "application/json"])
MSGPACK = "application/msgpack"
MSGPACK_MEDIA_TYPES = frozenset([MSGPACK, "application/x-msgpack", "application/vnd.msgpack"])


class ApiRequest(Request[Principal, Any, State]):
    """A request: its body is decoded with the type that its handler declares.

    Handlers take the node and the caller from it: Litestar's injection would start a task for each of them.
    """

    @property
    def context(self) -> ServerContext:
        """The server that was asked."""
        return context_of(self.scope)

    @property
    def node(self) -> Node:
        """The node that the server serves."""
        return self.context.node

    @property
    def caller(self) -> Caller:
        """The caller that the engines see."""
        return caller_of(self.user)

    @property
    def prefix(self) -> str:
        """The path below which the application is mounted in another one; "" for a server."""
        return str(self.scope["state"].get(MOUNTED_AT, ""))

    @property
    def keyed(self) -> KeyedRequest | None:
        """The request with its idempotency key, if it has one that its route takes."""
        return self.scope["state"].get("keyed")

    async def json(self) -> Any:
        """Return the decoded body; RequestError if it is malformed or invalid."""
        field = self.route_handler.parsed_data_field
        kind = Any if field is None else field.annotation
        return decode_body(await self.body(), self.content_type[0], kind)


def decode_body(body: bytes, media_type: str, kind: Any) -> Any:
    """Decode a body as a type; RequestError says what is wrong with it, and where."""
    decode: Callable[..., Any]
    if media_type in JSON_MEDIA_TYPES:
        decode, name = msgspec.json.decode, "JSON"
    elif media_type in MSGPACK_MEDIA_TYPES:
        decode, name = partial(msgspec.msgpack.decode, ext_hook=_refuse_extension), "msgpack"
    else:
        message = f"the body is application/json or application/msgpack, not {media_type}"
        raise RequestError(message, code="unsupported_media_type", status=415)
    try:
        value = decode(body, type=kind)
        if decode is not msgspec.json.decode:
            _check_names(value)
    except msgspec.ValidationError as error:
        raise invalid_field_error(error, kind, "the request is invalid") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not {name}: {error}", code="malformed_body") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply", code="malformed_body") from error
    return value


def check_query(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Raise a RequestError for a parameter of the query that no store can hold, so that none is asked for it."""
    for name, value in connection.query_params.multi_items():
        if not is_storable(value):
            message = "a text without the character NUL"
            raise InvalidRequestError(f"`{make_storable(name)}`: {message}", [FieldProblem(name, message)])


def _refuse_extension(code: int, _: memoryview) -> Any:
    raise msgspec.ValidationError(f"extension {code} is not a value here")


def _check_names(value: Any) -> None:
    """Raise msgspec.ValidationError for a map with a name that is not a text: msgpack has such maps, JSON has not."""
    remaining = [value]
    while remaining:
        one = remaining.pop()
        if isinstance(one, dict):
            for name in one:
                if not isinstance(name, str):
                    raise msgspec.ValidationError(f"the names in a map are texts, not {type(name).__name__}")
            remaining.extend(one.values())
        elif isinstance(one, list | tuple):
            remaining.extend(one)
        elif isinstance(one, msgspec.Struct):
            remaining.extend(msgspec.structs.astuple(one))


class ApiResponse(Response[Any]):
    """An answer in the format that the client accepts."""

    def to_asgi_response(
        self, app: "Litestar | None", request: "Request[Any, Any, Any]", **options: Any
    ) -> "ASGIResponse":
        """Encode the answer."""
        media_type = self.media_type or options.get("media_type") or MediaType.JSON
        has_body = self.content is not None
        if has_body and media_type == MediaType.JSON and request.headers.get("accept") in MSGPACK_MEDIA_TYPES:
            self.media_type = MSGPACK
        return super().to_asgi_response(app, request, **options)

    def render(self, content: Any, media_type: str, *args: Any) -> bytes:
        """Return the bytes of the answer."""
        return msgspec.msgpack.encode(content) if media_type == MSGPACK else super().render(content, media_type, *args)
