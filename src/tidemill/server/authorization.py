"""Authorization and audit: each request is authenticated and allowed before it is handled, and recorded afterwards.

The server denies by default: a handler without a route in the table is not served.
"""

import asyncio
from typing import TYPE_CHECKING

from litestar.connection import ASGIConnection
from litestar.datastructures import Headers, State
from litestar.enums import ScopeType
from litestar.routes import HTTPRoute

from tidemill.access.principal import INSTANCE_TENANT, Permission, Principal, Resource
from tidemill.engine.access.credential_watch import CredentialWatch
from tidemill.kernel.errors import RequestError
from tidemill.kernel.settings import Settings
from tidemill.server.connections import admit
from tidemill.server.event_stream import EVENT_STREAM
from tidemill.server.rate_limits import address_of
from tidemill.server.requests import PREVIEW, ServerContext, check_query, context_of
from tidemill.server.routing import Route, allowed_methods
from tidemill.storage.acting_tenant import EVERY_TENANT, acting_for

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

FIRST_ERROR_STATUS = 400
TENANT_HEADER = "tidemill-tenant"
_UPLOAD_REFUSAL = (
    "may not upload packages: their code runs with the rights of the server, for all tenants. Let an admin of the "
    f"tenant '{INSTANCE_TENANT}' upload it with the header Tidemill-Tenant, or set `require_signatures` and trust the "
    "key of its author, or set `tenant_uploads`"
)


class Authorization:
    """Wraps all routes: lets only allowed requests through, and puts their principal into the scope."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Authorize a request, then handle it."""
        if scope["type"] != ScopeType.HTTP:  # WebSocket handlers authorize themselves: they answer with close codes
            await self._app(scope, receive, send)
            return
        if scope.get("method") == "OPTIONS":
            await _answer_options(scope, send)
            return
        context = context_of(scope)
        scope["user"] = principal = await authorize(ASGIConnection(scope, receive, send), context)
        if principal is None or scope.get("method") != "GET":
            await self._app(scope, receive, send)
            return
        # Only reads: a change may have to look at what other tenants use, such as a shared reactor.
        with acting_for(EVERY_TENANT if principal.is_instance_admin else principal.tenant):
            if principal.credential is None or EVENT_STREAM not in Headers.from_scope(scope).get("accept", ""):
                await self._app(scope, receive, send)
            else:
                watch, credential = context.node.access.watch, principal.credential
                with context.limits.counting_connection(credential):
                    await stream_while_valid(watch, credential, self._app, scope, receive, send)


async def _answer_options(scope: "Scope", send: "Send") -> None:
    """Say which methods a path has; answers to pages of other sites have no further headers."""
    routes = (one for one in scope["litestar_app"].routes if isinstance(one, HTTPRoute))
    methods = {method for one in routes if one.path_format == scope["path_template"] for method in one.methods}
    headers = [(b"allow", allowed_methods(methods).encode())]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def authorize(
    connection: "ASGIConnection[object, Principal, object, State]", context: ServerContext
) -> Principal | None:
    """Return the principal of a connection if it may use the route; None only on routes that need none."""
    route = route_of(connection.scope)
    if route.permission is Permission.NONE:
        return None
    principal = await _authenticate(connection, context)
    permission = _resolve_permission(route.permission, context.node.settings)
    if not principal.has(permission, _resource_of(connection, route)):
        reason = f"may not do this: it needs the permission '{permission}'"
        refusal = _UPLOAD_REFUSAL if permission is Permission.UPLOAD else reason
        raise RequestError(f"{principal.actor} {refusal}", code="not_allowed", status=403)
    if connection.scope["query_string"]:
        check_query(connection)
    tenant = connection.headers.get(TENANT_HEADER)
    if tenant is None:
        return principal
    return await context.node.access.tenants.act_for(principal, tenant, context.node.registry.has_tenant)


def _resource_of(connection: "ASGIConnection[object, Principal, object, State]", route: Route) -> Resource | None:
    """Return the endpoint that a request is about."""
    return None if route.resource is None else Resource(route.resource, str(connection.path_params["name"]))


def may_upload(principal: Principal, settings: Settings) -> bool:
    """Return whether a principal may upload packages."""
    return principal.has(_resolve_permission(Permission.UPLOAD, settings))


def _resolve_permission(permission: Permission, settings: Settings) -> Permission:
    """Return what a route needs here: uploads of tenants are trusted by a setting, or by the key that signed them."""
    if permission is Permission.UPLOAD and (settings.tenant_uploads or settings.require_signatures):
        return Permission.ADMIN
    return permission


async def _authenticate(
    connection: "ASGIConnection[object, Principal, object, State]", context: ServerContext
) -> Principal:
    """Return the principal of a connection; RequestError if it has none, or makes too many requests."""
    try:
        principal = await context.authenticator.authenticate(connection)
    except RequestError as error:
        context.limits.count_failure(address_of(connection), error)
        raise
    if principal is None:  # no failure of the address: a request without a credential guesses nothing
        message = (
            "this needs a key: commands read TIDEMILL_KEY, clients take key=, HTTP has `Authorization: Bearer KEY`"
        )
        raise RequestError(message, code="no_key", status=401)
    admit(connection.scope)
    if principal.credential is not None:
        context.limits.count_request(principal.credential)
    return principal


def route_of(scope: "Scope") -> Route:
    """Return the route of a request; RequestError if the table does not have it."""
    route = scope["route_handler"].opt.get("route")
    if not isinstance(route, Route):
        raise RequestError("there is nothing here", code="route_not_found", status=404)
    return route


class Auditing:
    """Wraps a route whose service does not do it: records its audit event when a request has succeeded."""

    def __init__(self, app: "ASGIApp", route: Route) -> None:
        self._app = app
        self._route = route

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a request."""

        async def record_then_send(message: "Message") -> None:
            has_succeeded = message["type"] == "http.response.start" and message["status"] < FIRST_ERROR_STATUS
            if has_succeeded and not scope["state"].get(PREVIEW, False):
                await _record(scope, self._route)
            await send(message)

        await self._app(scope, receive, record_then_send)


async def _record(scope: "Scope", route: Route) -> None:
    assert route.audit is not None
    target = "/".join(str(value) for value in scope["path_params"].values()) or scope["path"]
    await context_of(scope).node.access.audit.record(scope["user"], route.audit, target)


async def stream_while_valid(
    watch: CredentialWatch, credential: str, app: "ASGIApp", scope: "Scope", receive: "Receive", send: "Send"
) -> None:
    """Handle a request whose answer is a stream, and end the stream when the credential ends."""
    is_begun = False

    async def send_noted(message: "Message") -> None:
        nonlocal is_begun
        is_begun = is_begun or message["type"] == "http.response.start"
        await send(message)

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:
            unsubscribe = watch.subscribe(credential, lambda: limit.reschedule(loop.time()))
            try:
                await app(scope, receive, send_noted)
            finally:
                unsubscribe()
    except TimeoutError:
        if not limit.expired():
            raise
        if is_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
