"""The route table: every route of the server, with its permission and its audit event.

This is the only list of routes. The application serves nothing else, the OpenAPI document describes these, and the
tests of authorization walk them.
"""

from tidemill.access.principal import Permission
from tidemill.server.routes import meta, runs, workflows
from tidemill.server.routing import Route, get, post, put

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

WORKFLOWS = (
    post("/workflows/{name:str}/runs", workflows.start_run, WRITE, audit="run.start", status=201, takes_key=True),
)

RUNS = (
    get("/runs", runs.list_runs, READ),
    get("/runs/{run:str}", runs.get_run, READ),
    get("/runs/{run:str}/events", runs.list_run_events, READ),
    post("/runs/{run:str}/cancel", runs.cancel_run, WRITE, audit="run.cancel"),
    post("/runs/{run:str}/retry", runs.retry_run, WRITE, audit="run.retry"),
    post("/runs/{run:str}/clear", runs.clear_run, WRITE, audit="run.clear"),
    put("/runs/{run:str}/note", runs.put_run_note, WRITE, audit="run.note"),
)

ROUTES: tuple[Route, ...] = (*META, *WORKFLOWS, *RUNS)
