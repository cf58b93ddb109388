"""Tenants, keys, accounts, sessions, variables, secrets and the audit log over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, client_of, create_tenant, served
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server.authentication import CredentialAuthentication

PASSWORD = "correct horse battery"
CANARY = "canary-5f1d8c-do-not-leak"
OWN_PAGE = {"x-requested-with": "tidemill"}


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A server with authentication; its client has a key of an admin of the instance."""
    async with tm.Node() as node, served(node, CredentialAuthentication(node.access)) as server:
        created = await node.access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN)
        server.http.headers["authorization"] = f"Bearer {created.token}"
        yield server


async def as_key(server: Served, role: str, tenant: str = "public", **given: Any) -> httpx.AsyncClient:
    """Return a client with a new key."""
    answer = await server.http.post("/keys", json={"role": role, "tenant": tenant, **given})
    assert answer.status_code == 201, answer.text
    return as_token(server, answer.json()["key"])


def as_token(server: Served, token: str | None) -> httpx.AsyncClient:
    """Return a client with a token, or with none."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return client_of(server.http.base_url, headers)


async def actions(server: Served, tenant: str = "public") -> list[str]:
    """Return the actions in the audit log of a tenant, newest first."""
    answer = await server.http.get("/audit", headers={"tidemill-tenant": tenant})
    return [one["action"] for one in answer.json()["items"]]


async def test_a_key_is_shown_once(server: Served) -> None:
    """S-4."""
    body = {"role": "write", "expires": 60, "only": ["accumulators:orderbook"], "label": "producer"}
    created = await server.http.post("/keys", json=body)
    assert created.headers["cache-control"] == "no-store"
    assert created.json()["key"].startswith(f"tm_{created.json()['id']}_")
    listed = await server.http.get("/keys")
    assert created.json()["key"] not in listed.text
    shown = {one["id"]: one for one in listed.json()["items"]}[created.json()["id"]]
    assert (shown["role"], shown["only"], shown["label"]) == ("write", ["accumulators:orderbook"], "producer")
    assert listed.json()["total"] == 2


async def test_a_revoked_key_is_refused_at_once(server: Served) -> None:
    """S-4."""
    created = (await server.http.post("/keys", json={"role": "read"})).json()
    async with as_token(server, created["key"]) as client:
        assert (await client.get("/me")).json()["actor"] == f"key:{created['id']}"
        assert (await server.http.delete(f"/keys/{created['id']}")).status_code == 204
        refused = await client.get("/me")
    assert (refused.status_code, refused.json()["code"]) == (401, "key_revoked")
    unknown = await server.http.delete("/keys/00000000")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "key_not_found")


async def test_an_admin_of_the_instance_acts_for_a_tenant(server: Served) -> None:
    """S-5: by the header; what it does is in the tenant's audit log, under its own name."""
    assert (await server.http.post("/tenants", json={"name": "acme"})).status_code == 201
    acting = {"tidemill-tenant": "acme"}
    assert (await server.http.get("/me", headers=acting)).json()["tenant"] == "acme"
    assert (await server.http.put("/variables/region", json={"value": "eu"}, headers=acting)).status_code == 200
    assert (await server.http.get("/variables")).json()["items"] == []
    assert await actions(server, "acme") == ["variable.set"]
    async with await as_key(server, "admin", "acme") as acme:
        assert (await acme.get("/variables/region")).json()["value"] == "eu"
        refused = await acme.get("/me", headers={"tidemill-tenant": "public"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert [one["name"] for one in (await acme.get("/tenants")).json()["items"]] == ["acme"]
    assert (await server.http.delete("/tenants/acme")).status_code == 204
    gone = await server.http.post("/keys", json={"role": "read", "tenant": "acme"})
    assert (gone.status_code, gone.json()["code"]) == (404, "tenant_not_found")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/me", None),
        ("GET", "/variables", None),
        ("PUT", "/variables/region", {"value": "eu"}),
        ("PUT", "/secrets/token", {"value": "x"}),
        ("POST", "/keys", {"role": "admin"}),
        ("POST", "/accounts", {"name": "ada", "role": "admin", "password": PASSWORD}),
    ],
)
async def test_nobody_acts_for_a_tenant_that_does_not_exist(
    server: Served, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """S-5: a slip of the pen leaves nothing behind for those who create that tenant later."""
    await create_tenant(server, "acme")
    answer = await server.http.request(method, path, json=body, headers={"tidemill-tenant": "acne"})
    assert (answer.status_code, answer.json()["code"]) == (404, "tenant_not_found")
    assert answer.json()["suggestions"] == ["acme"]
    later = await create_tenant(server, "acne")
    for list_path in ("/variables", "/secrets", "/keys", "/accounts"):
        assert (await server.http.get(list_path, headers=later)).json()["total"] == 0


async def test_a_tenant_exists_while_the_program_has_loaded_something_for_it(server: Served) -> None:
    headers = {"tidemill-tenant": "acme"}
    assert (await server.http.get("/workflows", headers=headers)).status_code == 404
    workflow = tm.Workflow("report")

    @workflow.task
    async def work() -> None:
        return None

    await server.node.load(workflow, tenant="acme")
    listed = (await server.http.get("/workflows", headers=headers)).json()
    assert [one["name"] for one in listed["items"]] == ["report"]


async def test_a_browser_signs_in_and_out(server: Served) -> None:
    """S-4: the cookie is out of reach for scripts and for other sites."""
    account = {"name": "ada", "role": "write", "password": PASSWORD}
    assert (await server.http.post("/accounts", json=account)).status_code == 201
    async with as_token(server, None) as browser:
        opened = await browser.post("/session", json={"account": "ada", "password": PASSWORD})
        assert (opened.status_code, opened.json()["actor"]) == (201, "account:ada")
        cookie = opened.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
        assert (await browser.get("/me")).json()["actor"] == "account:ada"
        changed = await browser.put("/variables/region", json={"value": 1}, headers=OWN_PAGE)
        assert changed.status_code == 200
        assert (await browser.delete("/session", headers=OWN_PAGE)).status_code == 204
        browser.cookies.set("tidemill_session", opened.cookies["tidemill_session"])
        ended = await browser.get("/me")
    assert (ended.status_code, ended.json()["code"]) == (401, "session_ended")
    assert (await actions(server))[:3] == ["session.close", "variable.set", "session.open"]


async def test_a_browser_asks_how_to_sign_in(server: Served) -> None:
    """S-4: without a key; a session that has ended is none."""
    async with as_token(server, None) as browser:
        expected = {"signed_in": False, "required": True, "methods": ["account", "key"]}
        assert (await browser.get("/session")).json() == expected
        browser.cookies.set("tidemill_session", "unknown")
        assert (await browser.get("/session")).json() == expected
        browser.cookies.clear()
        created = (await server.http.post("/keys", json={"role": "read"})).json()
        assert (await browser.post("/session", json={"key": created["key"]})).status_code == 201
        assert (await browser.get("/session")).json() == expected | {"signed_in": True}


async def test_a_session_that_was_opened_with_a_key_ends_with_it(server: Served) -> None:
    """S-4: a first operator has only a key; its revocation counts at once, and its expiry too."""
    created = (await server.http.post("/keys", json={"role": "read", "expires": 3600})).json()
    async with as_token(server, None) as browser:
        opened = await browser.post("/session", json={"key": created["key"]})
        assert (opened.status_code, opened.json()["actor"]) == (201, f"key:{created['id']}")
        assert opened.json()["expires_at"] == created["expires_at"]
        assert created["key"] not in opened.headers["set-cookie"]
        assert (await browser.get("/me")).json()["role"] == "read"
        refused = await browser.put("/variables/region", json={"value": 1}, headers=OWN_PAGE)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert (await server.http.delete(f"/keys/{created['id']}")).status_code == 204
        ended = await browser.get("/me")
        assert (ended.status_code, ended.json()["code"]) == (401, "session_ended")
        again = await browser.post("/session", json={"key": created["key"]})
        assert (again.status_code, again.json()["code"]) == (401, "key_revoked")


async def test_other_sites_cannot_use_a_session(server: Served) -> None:
    """Fault 93: neither a form, nor a script of another origin, nor a request without the header of our pages."""
    account = {"name": "ada", "role": "write", "password": PASSWORD}
    await server.http.post("/accounts", json=account)
    async with as_token(server, None) as browser:
        await browser.post("/session", json={"account": "ada", "password": PASSWORD})
        change = {"json": {"value": 1}}
        for headers, code in [
            ({}, "foreign_page"),
            ({"origin": "https://evil.example", **OWN_PAGE}, "foreign_origin"),
            ({"origin": "null", **OWN_PAGE}, "foreign_origin"),
        ]:
            refused = await browser.put("/variables/region", headers=headers, **change)
            assert (refused.status_code, refused.json()["code"]) == (403, code)
        read = await browser.get("/me", headers={"origin": "https://evil.example"})
        assert read.status_code == 403
        assert "access-control-allow-origin" not in read.headers
        foreign = await browser.post("/session", json={"account": "ada", "password": PASSWORD}, headers=headers)
        assert foreign.json()["code"] == "foreign_origin"
    assert (await server.http.get("/variables")).json()["items"] == []


async def test_requests_without_a_credential_do_not_lock_their_address_out(server: Served) -> None:
    """S-4: the pages of a browser whose session has ended ask on; its owner can still sign in."""
    await server.http.post("/accounts", json={"name": "ada", "role": "write", "password": PASSWORD})
    async with as_token(server, None) as browser:
        assert {(await browser.get("/me")).status_code for _ in range(40)} == {401}
        assert (await browser.post("/session", json={"account": "ada", "password": PASSWORD})).status_code == 201


async def test_a_key_makes_a_limited_number_of_requests() -> None:
    """S-7: per key, and not for others."""
    node = tm.Node(settings={"requests_per_second": 2})
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        tokens = [(await node.access.keys.create(LOCAL_PRINCIPAL, Role.READ)).token for _ in range(2)]
        async with as_token(server, tokens[0]) as busy, as_token(server, tokens[1]) as other:
            codes = [(await busy.get("/me")).status_code for _ in range(8)]
            assert codes[0] == 200
            assert 429 in codes
            assert (await other.get("/me")).status_code == 200


async def test_no_answer_has_a_secret(server: Served) -> None:
    """S-6, fault 90."""
    answers = [
        await server.http.put("/secrets/password", json={"value": CANARY}),
        await server.http.get("/secrets"),
        await server.http.get("/secrets/password"),
        await server.http.get("/audit"),
        await server.http.get("/secrets/pasword"),
        await server.http.put("/secrets/password", json={"value": CANARY, "extra": 1}),
        await server.http.put("/secrets/a%0Ab", json={"value": CANARY}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404, 400, 400]
    assert answers[4].json()["suggestions"] == ["password"]
    for answer in answers:
        assert CANARY not in answer.text
        assert CANARY not in str(answer.headers)
    assert await server.node.access.secrets.reveal("public", "password") == CANARY


async def test_a_repeated_request_is_handled_once(server: Served) -> None:
    """The same key and body: the same answer. Another body: a conflict."""
    key = {"idempotency-key": "k1"}
    first = await server.http.post("/tenants", json={"name": "acme"}, headers=key)
    again = await server.http.post("/tenants", json={"name": "acme"}, headers=key)
    assert (again.status_code, again.content) == (first.status_code, first.content) == (201, first.content)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    other = await server.http.post("/tenants", json={"name": "beta"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    taken = await server.http.post("/tenants", json={"name": "acme"}, headers={"idempotency-key": "k2"})
    assert taken.json()["code"] == "tenant_exists"
    assert [one for one in await actions(server) if one == "tenant.create"] == ["tenant.create"]


async def test_requests_with_one_key_at_a_time_are_handled_once(server: Served) -> None:
    """One of them makes the tenant; the others get its answer, or are asked to repeat."""
    requests = [
        server.http.post("/tenants", json={"name": "acme"}, headers={"idempotency-key": "k1"}) for _ in range(10)
    ]
    answers = await asyncio.gather(*requests)
    assert {answer.json().get("code", "made") for answer in answers} <= {"made", "request_in_progress"}
    assert (await actions(server)).count("tenant.create") == 1


async def test_a_ticket_is_asked_for_by_its_endpoint(server: Served) -> None:
    """S-3."""
    answer = await server.http.post("/tickets", json={"endpoint": "/ws/accumulators/orderbook"})
    assert answer.status_code == 201
    principal = await server.node.access.tickets.redeem(answer.json()["ticket"], "/ws/accumulators/orderbook")
    assert principal.role is Role.ADMIN
    wrong = await server.http.post("/tickets", json={"endpoint": "/session"})
    assert (wrong.status_code, wrong.json()["errors"][0]["path"]) == (400, "endpoint")


async def test_the_audit_log_has_pages_and_filters(server: Served) -> None:
    """S-7: newest first, with the request of each change."""
    for number in range(5):
        await server.http.put(f"/variables/v{number}", json={"value": number}, headers={"x-request-id": f"r{number}"})
    first = (await server.http.get("/audit", params={"action": "variable.set", "limit": 3})).json()
    assert [(one["target"], one["request_id"]) for one in first["items"]] == [("v4", "r4"), ("v3", "r3"), ("v2", "r2")]
    rest = (await server.http.get("/audit", params={"action": "variable.set", "cursor": first["next"]})).json()
    assert [one["target"] for one in rest["items"]] == ["v1", "v0"]
    assert (first["total"], rest["total"], rest["next"]) == (5, 5, None)
    assert (await server.http.get("/audit", params={"target": "v1"})).json()["total"] == 1


async def test_a_variable_that_has_changed_is_not_overwritten(server: Served) -> None:
    """UD-14: If-Match names the version that was read; a list names it too, and a change without it is made."""
    created = (await server.http.put("/variables/limit", json={"value": 1})).json()
    listed = (await server.http.get("/variables")).json()["items"][0]
    assert created["etag"] == listed["etag"] == (await server.http.get("/variables/limit")).json()["etag"]
    seen = {"if-match": created["etag"]}
    changed = await server.http.put("/variables/limit", json={"value": 2}, headers=seen)
    assert changed.status_code == 200
    refused = await server.http.put("/variables/limit", json={"value": 3}, headers=seen)
    assert (refused.status_code, refused.json()["code"]) == (412, "stale_etag")
    assert (await server.http.get("/variables/limit")).json()["value"] == 2
    both = [
        server.http.put("/variables/limit", json={"value": n}, headers={"if-match": changed.json()["etag"]})
        for n in (5, 6)
    ]
    assert sorted([answer.status_code for answer in await asyncio.gather(*both)]) == [200, 412]
    assert (await server.http.put("/variables/limit", json={"value": 4})).status_code == 200
    await server.http.delete("/variables/limit")
    gone = await server.http.put("/variables/limit", json={"value": 5}, headers=seen)
    assert gone.status_code == 404


async def test_a_new_variable_replaces_none_of_its_name(server: Served) -> None:
    """If-None-Match: the form for a new variable overwrote an existing one in silence."""
    new = {"if-none-match": "*"}
    assert (await server.http.put("/variables/fresh", json={"value": 1}, headers=new)).status_code == 200
    refused = await server.http.put("/variables/fresh", json={"value": 2}, headers=new)
    assert (refused.status_code, refused.json()["code"]) == (409, "variable_exists")
    assert (await server.http.get("/variables/fresh")).json()["value"] == 1
