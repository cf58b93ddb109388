"""The route table: every route of the server, with its permission and its audit event.

This is the only list of routes. The application serves nothing else, the OpenAPI document describes these, and the
tests of authorization walk them.
"""

from tidemill.access.principal import Permission
from tidemill.server.routes import meta
from tidemill.server.routing import Route, get

NONE, KNOWN, READ, WRITE, ADMIN, INSTANCE = Permission

META = (
    get("/version", meta.get_version, NONE),
    get("/openapi.json", meta.get_openapi, NONE),
    get("/me", meta.get_me, KNOWN),
    get("//api/docs", meta.get_api_docs, NONE),
    get("//health/live", meta.get_health_live, NONE),
    get("//health/ready", meta.get_health_ready, NONE),
    get("//metrics", meta.get_metrics, READ),
)

ROUTES: tuple[Route, ...] = (*META,)
