"""Authorization: every request is authenticated, and allowed by the permission of its route, before it is handled.

The server denies by default: a handler without a route in the table is not served.
"""

from typing import TYPE_CHECKING

from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from msgspec.structs import replace

from tidemill.access.principal import Permission, Principal
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import validate_tenant
from tidemill.server.context import ServerContext
from tidemill.server.routing import Route

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

TENANT_HEADER = "tidemill-tenant"


class Authorization(ASGIMiddleware):
    """Lets only allowed requests through, and puts their principal into the scope."""

    scopes = (ScopeType.HTTP,)  # WebSocket handlers authorize themselves: they answer with close codes

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def handle(self, scope: "Scope", receive: "Receive", send: "Send", next_app: "ASGIApp") -> None:
        """Authorize a request, then handle it."""
        scope["user"] = await authorize(ASGIConnection(scope, receive, send), self._context)
        await next_app(scope, receive, send)


async def authorize(
    connection: "ASGIConnection[object, Principal, object, State]", context: ServerContext
) -> Principal | None:
    """Return the principal of a connection if it may use the route; None only on routes that need none."""
    route = route_of(connection.scope)
    if route.permission is Permission.NONE:
        return None
    principal = await context.authenticator.authenticate(connection)
    if principal is None:
        raise RequestError("this needs a key: send `Authorization: Bearer KEY`", code="no_key", status=401)
    if not principal.has(route.permission, route.resource_of(connection.path_params)):
        message = f"{principal.actor} may not do this: it needs the permission '{route.permission}'"
        raise RequestError(message, code="not_allowed", status=403)
    return _act_for_tenant(principal, connection.headers.get(TENANT_HEADER))


def route_of(scope: "Scope") -> Route:
    """Return the route of a request; RequestError if the table does not have it."""
    route = scope["route_handler"].opt.get("route")
    if not isinstance(route, Route):
        raise RequestError("there is nothing here", code="route_not_found", status=404)
    return route


def _act_for_tenant(principal: Principal, tenant: str | None) -> Principal:
    """Return the principal, acting for the tenant that the request names."""
    if tenant is None or tenant == principal.tenant:
        return principal
    if not principal.is_instance_admin:
        message = "only an admin of the instance may name another tenant"
        raise RequestError(message, code="not_allowed", status=403)
    return replace(principal, tenant=validate_tenant(tenant), only=None)
