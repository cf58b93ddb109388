"""Authorization: every request is authenticated, and allowed by the permission of its route, before it is handled.

The server denies by default: a handler without a route in the table is not served.
"""

from typing import TYPE_CHECKING

from litestar.connection import ASGIConnection
from litestar.datastructures import Headers, State
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware

from tidemill.access.principal import Permission, Principal
from tidemill.kernel.errors import RequestError
from tidemill.server.context import ServerContext, context_of
from tidemill.server.event_stream import EVENT_STREAM
from tidemill.server.open_streams import stream_while_valid
from tidemill.server.routing import Route
from tidemill.storage.acting_tenant import EVERY_TENANT, acting_for

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

TENANT_HEADER = "tidemill-tenant"


class Authorization(ASGIMiddleware):
    """Lets only allowed requests through, and puts their principal into the scope."""

    scopes = (ScopeType.HTTP,)  # WebSocket handlers authorize themselves: they answer with close codes

    async def handle(self, scope: "Scope", receive: "Receive", send: "Send", next_app: "ASGIApp") -> None:
        """Authorize a request, then handle it."""
        context = context_of(scope)
        scope["user"] = principal = await authorize(ASGIConnection(scope, receive, send), context)
        if principal is None or scope.get("method") != "GET":
            await next_app(scope, receive, send)
            return
        # Only reads: a change may have to look at what other tenants use, such as a shared reactor.
        with acting_for(EVERY_TENANT if principal.is_instance_admin else principal.tenant):
            if principal.credential is None or EVENT_STREAM not in Headers.from_scope(scope).get("accept", ""):
                await next_app(scope, receive, send)
            else:
                watch, credential = context.node.access.watch, principal.credential
                with context.limits.counting_connection(credential):
                    await stream_while_valid(watch, credential, next_app, scope, receive, send)


async def authorize(
    connection: "ASGIConnection[object, Principal, object, State]", context: ServerContext
) -> Principal | None:
    """Return the principal of a connection if it may use the route; None only on routes that need none."""
    route = route_of(connection.scope)
    if route.permission is Permission.NONE:
        return None
    principal = await _authenticate(connection, context)
    if not principal.has(route.permission, route.resource_of(connection.path_params)):
        message = f"{principal.actor} may not do this: it needs the permission '{route.permission}'"
        raise RequestError(message, code="not_allowed", status=403)
    tenant = connection.headers.get(TENANT_HEADER)
    return principal if tenant is None else context.node.access.tenants.act_for(principal, tenant)


async def _authenticate(
    connection: "ASGIConnection[object, Principal, object, State]", context: ServerContext
) -> Principal:
    """Return the principal of a connection; RequestError if it has none, or makes too many requests."""
    with context.limits.counting_failures(connection.client.host if connection.client else ""):
        principal = await context.authenticator.authenticate(connection)
    if principal is None:  # no failure of the address: a request without a credential guesses nothing
        raise RequestError("this needs a key: send `Authorization: Bearer KEY`", code="no_key", status=401)
    if principal.credential is not None:
        context.limits.count_request(principal.credential)
    return principal


def route_of(scope: "Scope") -> Route:
    """Return the route of a request; RequestError if the table does not have it."""
    route = scope["route_handler"].opt.get("route")
    if not isinstance(route, Route):
        raise RequestError("there is nothing here", code="route_not_found", status=404)
    return route
