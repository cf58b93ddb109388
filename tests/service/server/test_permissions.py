"""Who may do what: every route of the table, tried by every kind of principal."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
import websockets

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.access.principal import Permission, Principal, Resource, Role
from tidemill.access.tokens import digest_token, new_attempt_token
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server import rate_limits
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.route_table import ROUTES
from tidemill.server.routing import BASE_PATH, Route
from tidemill.storage.tables.orders import AttemptOrder

RESTRICTED = Resource("accumulators", "absent")
ROLES = {"read": Role.READ, "write": Role.WRITE, "admin": Role.ADMIN}
REFUSED_CREDENTIALS = {
    "no key": "no_key",
    "garbage": "invalid_key",
    "unknown": "invalid_key",
    "other scheme": "invalid_key",
    "expired": "key_expired",
    "revoked": "key_revoked",
    "signed out": "session_ended",
    "unknown attempt": "invalid_attempt_token",
}
HTTP_ROUTES = [route for route in ROUTES if route.method != "WEBSOCKET"]
SOCKET_ROUTES = [route for route in ROUTES if route.method == "WEBSOCKET"]
BAD_FRAME = 4400  # the close code of an open connection that does not take this frame
PATIENCE = 20.0  # seconds until a test gives up


class Walker(NamedTuple):
    """A server, and the headers of each kind of principal."""

    server: Served
    headers: dict[str, dict[str, str]]
    principals: dict[str, Principal]


@pytest.fixture
async def walker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Walker]:
    """A server with keys of every kind; its address may fail as often as the walk needs."""
    monkeypatch.setattr(rate_limits, "FAILURE_BURST", 1e9)
    node = tm.Node(settings={"requests_per_second": 100_000})
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        yield Walker(server, *await make_principals(node))


async def make_principals(node: tm.Node) -> tuple[dict[str, dict[str, str]], dict[str, Principal]]:
    """Return the headers of every kind of principal, and those that are valid."""
    access, tokens = node.access, {}
    for tenant in ("acme", "beta"):
        await access.tenants.create(LOCAL_PRINCIPAL, tenant)
    for name, role in ROLES.items():
        tokens[name] = (await access.keys.create(LOCAL_PRINCIPAL, role, tenant="acme")).token
        tokens[f"instance {name}"] = (await access.keys.create(LOCAL_PRINCIPAL, role)).token
        made = await access.keys.create(LOCAL_PRINCIPAL, role, tenant="acme", only=[str(RESTRICTED)])
        tokens[f"restricted {name}"] = made.token
    principals = {name: await access.keys.authenticate(token) for name, token in tokens.items()}
    tokens["attempt"], tokens["unknown attempt"] = await order_attempt(node), new_attempt_token()
    principals["attempt"] = await access.attempts.authenticate(tokens["attempt"])
    tokens["expired"] = (await access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN, lifetime=1e-6)).token
    revoked, tokens["revoked"] = await access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN)
    await access.keys.revoke(LOCAL_PRINCIPAL, revoked.id)
    tokens["garbage"], tokens["unknown"] = "x", f"tm_00000000_{'a' * 43}"
    headers = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}
    headers["other scheme"] = {"authorization": f"Basic {tokens['admin']}"}
    headers["no key"], headers["signed out"] = {}, {"cookie": "tidemill_session=x", "x-requested-with": "x"}
    return headers, principals


async def order_attempt(node: tm.Node) -> str:
    """Order a remote attempt of a tenant, and return its token."""
    token = new_attempt_token()
    order = AttemptOrder(
        run="r1",
        task="t",
        element=-1,
        attempt=1,
        tenant="acme",
        digest=digest_token(token),
        payload=b"",
        bundle=None,
        created_at=node.access.clock.now(),
    )
    await node.store.attempt_orders.put(order)
    return token


async def call(walker: Walker, route: Route, kind: str, path: str | None = None) -> tuple[int, str]:
    """Call a route about something that does not exist; return the status and the code of the problem."""
    path = path or re.sub(r"\{\w+:str\}", "absent", route.path)
    url = f"{walker.server.url}{path}"
    headers = {"content-type": "application/json", **walker.headers[kind]}
    request = walker.server.http.build_request(route.method, url, headers=headers, content=b'{"unknown": 1}')
    answer = await walker.server.http.send(request, stream=True)
    try:
        is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
        return answer.status_code, (await read_json(answer))["code"] if is_problem else ""
    finally:
        await answer.aclose()


async def read_json(answer: httpx.Response) -> Any:
    """Return the body of an answer."""
    await answer.aread()
    return answer.json()


def resource_of(route: Route) -> Resource | None:
    """Return the endpoint that the walk names."""
    return None if route.resource is None else Resource(route.resource, "absent")


async def test_a_credential_that_is_not_valid_opens_nothing(walker: Walker) -> None:
    """S-4, fault 80: 401 on every route that needs a principal."""
    for kind, code in REFUSED_CREDENTIALS.items():
        for route in HTTP_ROUTES:
            found = await call(walker, route, kind)
            if route.permission is Permission.NONE:
                assert found[1] not in REFUSED_CREDENTIALS.values(), (route.method, route.path, kind)
            else:
                assert found == (401, code), (route.method, route.path, kind)


@pytest.mark.parametrize("scope", ["", "instance ", "restricted "])
async def test_a_principal_may_do_what_the_table_says(walker: Walker, scope: str) -> None:
    """S-4, fault 80: 403 exactly where the role, the tenant or the restriction does not allow the route."""
    for name in ROLES:
        kind = scope + name
        for route in HTTP_ROUTES:
            if (route.method, route.path) == ("DELETE", f"{BASE_PATH}/session"):
                continue  # a key has no session
            status, code = await call(walker, route, kind)
            is_allowed = walker.principals[kind].has(route.permission, resource_of(route))
            assert (code != "not_allowed") is is_allowed, (route.method, route.path, kind, status, code)
            assert status < 500, (route.method, route.path, kind, status, code)


async def test_a_restricted_key_reaches_no_other_endpoint(walker: Walker) -> None:
    """S-4: the names of other endpoints, and everything that is not an endpoint."""
    for route in HTTP_ROUTES:
        if route.permission in (Permission.NONE, Permission.KNOWN):
            continue
        path = re.sub(r"\{\w+:str\}", "other", route.path)
        assert await call(walker, route, "restricted admin", path) == (403, "not_allowed"), route.path


async def test_an_attempt_may_do_nothing_but_its_own_calls(walker: Walker) -> None:
    """Deny by default: not even what every other principal may do, nor for another tenant."""
    for route in HTTP_ROUTES:
        status, code = await call(walker, route, "attempt")
        is_allowed = route.permission in (Permission.NONE, Permission.ATTEMPT)
        assert (code != "not_allowed") is is_allowed, (route.method, route.path, status, code)
        assert status < 500, (route.method, route.path, status, code)
    for tenant in ("beta", "public"):
        headers = {**walker.headers["attempt"], "tidemill-tenant": tenant}
        answer = await walker.server.http.post("/attempts/heartbeat", headers=headers)
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/keys",
        "/api/v1//keys",
        "/api/v1/%2e/keys",
        "/api/v1/../v1/keys",
        "/api/v1/keys/../keys",
        "/API/v1/keys",
        "/api/v1/keys;x=1",
        "/api/v1/keys/health",
        "/health/live/../../api/v1/keys",
        "/api/v1/keys%00",
        "/api/v1/keys%2f",
        "/api/v1/version/../keys",
    ],
)
async def test_no_spelling_of_a_path_goes_around_the_table(walker: Walker, path: str) -> None:
    """Fault 80: what is not in the table is not there."""
    async with httpx.AsyncClient() as client:
        url = httpx.URL(walker.server.url).copy_with(raw_path=path.encode())
        for headers in ({}, {"x-http-method-override": "GET"}):
            answer = await client.get(url, headers=headers)
            assert answer.status_code in (401, 404, 405), (path, answer.text)


async def test_another_method_is_not_there(walker: Walker) -> None:
    """Fault 80: a method that the table does not have, and one that a header names."""
    url = f"{walker.server.url}/api/v1/keys"
    for method in ("PATCH", "PUT", "TRACE"):
        answer = await walker.server.http.request(method, url, headers=walker.headers["admin"])
        assert answer.status_code in (404, 405), method
    override = {**walker.headers["read"], "x-http-method-override": "DELETE", "x-http-method": "DELETE"}
    assert (await walker.server.http.get(url, headers=override)).status_code == 403
    for role, status in (("read", 403), ("admin", 200)):
        assert (await walker.server.http.head(url, headers=walker.headers[role])).status_code == status


def test_every_change_is_audited() -> None:
    """S-7: a route that is not a read names its event, except where the data itself is the record."""
    silent = {f"{BASE_PATH}/accumulators/{{name:str}}/events", f"{BASE_PATH}/tickets"}
    for route in HTTP_ROUTES:
        is_silent = route.path in silent or route.permission is Permission.ATTEMPT
        assert (route.method == "GET") or route.audit or is_silent, route.path


async def connect(walker: Walker, path: str, headers: dict[str, str], query: str = "") -> int:
    """Connect to a WebSocket, and send a frame that not every endpoint knows; return the code of the close, or 0."""
    url = f"{walker.server.url.replace('http:', 'ws:')}{path}{query}"
    async with asyncio.timeout(PATIENCE), websockets.connect(url, additional_headers=headers) as socket:
        try:
            await socket.send('{"id": 1, "command": "state"}')
            await asyncio.wait_for(socket.recv(), 0.5)
        except TimeoutError:
            return 0
        except websockets.ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else -1
    return 0


async def test_a_socket_is_closed_for_a_credential_that_is_not_valid(walker: Walker) -> None:
    """S-3, fault 80: 4401 on every WebSocket route."""
    for route in SOCKET_ROUTES:
        if route.permission is Permission.NONE:
            continue
        path = re.sub(r"\{\w+:str\}", "absent", route.path)
        for kind in REFUSED_CREDENTIALS:
            assert await connect(walker, path, walker.headers[kind]) == 4401, (route.path, kind)


async def test_a_socket_is_closed_for_a_principal_that_may_not(walker: Walker) -> None:
    """S-3: 4403 exactly where the table says so."""
    for route in SOCKET_ROUTES:
        path = re.sub(r"\{\w+:str\}", "absent", route.path)
        for kind in ("read", "write", "restricted read", "restricted write"):
            is_allowed = walker.principals[kind].has(route.permission, resource_of(route))
            code = await connect(walker, path, walker.headers[kind])
            assert (code != 4403) is is_allowed, (route.path, kind, code)


async def test_a_ticket_opens_one_socket(walker: Walker) -> None:
    """S-3, fault 80: for its endpoint, once; a cookie of a page of another site opens none."""
    headers = walker.headers["read"]
    answer = await walker.server.http.post("/tickets", json={"endpoint": "/ws/events"}, headers=headers)
    query = f"?ticket={answer.json()['ticket']}"
    assert await connect(walker, "/ws/events", {}, query) == BAD_FRAME
    assert await connect(walker, "/ws/events", {}, query) == 4401
    access = walker.server.node.access
    cookie = {"cookie": f"tidemill_session={(await access.sessions.open(LOCAL_PRINCIPAL)).token}"}
    assert await connect(walker, "/ws/events", cookie) == BAD_FRAME
    assert await connect(walker, "/ws/events", {**cookie, "origin": "https://evil.example"}) == 4403
