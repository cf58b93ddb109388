"""The server itself: version, health, documentation, errors and request ids."""

from collections.abc import AsyncIterator

import msgspec
import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, create_tenant, served


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node without anything loaded."""
    async with tm.Node() as node, served(node) as one:
        yield one


async def test_every_answer_has_a_request_id_the_callers_if_it_is_sane(server: Served) -> None:
    """http.md: `x-request-id` is the caller's, if it is a sane one."""
    kept = await server.http.get("/version", headers={"x-request-id": "batch-7"})
    assert kept.headers["x-request-id"] == "batch-7"
    made = await server.http.get("/version", headers={"x-request-id": "a b" * 100})
    assert len(made.headers["x-request-id"]) == 16


async def test_without_authentication_requests_act_as_the_local_admin(server: Served) -> None:
    """http.md: a node without authentication acts as an admin of tenant `public`."""
    me = (await server.http.get("/me")).json()
    assert (me["tenant"], me["role"], me["is_instance_admin"]) == ("public", "admin", True)
    other = (await server.http.get("/me", headers=await create_tenant(server))).json()
    assert other["tenant"] == "acme"


async def test_an_unknown_route_and_a_wrong_method_are_problems(server: Served) -> None:
    """http.md: errors are problem details with a stable code and the request's id."""
    missing = await server.http.get("/nothing")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    problem = missing.json()
    assert (problem["code"], problem["request_id"]) == ("route_not_found", missing.headers["x-request-id"])
    wrong = await server.http.delete("/version")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")


async def test_answers_are_msgpack_where_a_client_accepts_it(server: Served) -> None:
    """http.md: `application/msgpack` by Accept."""
    answer = await server.http.get("/version", headers={"accept": "application/msgpack"})
    assert answer.headers["content-type"] == "application/msgpack"
    assert msgspec.msgpack.decode(answer.content)["api"] == "v1"


async def test_the_docs_page_loads_nothing_from_outside(server: Served) -> None:
    """S-1: the page and its policy name no other host."""
    page = await server.http.get(f"{server.url}/api/docs")
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


async def test_the_openapi_document_names_every_operation_once(server: Served) -> None:
    """S-1: OpenAPI 3.1 with unique operation ids."""
    document = (await server.http.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) > 0
