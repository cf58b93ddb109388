"""The context of the server: what handlers use to answer a request."""

from collections.abc import Callable
from typing import Protocol

import msgspec
from litestar.connection import ASGIConnection
from litestar.datastructures import State

from tidemill.access.principal import Principal
from tidemill.engine.workflows.client.values import Caller
from tidemill.node import Node
from tidemill.server.oidc.login import OidcLogin
from tidemill.server.rate_limits import RateLimits
from tidemill.server.static_site import StaticSite


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


def caller_of(principal: Principal) -> Caller:
    """Return the caller that the engines see."""
    return Caller(principal.tenant, principal.actor)
