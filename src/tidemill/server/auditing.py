"""Auditing: every change that a request makes is in the audit log before its answer is sent."""

from typing import TYPE_CHECKING

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware

from tidemill.engine.access.audit_log import current_request_id
from tidemill.server.authorization import route_of
from tidemill.server.context import context_of
from tidemill.server.request_context import request_id_of

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

    from tidemill.server.routing import Route

FIRST_ERROR_STATUS = 400


class Auditing(ASGIMiddleware):
    """Records the audit event of a route when its request has succeeded."""

    scopes = (ScopeType.HTTP,)

    async def handle(self, scope: "Scope", receive: "Receive", send: "Send", next_app: "ASGIApp") -> None:
        """Handle a request; its services know its id."""
        route = route_of(scope)
        current_request_id.set(request_id_of(scope))
        if route.audit is None or route.is_audited_by_service:
            await next_app(scope, receive, send)
            return

        async def record_then_send(message: "Message") -> None:
            if message["type"] == "http.response.start" and message["status"] < FIRST_ERROR_STATUS:
                await _record(scope, route)
            await send(message)

        await next_app(scope, receive, record_then_send)


async def _record(scope: "Scope", route: "Route") -> None:
    assert route.audit is not None
    target = "/".join(str(value) for value in scope["path_params"].values()) or scope["path"]
    await context_of(scope).node.access.audit.record(scope["user"], route.audit, target)
