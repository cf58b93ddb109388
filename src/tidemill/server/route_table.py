"""The route table: every route of the server, with its permission and its audit event.

The routes of operations are derived. The application serves nothing else, the OpenAPI document describes these routes,
and the tests of authorization walk them.
"""

from tidemill.access.principal import Permission, ResourceKind
from tidemill.api.runs import get_run
from tidemill.api.table import OPERATIONS
from tidemill.server.derive import to_route
from tidemill.server.live import event_socket, push_socket, reactor_socket
from tidemill.server.routes import (
    accumulators,
    attempts,
    dead_letters,
    events,
    graphs,
    meta,
    packages,
    pages,
    reactors,
    runs,
    sessions,
)
from tidemill.server.routing import Handler, Route, delete, get, post, put, websocket

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

GRAPHS = (
    get("/graphs", graphs.list_graphs, READ),
    get("/graphs/{name:str}", graphs.get_graph, READ),
    post("/graphs/{name:str}/call", graphs.call_graph, WRITE, audit="graph.call"),
)

REACTORS = (
    get("/reactors", reactors.list_reactors, READ),
    get("/reactors/{name:str}", reactors.get_reactor, READ, resource="reactors"),
    get("/reactors/{name:str}/firings", reactors.list_firings, READ, resource="reactors"),
    get("/reactors/{name:str}/timeseries", reactors.get_timeseries, READ, resource="reactors"),
    get("/reactors/{name:str}/recoveries", reactors.list_recoveries, READ, resource="reactors"),
    post(
        "/reactors/{name:str}/commands",
        reactors.command_reactor,
        WRITE,
        audit="reactor.command",
        resource="reactors",
        takes_key=True,
    ),
    get("/reactors/{owner:str}/{name:str}", reactors.get_shared_reactor, READ),
    get("/reactors/{owner:str}/{name:str}/firings", reactors.list_shared_firings, READ),
    get("/reactors/{owner:str}/{name:str}/timeseries", reactors.get_shared_timeseries, READ),
)

ACCUMULATORS = (
    get("/accumulators", accumulators.list_accumulators, READ),
    get("/accumulators/{name:str}", accumulators.get_accumulator, READ, resource="accumulators"),
    post(
        "/accumulators/{name:str}/events",
        accumulators.push_events,
        WRITE,
        audit=None,  # events are data: their number would bury the changes that people make
        resource="accumulators",
        takes_key=True,
        body_limit=accumulators.PUSH_LIMIT,
        bodies=accumulators.PUSH_BODIES,
    ),
    post(
        "/accumulators/{name:str}/restart",
        accumulators.restart_accumulator,
        WRITE,
        audit="accumulator.restart",
        resource="accumulators",
    ),
)


def _dead_letter_routes(
    kind: ResourceKind, list_all: Handler, get_one: Handler, replay: Handler, drop: Handler
) -> tuple[Route, ...]:
    path = f"/{kind}/{{name:str}}/dead-letters"
    return (
        get(path, list_all, READ, resource=kind),
        get(f"{path}/{{id:str}}", get_one, READ, resource=kind),
        post(f"{path}/{{id:str}}/replay", replay, WRITE, audit="dead_letter.replay", resource=kind),
        delete(f"{path}/{{id:str}}", drop, WRITE, audit="dead_letter.drop", resource=kind),
    )


DEAD_LETTERS = (
    *_dead_letter_routes(
        "accumulators",
        dead_letters.list_accumulator_dead_letters,
        dead_letters.get_accumulator_dead_letter,
        dead_letters.replay_accumulator_dead_letter,
        dead_letters.drop_accumulator_dead_letter,
    ),
    *_dead_letter_routes(
        "reactors",
        dead_letters.list_reactor_dead_letters,
        dead_letters.get_reactor_dead_letter,
        dead_letters.replay_reactor_dead_letter,
        dead_letters.drop_reactor_dead_letter,
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
    websocket("/ws/events", event_socket.event_socket, READ),
    websocket("/ws/accumulators/{name:str}", push_socket.push_socket, WRITE, resource="accumulators"),
    # Commands need the permission to write as well: the connection checks each.
    websocket("/ws/reactors/{name:str}", reactor_socket.reactor_socket, READ, resource="reactors"),
    websocket("/ws/reactors/{owner:str}/{name:str}", reactor_socket.shared_reactor_socket, READ),
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
    *GRAPHS,
    *REACTORS,
    *ACCUMULATORS,
    *DEAD_LETTERS,
    *PACKAGES,
    *SESSIONS,
    *(to_route(one) for one in OPERATIONS if one is not get_run),
    *LIVE,
    *ATTEMPTS,
    *PAGES,
)
