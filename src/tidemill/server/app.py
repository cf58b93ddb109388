"""The application: the route table of a running node, as an ASGI app."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from litestar import Litestar
from litestar.exceptions import HTTPException

from tidemill.kernel.errors import TidemillError
from tidemill.node import Node
from tidemill.server.authentication import CredentialAuthentication, NoAuthentication
from tidemill.server.authorization import Auditing, Authorization
from tidemill.server.compression import Compression
from tidemill.server.connections import limit_per_key
from tidemill.server.errors import answer_http_exception, answer_tidemill_error, answer_unexpected_error
from tidemill.server.idempotency import Idempotency
from tidemill.server.metrics import ServerMetrics
from tidemill.server.oidc.login import OidcLogin
from tidemill.server.oidc.provider import OidcProvider, make_provider
from tidemill.server.openapi import openapi_document
from tidemill.server.rate_limits import RateLimits
from tidemill.server.request_context import RequestContext
from tidemill.server.requests import ApiRequest, ApiResponse, Authenticator, ContextInjection, ServerContext
from tidemill.server.route_table import ROUTES
from tidemill.server.routing import Route, to_handler
from tidemill.server.static_site import STATIC_FOLDER, StaticSite

if TYPE_CHECKING:
    from litestar.types import ASGIApp

BODY_LIMIT = 8 * 1024 * 1024
"""Bytes of a request's body, unless its route says otherwise."""


def make_server_app(node: Node, *, has_authentication: bool) -> "ASGIApp":
    """Return the application of a server, with the authentication that the settings of its node name."""
    if not has_authentication:
        return make_app(node, NoAuthentication(node.access.tickets, node.access.attempts))
    oidc = make_provider(node.settings, node.access.clock)
    return make_app(node, CredentialAuthentication(node.access, oidc), oidc)


def make_app(
    node: Node, authenticator: Authenticator, oidc: OidcProvider | None = None, *, static: Path = STATIC_FOLDER
) -> "ASGIApp":
    """Return the application that serves a node; people sign in at the issuer `oidc`, if there is one.

    `static` has the web UI and the documentation, as the build writes them.
    """
    context = ServerContext(
        node=node,
        authenticator=authenticator,
        limits=RateLimits(node.access.clock, node.settings.requests_per_second, limit_per_key(node.settings)),
        oidc=None if oidc is None else OidcLogin(oidc, node.settings),
        openapi_document=openapi_document,
        ui=StaticSite(static / "ui"),
        docs=StaticSite(static / "docs"),
    )
    routes = ContextInjection(_routes(), context)
    return cast("ASGIApp", RequestContext(routes, ServerMetrics(node), node.spans, node.event_feed.clock))


@cache
def _routes() -> "ASGIApp":
    """Return the application of the route table; it is made once because that takes a while.

    Any number of nodes may share it: it knows none of them, and a request brings its own.
    """
    app = Litestar(
        [to_handler(route, list(_wrappers_of(route))) for route in ROUTES],
        middleware=[Authorization],
        exception_handlers={
            TidemillError: answer_tidemill_error,
            HTTPException: answer_http_exception,
            Exception: answer_unexpected_error,
        },
        request_class=ApiRequest,
        response_class=ApiResponse,
        request_max_body_size=BODY_LIMIT,
        openapi_config=None,
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )
    return cast("ASGIApp", app)


def _wrappers_of(route: Route) -> Iterator[Any]:
    """Yield what is around the handler of a route, the outermost first: only what its requests need."""
    if route.method == "GET":
        yield Compression
    if route.takes_key:
        yield partial(Idempotency, route=route, body_limit=BODY_LIMIT)
    if route.audit is not None and not route.is_audited_by_service:
        yield partial(Auditing, route=route)
