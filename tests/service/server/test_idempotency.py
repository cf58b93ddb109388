"""Idempotency keys and the audit log, over HTTP."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.storage.access_ports import AuditFilter

flow = tm.Workflow("flow")


@flow.task
def only() -> None:
    """Do nothing."""


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a workflow."""
    async with tm.Node(load=[flow]) as node, served(node) as one:
        yield one


async def test_the_same_key_and_body_get_the_same_answer(server: Served) -> None:
    """http.md: the same key and body gives the same answer; one run is started."""
    key = {"Idempotency-Key": "k1"}
    first = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    again = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.headers["location"] == again.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert (await server.http.get("/runs")).json()["total"] == 1


async def test_the_same_key_with_another_body_is_a_conflict(server: Served) -> None:
    """http.md: the same key and another body is 409 `idempotency_conflict`."""
    key = {"Idempotency-Key": "k1"}
    await server.http.post("/workflows/flow/runs", json={"params": {}}, headers=key)
    other = await server.http.post("/workflows/flow/runs", json={"params": {}, "note": "other"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


async def test_a_malformed_key_is_rejected(server: Served) -> None:
    """A key has at most 200 characters."""
    answer = await server.http.post("/workflows/flow/runs", json={"params": {}}, headers={"Idempotency-Key": "k" * 201})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_idempotency_key")


async def test_a_change_is_in_the_audit_log_with_its_request(server: Served) -> None:
    """S-7: who did what to what, and in which request; a request that failed changed nothing."""
    answer = await server.http.post("/workflows/flow/runs", json={"params": {}})
    await server.http.post("/workflows/missing/runs", json={"params": {}})
    (entry,), total = await server.node.access.audit.find(AuditFilter(tenant="public"))
    assert total == 1
    assert (entry.action, entry.target, entry.actor) == ("run.start", "flow", "local")
    assert entry.request_id == answer.headers["x-request-id"]
