"""Pools and nodes over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, create_tenant, served
from tests.service.server.workflow_samples import start


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a workflow that uses a pool until it is cancelled."""
    busy = tm.Workflow("busy")

    @busy.task(pool="gpu")
    async def work() -> None:
        await asyncio.Event().wait()

    async with tm.Node(load=[busy], pools={"gpu": 1}) as node, served(node) as one:
        yield one


async def test_pools_are_listed_with_their_use(server: Served) -> None:
    runs = [(await start(server, "busy"))["id"] for _ in range(2)]
    page = (await server.http.get("/pools")).json()
    assert page["items"] == [{"name": "gpu", "slots": 1, "used": 1, "waiting": 1}]
    other = (await server.http.get("/pools/gpu", headers=await create_tenant(server))).json()
    assert (other["used"], other["waiting"]) == (0, 0)
    for run in runs:
        await server.http.post(f"/runs/{run}/cancel")


async def test_a_pool_is_made_resized_and_deleted(server: Served) -> None:
    """http.md: PUT with slots, DELETE."""
    made = await server.http.put("/pools/größe", json={"slots": 2})
    assert (made.status_code, made.json()) == (200, {"name": "größe", "slots": 2, "used": 0, "waiting": 0})
    assert (await server.http.put("/pools/größe", json={"slots": 5})).json()["slots"] == 5
    assert (await server.http.delete("/pools/größe")).status_code == 204
    gone = await server.http.get("/pools/größe")
    assert (gone.status_code, gone.json()["code"]) == (404, "pool_not_found")


async def test_a_larger_pool_lets_waiting_tasks_start(server: Served) -> None:
    """W-17: on this node at once."""
    runs = [(await start(server, "busy"))["id"] for _ in range(2)]
    assert (await server.http.put("/pools/gpu", json={"slots": 2})).status_code == 200
    async with asyncio.timeout(5):
        while (await server.http.get("/pools/gpu")).json()["used"] < 2:
            pass
    for run in runs:
        await server.http.post(f"/runs/{run}/cancel")


async def test_a_pool_that_is_needed_is_not_deleted(server: Served) -> None:
    """409 while a loaded workflow or a task of an active run names it."""
    answer = await server.http.delete("/pools/gpu")
    assert (answer.status_code, answer.json()["code"]) == (409, "pool_in_use")
    assert "task 'work' of workflow 'busy'" in answer.json()["detail"]
    run = (await start(server, "busy"))["id"]
    (package,) = server.node.packages()
    await server.node.unload(package.name)
    assert (await server.http.delete("/pools/gpu")).json()["code"] == "pool_in_use"
    await server.http.post(f"/runs/{run}/cancel")
    assert (await server.http.delete("/pools/gpu")).status_code == 204


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("gpu", {"slots": 0}, "invalid_request"),
        ("gpu", {"slots": "2"}, "invalid_request"),
        ("gpu", {}, "invalid_request"),
        ("a%20b%00", {"slots": 1}, "invalid_pool"),
    ],
)
async def test_a_wrong_pool_is_refused(server: Served, name: str, body: dict[str, Any], code: str) -> None:
    answer = await server.http.put(f"/pools/{name}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_an_unknown_pool_is_not_found_with_suggestions(server: Served) -> None:
    for method in ("GET", "DELETE"):
        answer = await server.http.request(method, "/pools/gpus")
        assert (answer.status_code, answer.json()["suggestions"]) == (404, ["gpu"])


async def test_nodes_are_listed(server: Served) -> None:
    """http.md: servers and workers, which one leads, load, last beat."""
    page = (await server.http.get("/nodes")).json()
    (node,) = page["items"]
    assert (page["total"], node["leads"], node["state"], node["running"]) == (1, True, "alive", 0)
    assert node["last_beat"] is not None
