"""The session of a browser, and tickets for its WebSocket connections."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.datastructures import Cookie
from litestar.params import JSONBody

from tidemill.access.principal import INSTANCE_TENANT, Principal, Role
from tidemill.access.sessions import LIFETIME
from tidemill.engine.access.tickets import SESSION_ENDPOINT
from tidemill.server.authentication import SESSION_COOKIE, check_origin
from tidemill.server.context import ServerContext
from tidemill.server.injection import InjectedContext, InjectedPrincipal
from tidemill.server.requests import ApiRequest
from tidemill.server.responses import ApiResponse


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The name and the password of an account, or the ticket of a one-time link."""

    account: Annotated[str, msgspec.Meta(examples=["ada"])] = ""
    password: Annotated[str, msgspec.Meta(examples=["correct horse battery"])] = ""
    tenant: str = INSTANCE_TENANT
    ticket: str | None = None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    actor: str
    tenant: str
    role: Role
    expires_at: datetime


class TicketRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint that a ticket is for."""

    endpoint: Annotated[str, msgspec.Meta(pattern="^/ws/", examples=["/ws/accumulators/orderbook"])]


class TicketView(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket: `?ticket=` of one connection, within 60 seconds."""

    ticket: str
    expires_at: datetime


async def open_session(context: InjectedContext, request: ApiRequest, data: JSONBody[SignIn]) -> Response[SessionView]:
    """Sign in: the answer sets the cookie of the session."""
    check_origin(request)
    address = request.client.host if request.client else ""
    context.limits.check_address(address)
    with context.limits.counting_failures(address):
        principal = await _sign_in(context, data)
    session, token = await context.node.access.sessions.open(principal)
    view = SessionView(
        actor=principal.actor, tenant=principal.tenant, role=principal.role, expires_at=session.expires_at
    )
    return ApiResponse(view, status_code=201, cookies=[_cookie(request, token, int(LIFETIME.total_seconds()))])


async def _sign_in(context: ServerContext, data: SignIn) -> Principal:
    access = context.node.access
    if data.ticket is not None:
        return await access.tickets.redeem(data.ticket, SESSION_ENDPOINT)
    return await access.accounts.sign_in(data.account, data.password, data.tenant)


async def close_session(context: InjectedContext, principal: InjectedPrincipal, request: ApiRequest) -> Response[None]:
    """Sign out: the session ends, and so do its connections."""
    await context.node.access.sessions.close(principal)
    return ApiResponse(None, status_code=204, cookies=[_cookie(request, "", 0)])


def _cookie(request: ApiRequest, token: str, lifetime: int) -> Cookie:
    """Return the cookie of a session: out of reach for scripts, and for requests that other sites cause."""
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    return Cookie(
        SESSION_COOKIE, value=token, max_age=lifetime, path="/", secure=is_secure, httponly=True, samesite="strict"
    )


async def create_ticket(
    context: InjectedContext, principal: InjectedPrincipal, data: JSONBody[TicketRequest]
) -> Response[TicketView]:
    """Create a ticket for one WebSocket connection of a browser, which cannot send a header with it."""
    issued = await context.node.access.tickets.issue(principal, data.endpoint)
    return ApiResponse(TicketView(ticket=issued.token, expires_at=issued.expires_at), status_code=201)
