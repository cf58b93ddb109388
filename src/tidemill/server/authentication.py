"""Authentication: finds the principal of a request."""

from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.enums import ScopeType

from tidemill.access.principal import Principal
from tidemill.access.tokens import is_attempt_token
from tidemill.engine.access.attempts import AttemptAuthentication
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.engine.access.sessions import TicketService
from tidemill.kernel.errors import RequestError
from tidemill.server.oidc.provider import OidcProvider

Connection = ASGIConnection[object, Principal, object, State]

SESSION_COOKIE = "tidemill_session"
PAGE_HEADER = "x-requested-with"
"""A header that scripts of our own pages send with every change: forms and links of other sites cannot."""
KNOWN_HOSTS = 64
"""How many names of hosts are remembered, so that few requests parse theirs."""
DOTS_OF_JWT = 2
"""A signed token has three parts; a key has no dot."""
_SAFE_METHODS = frozenset(["GET", "HEAD"])


class NoAuthentication:
    """Takes every request from this machine as one of the local operator.

    A web page that is open in a browser on this machine can send requests too. It cannot hide where it comes from: its
    origin is another one, or, after a name was rebound to this address, the host is not a name of this machine.
    """

    def __init__(self, tickets: TicketService | None = None, attempts: AttemptAuthentication | None = None) -> None:
        self._tickets = tickets
        self._attempts = attempts

    async def authenticate(self, connection: Connection, /) -> Principal | None:
        """Return the local operator, or whom a ticket stands for; RequestError for a web page from elsewhere."""
        host = connection.headers.get("host", "")
        if not _names_loopback(host):
            message = f"this server has no authentication and answers on this machine only, not as '{host}'"
            raise RequestError(message, code="foreign_host", status=403)
        check_origin(connection)
        if self._attempts is not None and (token := _attempt_token_of(connection)) is not None:
            return await self._attempts.authenticate(token)
        # The page acts for the tenant that the operator chose, and only its ticket says which one.
        if self._tickets is not None and (ticket := _ticket_of(connection)) is not None:
            return await self._tickets.redeem(ticket, connection.scope["path"])
        return LOCAL_PRINCIPAL


class OuterAuthentication:
    """Takes every request as one of the local operator: an outer application has decided whom it lets through."""

    async def authenticate(self, connection: Connection, /) -> Principal | None:
        """Return the local operator; RequestError for a web page of another site."""
        check_origin(connection)
        return LOCAL_PRINCIPAL


class CredentialAuthentication:
    """Finds the principal of a key, of a ticket, of a browser's session, or of a token that an issuer has signed."""

    def __init__(self, access: AccessServices, oidc: OidcProvider | None = None) -> None:
        self._access = access
        self._oidc = oidc

    async def authenticate(self, connection: Connection, /) -> Principal | None:
        """Return the principal of the request's credential; None without one."""
        if (header := connection.headers.get("authorization")) is not None:
            bearer = _bearer_token(header)
            if is_attempt_token(bearer):
                return await self._access.attempts.authenticate(bearer)
            if self._oidc is not None and bearer.count(".") == DOTS_OF_JWT:
                return await self._oidc.authenticate(bearer)
            return await self._access.keys.authenticate(bearer)
        if (ticket := _ticket_of(connection)) is not None:
            return await self._access.tickets.redeem(ticket, connection.scope["path"])
        if (token := connection.cookies.get(SESSION_COOKIE)) is not None:
            _check_own_page(connection)
            return await self._access.sessions.authenticate(token)
        return None


def _ticket_of(connection: Connection) -> str | None:
    is_socket = connection.scope["type"] == ScopeType.WEBSOCKET
    return connection.query_params.get("ticket") or None if is_socket else None


def _attempt_token_of(connection: Connection) -> str | None:
    """Return the token of a remote attempt, if the request has one."""
    header = connection.headers.get("authorization")
    token = None if header is None else header.partition(" ")[2].strip()
    return token if token is not None and is_attempt_token(token) else None


def _bearer_token(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise RequestError("send the key as `Authorization: Bearer KEY`", code="invalid_key", status=401)
    return token.strip()


def _check_own_page(connection: Connection) -> None:
    """Raise RequestError unless a request with a cookie, which browsers add by themselves, is of our own page."""
    check_origin(connection)
    is_change = connection.scope.get("method", "GET") not in _SAFE_METHODS
    if is_change and PAGE_HEADER not in connection.headers:
        message = f"a change with a session needs the header {PAGE_HEADER}, which pages of other sites cannot send"
        raise RequestError(message, code="foreign_page", status=403)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(KNOWN_HOSTS)
def _names_loopback(host: str) -> bool:
    """Return whether a request's `Host`, which may have a port, is this machine."""
    parts = _parts_of(f"//{host}")
    return parts is not None and is_loopback(parts.hostname or "")


def check_origin(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Raise RequestError if a browser sent the request for a page of another site."""
    origin = connection.headers.get("origin")
    if origin is None:
        return
    parts = _parts_of(origin)
    if parts is None or parts.netloc != connection.headers.get("host", ""):
        raise RequestError("requests from pages of other sites are refused", code="foreign_origin", status=403)


def _parts_of(url: str) -> SplitResult | None:
    """Return the parts of a URL; None for one that is malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        return None
