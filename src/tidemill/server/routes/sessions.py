"""The session of a browser, and tickets for its WebSocket connections."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from litestar import Response
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from tidemill.access.principal import INSTANCE_TENANT, Role
from tidemill.access.tokens import LIFETIME
from tidemill.engine.access.services import AccessServices
from tidemill.engine.access.sessions import SESSION_ENDPOINT, NewSession
from tidemill.kernel.errors import RequestError
from tidemill.server.authentication import SESSION_COOKIE, NoAuthentication, check_origin
from tidemill.server.oidc.login import COOKIE_LIFETIME, OidcLogin
from tidemill.server.rate_limits import address_of
from tidemill.server.requests import ApiRequest, ApiResponse, ServerContext
from tidemill.server.routing import BASE_PATH

OIDC_COOKIE = "tidemill_oidc"
"""The cookie of an attempt to sign in at the issuer."""
_State = Annotated[str, QueryParameter(name="state", description="The state with which the attempt started.")]


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The name and the password of an account, an API key, or the ticket of a one-time link."""

    account: Annotated[str, msgspec.Meta(examples=["ada"])] = ""
    password: Annotated[str, msgspec.Meta(examples=["correct horse battery"])] = ""
    tenant: str = INSTANCE_TENANT
    key: str | None = None
    """An API key: the session can do what it can, and ends with it."""
    ticket: str | None = None


SignInMethod = Literal["account", "key", "oidc"]


class SignInState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a browser is signed in, and how it can sign in."""

    signed_in: bool
    required: bool
    """False on a server without authentication, such as `tidemill dev`."""
    methods: list[SignInMethod]
    """The forms of `POST /session`, and `oidc` if `GET /session/oidc` leads to an issuer."""


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session."""

    actor: str
    tenant: str
    role: Role
    expires_at: datetime


class TicketRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint that a ticket is for."""

    endpoint: Annotated[str, msgspec.Meta(pattern=r"^/ws/[^\x00]*$", examples=["/ws/accumulators/orderbook"])]


class TicketView(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket: `?ticket=` of one connection, within 60 seconds."""

    ticket: str
    expires_at: datetime


async def open_session(request: ApiRequest, data: JSONBody[SignIn]) -> Response[SessionView]:
    """Sign in: the answer sets the cookie of the session."""
    check_origin(request)
    session, token = await _sign_in(request.context, data, address_of(request))
    principal = session.principal
    view = SessionView(
        actor=principal.actor, tenant=principal.tenant, role=principal.role, expires_at=session.expires_at
    )
    return ApiResponse(view, status_code=201, cookies=[_cookie(request, token, int(LIFETIME.total_seconds()))])


async def _sign_in(context: ServerContext, data: SignIn, address: str) -> NewSession:
    access, limits = context.node.access, context.limits
    if data.key is not None:
        with limits.counting_failures(address):
            return await _sign_in_with_key(access, data.key)
    if data.ticket is not None:
        with limits.counting_failures(address):
            return await access.sessions.open(await access.tickets.redeem(data.ticket, SESSION_ENDPOINT))
    with limits.counting_password(address, data.tenant, data.account):
        principal = await access.accounts.sign_in(data.account, data.password, data.tenant)
    return await access.sessions.open(principal)


async def _sign_in_with_key(access: AccessServices, token: str) -> NewSession:
    """Open a session that ends with a key: a revocation ends those that are stored, so it is looked for once more."""
    key = await access.keys.find_valid(token)
    opened = await access.sessions.open(key.principal, until=key.expires_at)
    try:
        await access.keys.find_valid(token, cached=False)
    except RequestError:
        await access.sessions.close(opened.session.principal)
        raise
    return opened


async def get_session(request: ApiRequest) -> SignInState:
    """Say whether this browser is signed in, and how it can sign in; it needs no key."""
    methods: list[SignInMethod] = ["account", "key"] if request.context.oidc is None else ["account", "key", "oidc"]
    try:
        with request.context.limits.counting_failures(address_of(request)):
            principal = await request.context.authenticator.authenticate(ASGIConnection(request.scope))
    except RequestError as error:
        if error.status != 401:
            raise
        principal = None
    return SignInState(
        signed_in=principal is not None,
        required=not isinstance(request.context.authenticator, NoAuthentication),
        methods=methods,
    )


async def begin_oidc_login(request: ApiRequest) -> Redirect:
    """Sign in at the issuer: the answer leads the browser there."""
    started = await _oidc(request.context).begin(_callback(request))
    cookie = _cookie(request, started.cookie, COOKIE_LIFETIME, name=OIDC_COOKIE, same_site="lax")
    return Redirect(started.url, status_code=302, cookies=[cookie])


async def finish_oidc_login(request: ApiRequest, code: FromQuery[str] = "", begun_as: _State = "") -> Redirect:
    """Come back from the issuer: the answer sets the cookie of the session, and leads to the start page."""
    with request.context.limits.counting_failures(address_of(request)):
        cookie = request.cookies.get(OIDC_COOKIE, "")
        principal = await _oidc(request.context).finish(_callback(request), cookie, code, begun_as)
    _, token = await request.node.access.sessions.open(principal)
    session = _cookie(request, token, int(LIFETIME.total_seconds()))
    return Redirect("/", status_code=302, cookies=[session, _cookie(request, "", 0, name=OIDC_COOKIE)])


def _oidc(context: ServerContext) -> OidcLogin:
    if context.oidc is None:
        raise RequestError("this server has no issuer: see the setting oidc_issuer", code="no_issuer", status=404)
    return context.oidc


def _callback(request: ApiRequest) -> str:
    """Return the address to which the issuer sends a browser back; the issuer knows the right ones."""
    return f"{request.url.scheme}://{request.headers.get('host', '')}{request.prefix}{BASE_PATH}/session/oidc/callback"


async def close_session(request: ApiRequest) -> Response[None]:
    """Sign out: the session ends, and so do its connections."""
    await request.node.access.sessions.close(request.user)
    return ApiResponse(None, status_code=204, cookies=[_cookie(request, "", 0)])


def _cookie(
    request: ApiRequest,
    value: str,
    lifetime: int,
    *,
    name: str = SESSION_COOKIE,
    same_site: Literal["lax", "strict"] = "strict",
) -> Cookie:
    """Return a cookie, out of reach for scripts, and for requests that other sites cause."""
    is_secure = request.url.scheme == "https"  # as a trusted proxy says it
    return Cookie(name, value=value, max_age=lifetime, path="/", secure=is_secure, httponly=True, samesite=same_site)


async def create_ticket(request: ApiRequest, data: JSONBody[TicketRequest]) -> Response[TicketView]:
    """Create a ticket for one WebSocket connection of a browser, which cannot send a header with it."""
    issued = await request.node.access.tickets.issue(request.user, data.endpoint)
    return ApiResponse(TicketView(ticket=issued.token, expires_at=issued.expires_at), status_code=201)
