"""Two tenants on one server: to each, what belongs to the other does not exist."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest

import tidemill as tm
from tests.service.server.graph_samples import double, market
from tests.service.server.serving_node import Served, client_of, served
from tidemill.access.principal import Permission, Principal, Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.route_table import ROUTES
from tidemill.server.routing import Route

PATIENCE = 20.0  # seconds until a test gives up
CANARY = "canary-of-acme"
UNKNOWN = "canary-unknown"


class Neighbours(NamedTuple):
    """A server with everything in tenant acme, and the clients of both tenants."""

    server: Served
    acme: httpx.AsyncClient
    beta: httpx.AsyncClient
    names: dict[str, str]
    """What acme has, by noun."""


def report() -> tm.Workflow:
    """Return a workflow of one task."""
    workflow = tm.Workflow(f"{CANARY}-report")

    @workflow.task
    def count() -> int:
        return 1

    return workflow


@pytest.fixture
async def neighbours() -> AsyncIterator[Neighbours]:
    """Both tenants; beta has nothing."""
    node = tm.Node(load=[*market(), double(), report()], tenant="acme")
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        tokens = {name: await make_tenant(node.access, name) for name in ("acme", "beta")}
        names = await fill(node)
        clients = {
            name: client_of(server.http.base_url, {"authorization": f"Bearer {token}"})
            for name, token in tokens.items()
        }
        async with clients["acme"] as acme, clients["beta"] as beta:
            yield Neighbours(server, acme, beta, names)


async def make_tenant(access: AccessServices, name: str) -> str:
    """Create a tenant, and return an admin's token."""
    await access.tenants.create(LOCAL_PRINCIPAL, name)
    return (await access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, tenant=name, label=f"canary-of-{name}")).token


async def fill(node: tm.Node) -> dict[str, str]:
    """Give acme something of every kind; return the names."""
    owner = Principal(tenant="acme", role=Role.ADMIN, actor="local")
    await node.access.variables.set(owner, f"{CANARY}-region", "eu")
    await node.access.secrets.set(owner, f"{CANARY}-password", "secret value")
    await node.access.accounts.create(owner, f"{CANARY}-ada", Role.READ, "correct horse battery")
    run = await node.start(f"{CANARY}-report")
    await run.wait(timeout=PATIENCE)
    await node.push("orderbook", {"bid": "not a number"})
    [key] = [one for one in await node.access.keys.list_for(owner) if one.label == CANARY]
    return {
        "workflows": f"{CANARY}-report",
        "runs": run.id,
        "graphs": "double",
        "reactors": "market",
        "accumulators": "orderbook",
        "variables": f"{CANARY}-region",
        "secrets": f"{CANARY}-password",
        "accounts": f"{CANARY}-ada",
        "keys": key.id,
    }


def routes_to_try(neighbours: Neighbours) -> list[tuple[Route, str]]:
    """Return the routes about something that has a name, with their nouns."""
    found = []
    for route in ROUTES:
        noun = route.path.split("/")[3] if route.path.startswith("/api/v1/") else ""
        is_named = "{" in route.path and noun in neighbours.names
        if is_named and route.method != "WEBSOCKET" and route.permission is not Permission.INSTANCE:
            found.append((route, noun))
    return found


async def ask(client: httpx.AsyncClient, route: Route, path: str) -> tuple[int, str, str]:
    """Return status, code and detail of the answer."""
    body: dict[str, Any] = {"json": {}} if route.method in ("POST", "PUT", "PATCH") else {}
    async with asyncio.timeout(PATIENCE):
        answer = await client.request(route.method, path.removeprefix("/api/v1"), **body)
    problem = answer.json() if answer.status_code >= 400 else {}
    return answer.status_code, problem.get("code", ""), problem.get("detail", "")


async def test_what_another_tenant_has_is_as_unknown_as_what_no_tenant_has(neighbours: Neighbours) -> None:
    """S-5, fault 81: the same status, code and text as for a name that does not exist; never 403."""
    tried = routes_to_try(neighbours)
    assert len(tried) > 30
    for route, noun in tried:
        name = neighbours.names[noun]
        paths = [re.sub(r"\{\w+:str\}", one, route.path.replace("{owner:str}", "acme")) for one in (name, UNKNOWN)]
        foreign, unknown = [await ask(neighbours.beta, route, path) for path in paths]
        foreign = (*foreign[:2], foreign[2].replace(name, "NAME"))
        unknown = (*unknown[:2], unknown[2].replace(UNKNOWN, "NAME"))
        assert foreign == unknown, (route.method, route.path)
        assert foreign[0] in (400, 404) or foreign[0] < 300, (route.method, route.path, foreign)
        assert route.method != "GET" or foreign[0] == 404, (route.method, route.path, foreign)


async def test_no_list_shows_another_tenants_things(neighbours: Neighbours) -> None:
    """S-5, fault 81: neither lists, nor filters, nor the audit log, nor totals."""
    for route in ROUTES:
        if route.method != "GET" or "{" in route.path or not route.path.startswith("/api/v1/"):
            continue
        if route.permission in (Permission.NONE, Permission.ATTEMPT) or route.path.endswith("/events"):
            continue
        path = route.path.removeprefix("/api/v1")
        mine, theirs = await neighbours.acme.get(path), await neighbours.beta.get(path)
        assert (mine.status_code, theirs.status_code) == (200, 200), path
        assert CANARY not in theirs.text, path
        assert neighbours.names["runs"] not in theirs.text, path
        assert neighbours.names["keys"] not in theirs.text, path
        assert '"acme"' not in theirs.text, path


async def test_a_tenant_cannot_name_another(neighbours: Neighbours) -> None:
    """S-5: by no header, query or field."""
    for headers in ({"tidemill-tenant": "acme"}, {"Tidemill-Tenant": "public"}):
        assert (await neighbours.beta.get("/runs", headers=headers)).status_code == 403
    queried = await neighbours.beta.get("/variables", params={"tenant": "acme"})
    assert CANARY not in queried.text
    for path, body in [
        ("/keys", {"role": "read", "tenant": "acme"}),
        ("/accounts", {"name": "eve", "role": "read", "password": "x" * 20, "tenant": "acme"}),
    ]:
        assert (await neighbours.beta.post(path, json=body)).json()["code"] == "not_allowed"


async def test_the_neighbour_keeps_what_it_has(neighbours: Neighbours) -> None:
    """S-5: the attempts of the other tests, and equal names in both tenants, change nothing."""
    name = neighbours.names["variables"]
    assert (await neighbours.beta.put(f"/variables/{name}", json={"value": "other"})).status_code == 200
    assert (await neighbours.beta.delete(f"/variables/{name}")).status_code == 204
    assert (await neighbours.acme.get(f"/variables/{name}")).json()["value"] == "eu"


async def test_metrics_show_no_other_tenant(neighbours: Neighbours) -> None:
    """S-5, fault 81: neither its name nor the names of what it has."""
    url = f"{neighbours.server.url}/metrics"
    mine, theirs = await neighbours.acme.get(url), await neighbours.beta.get(url)
    assert 'tenant="acme"' in mine.text
    assert "acme" not in theirs.text
    assert "orderbook" not in theirs.text
