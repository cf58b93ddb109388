"""The context of the server: what handlers use to answer a request.

It is in the scope of each connection. So routes and middleware know no node, and are made once for all servers of a
process.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from litestar.connection import ASGIConnection
from litestar.datastructures import State

from tidemill.access.principal import Caller, Principal
from tidemill.node import Node
from tidemill.server.oidc.login import OidcLogin
from tidemill.server.rate_limits import RateLimits
from tidemill.server.static_site import StaticSite

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send


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
    """Wraps the routes: puts the context into the scope of each connection."""

    def __init__(self, routes: "ASGIApp", context: ServerContext) -> None:
        self._routes = routes
        self._context = context

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        scope.setdefault("state", {})["context"] = self._context
        await self._routes(scope, receive, send)


def context_of(scope: "Scope") -> ServerContext:
    """Return the context of a connection."""
    return cast(ServerContext, scope["state"]["context"])


def caller_of(principal: Principal) -> Caller:
    """Return the caller that the engines see."""
    return Caller(principal.tenant, principal.actor)
