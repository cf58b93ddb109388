"""Waits over HTTP: who may answer, and how a refusal reads."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server.authentication import CredentialAuthentication

asking = tm.Workflow("asking")


@asking.task
def ask(ctx: tm.Context) -> bool:
    """Ask those that the run names."""
    return ctx.wait_for("approve", bool, text="Publish?", by=ctx["by"])


class Office(NamedTuple):
    """A server with keys of all roles, and their actors."""

    server: Served
    headers: dict[str, dict[str, str]]
    actors: dict[str, str]

    async def wait(self, starter: str, *by: str) -> str:
        """Start a run that asks, and return the id of its wait."""
        started = await self.server.http.post(
            "/workflows/asking/runs", json={"params": {"by": by}}, headers=self.headers[starter]
        )
        run = started.raise_for_status().json()["id"]
        handle = self.server.node.run_handle(run)
        async for _ in handle.watch(every=0.01):
            if found := await handle.waits():
                return found[0].id
        raise AssertionError("the run asks nothing")

    async def answer(self, wait: str, who: str, value: Any = True) -> Any:
        """Answer a wait, and return the response."""
        return await self.server.http.post(f"/waits/{wait}/answer", json={"value": value}, headers=self.headers[who])


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    """A running server with authentication."""
    node = tm.Node(load=[asking])
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        made = {role: await node.access.keys.create(LOCAL_PRINCIPAL, role) for role in Role}
        headers = {str(role): {"authorization": f"Bearer {one.token}"} for role, one in made.items()}
        principals = {str(role): await node.access.keys.authenticate(one.token) for role, one in made.items()}
        yield Office(server, headers, {role: one.actor for role, one in principals.items()})


async def test_the_wait_says_who_may_answer(office: Office) -> None:
    """L-14: else 403 not_allowed, and it stays open; an exclusion binds even an admin."""
    wait = await office.wait("write")
    refused = await office.answer(wait, "read")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert (await office.answer(wait, "write")).json()["answer"]["by"] == office.actors["write"]
    assert (await office.answer(await office.wait("write", "role:read"), "read")).status_code == 200
    assert (await office.answer(await office.wait("write", office.actors["read"]), "read")).status_code == 200
    wait = await office.wait("admin", "not:starter")
    assert (await office.answer(wait, "admin")).status_code == 403
    assert (await office.answer(wait, "write")).status_code == 200


async def test_a_refused_answer_is_a_problem_with_its_facts(office: Office) -> None:
    """Errors: 400 invalid_answer, 409 wait_closed, 404 wait_not_found."""
    wait = await office.wait("write")
    misfit = await office.answer(wait, "write", "yes")
    assert (misfit.status_code, misfit.json()["code"]) == (400, "invalid_answer")
    assert misfit.json()["errors"] == [{"path": "", "message": "expected boolean, got string"}]
    assert (await office.answer(wait, "write")).status_code == 200
    closed = await office.answer(wait, "admin")
    assert (closed.status_code, closed.json()["code"]) == (409, "wait_closed")
    assert office.actors["write"] in closed.json()["detail"]
    assert (await office.answer("missing", "write")).status_code == 404


async def test_a_list_may_be_of_what_the_caller_may_answer(office: Office) -> None:
    """HTTP: mine=true; and the audit log has who answered."""
    mine, other = await office.wait("write", "role:read"), await office.wait("write", "role:admin")
    for who, expected in (("read", [mine]), ("admin", [mine, other])):
        found = await office.server.http.get("/waits", params={"mine": True}, headers=office.headers[who])
        assert [one["id"] for one in found.json()["items"]] == expected
    await office.answer(mine, "read")
    entries = await office.server.http.get("/audit", headers=office.headers["admin"])
    (entry,) = [one for one in entries.json()["items"] if one["action"] == "wait.answer"]
    assert (entry["actor"], entry["target"]) == (office.actors["read"], mine)
