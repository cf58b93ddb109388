"""The route table: every route of the server, with its permission and its audit event.

The routes of operations are derived. The application serves nothing else, the OpenAPI document describes these routes,
and the tests of authorization walk them.
"""

from tidemill.access.principal import Permission
from tidemill.api.runs import get_run
from tidemill.api.table import OPERATIONS
from tidemill.server.derive import to_route, to_routes
from tidemill.server.live import link_socket, push_socket, reactor_socket
from tidemill.server.routes import (
    attempts,
    events,
    meta,
    packages,
    pages,
    pushes,
    runs,
    sessions,
)
from tidemill.server.routing import Route, delete, get, post, put, websocket

NONE, KNOWN, READ, WRITE, ADMIN, INSTANCE, UPLOAD, ATTEMPT = Permission

META = (
    get("/version", meta.get_version, NONE),
    get("/openapi.json", meta.get_openapi, NONE),
    get("/me", meta.get_me, KNOWN),
    get("//api/docs", meta.get_api_docs, NONE, media_type="text/html"),
    get("//health/live", meta.get_health_live, NONE),
    get("//health/ready", meta.get_health_ready, NONE, answers=(503,)),
    get("//metrics", meta.get_metrics, READ, media_type="text/plain"),
)

PUSHES = (
    post(
        "/accumulators/{name:str}/events",
        pushes.push_events,
        WRITE,
        audit=None,  # events are data: their number would bury the changes that people make
        resource="accumulators",
        takes_key=True,
        body_limit=pushes.PUSH_LIMIT,
        bodies=pushes.PUSH_BODIES,
    ),
)

PACKAGES = (
    put(
        "/packages/{name:str}",
        packages.put_package,
        UPLOAD,
        audit="package.upload",
        body_limit=packages.UPLOAD_LIMIT,
        bodies=packages.UPLOAD_BODIES,
    ),
    post(
        "/packages/{name:str}/check",
        packages.check_package,
        UPLOAD,
        audit="package.check",  # its code runs
        body_limit=packages.UPLOAD_LIMIT,
        bodies=packages.UPLOAD_BODIES,
    ),
)

BY_SERVICE = {"is_audited_by_service": True}

SESSIONS = (
    get("/session", sessions.get_session, NONE),
    post("/session", sessions.open_session, NONE, audit="session.open", **BY_SERVICE, status=201),
    delete("/session", sessions.close_session, KNOWN, audit="session.close", **BY_SERVICE),
    get("/session/oidc", sessions.begin_oidc_login, NONE, status=302, errors=(401, 404)),
    get("/session/oidc/callback", sessions.finish_oidc_login, NONE, status=302, errors=(401, 404)),
    post("/tickets", sessions.create_ticket, KNOWN, audit=None, status=201),
)

LIVE = (
    get("/events", events.follow_events, READ),
    websocket("/ws/events", events.event_socket, READ),
    websocket("/ws/accumulators/{name:str}", push_socket.push_socket, WRITE, resource="accumulators"),
    # Commands need the permission to write as well: the connection checks each.
    websocket("/ws/reactors/{name:str}", reactor_socket.reactor_socket, READ, resource="reactors"),
    websocket("/ws/reactors/{owner:str}/{name:str}", reactor_socket.shared_reactor_socket, READ),
    # Nodes prove with their own keys that they are of the store.
    websocket("/ws/links", link_socket.link_socket, NONE),
)

# What attempts do is recorded with their runs, not in the audit log.
ATTEMPTS = (
    post("/attempts/start", attempts.start_attempt, ATTEMPT, audit=None, status=200, errors=(409,)),
    post("/attempts/heartbeat", attempts.beat_attempt, ATTEMPT, audit=None, status=200, errors=(409,)),
    post("/attempts/logs", attempts.add_attempt_logs, ATTEMPT, audit=None, status=204, errors=(409,)),
    post(
        "/attempts/result",
        attempts.report_attempt,
        ATTEMPT,
        audit=None,
        status=204,
        errors=(409,),
        body_limit=attempts.REPORT_LIMIT,
    ),
    post(
        "/attempts/calls",
        attempts.call_from_attempt,
        ATTEMPT,
        audit=None,
        status=200,
        errors=(409,),
        body_limit=attempts.REPORT_LIMIT,
    ),
    get("/attempts/code", attempts.get_attempt_code, ATTEMPT, media_type="application/octet-stream", errors=(404, 409)),
)

PAGES = (
    get("//docs", pages.get_docs, NONE, is_page=True),
    get("//docs/{path:path}", pages.get_docs_file, NONE, is_page=True),
    get("//", pages.get_ui, NONE, is_page=True),
    get("//{path:path}", pages.get_ui_file, NONE, is_page=True),
)

ROUTES: tuple[Route, ...] = (
    *META,
    to_route(get_run, runs.get_run, answers=(304,)),
    *PUSHES,
    *PACKAGES,
    *SESSIONS,
    *(route for one in OPERATIONS if one is not get_run for route in to_routes(one)),
    *LIVE,
    *ATTEMPTS,
    *PAGES,
)
