"""The server itself: version, health, metrics, documentation, and who is asking."""

from functools import cache
from importlib.resources import files

from litestar import Response
from litestar.enums import MediaType

from tidemill.api.system import Identity, ServerInfo
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.version import VERSION
from tidemill.server.authorization import may_upload
from tidemill.server.readiness import Readiness, check_readiness
from tidemill.server.requests import ApiRequest

DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page: its own inline script may fetch the document from this server."""


@cache
def read_docs_page() -> str:
    """Return the page."""
    return (files("tidemill.server") / "static" / "api_docs.html").read_text(encoding="utf-8")


async def get_version() -> ServerInfo:
    """Return the version of the server and of its API."""
    return ServerInfo(version=VERSION)


async def get_me(request: ApiRequest) -> Identity:
    """Return who makes this request, for which tenant, and what they may do."""
    only = None if request.user.only is None else sorted(map(str, request.user.only))
    return Identity(
        actor=request.user.actor,
        tenant=request.user.tenant,
        role=request.user.role,
        is_instance_admin=request.user.is_instance_admin,
        may_upload=may_upload(request.user, request.node.settings),
        only=only,
    )


async def get_health_live() -> dict[str, str]:
    """Say that the process answers."""
    return {"status": "live"}


async def get_health_ready(request: ApiRequest) -> Response[Readiness]:
    """Say whether this server should get requests: 503 if it should not, with the part that is not well, and why."""
    readiness = await check_readiness(request.node)
    return Response(readiness, status_code=200 if readiness.status == "ready" else 503)


async def get_metrics(request: ApiRequest) -> Response[bytes]:
    """Return the metrics of the server in the format of Prometheus.

    An admin of the instance sees those of all tenants; others see those of the whole server and of their own tenant.
    """
    from tidemill.server.exposition import Exposition, render_metrics  # on use: prometheus_client has its own server

    samples = request.node.metrics_registry.samples(None if request.user.is_instance_admin else request.user.tenant)
    # On a thread: many reactors make a long page, and no event should wait for it.
    rendered: Exposition = await call_in_thread(render_metrics, samples, request.headers.get("accept", ""))
    return Response(rendered.content, headers={"content-type": rendered.content_type})


async def get_openapi(request: ApiRequest) -> Response[bytes]:
    """Return the OpenAPI document of this API."""
    return Response(request.context.openapi_document(), media_type=MediaType.JSON)


async def get_api_docs() -> Response[str]:
    """Return a page that shows the OpenAPI document; it loads nothing from outside."""
    return Response(read_docs_page(), media_type=MediaType.HTML, headers={"content-security-policy": DOCS_POLICY})
