"""`GET /events`: the event feed as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, create_tenant, served


def flow() -> tm.Workflow:
    """Return a workflow of one task."""
    workflow = tm.Workflow("report")

    @workflow.task
    async def fetch() -> int:
        return 1

    return workflow


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a workflow."""
    async with tm.Node(load=flow()) as node, served(node) as one:
        yield one


async def until_readers(node: tm.Node, count: int) -> None:
    """Wait until a node has so many readers of events."""
    async with asyncio.timeout(10):
        while node.event_feed.reader_count != count:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)


@asynccontextmanager
async def following(server: Served, **options: Any) -> AsyncIterator[AsyncIterator[str]]:
    """Follow the events once the server has begun to send them."""
    async with server.http.stream("GET", "/events", **options) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        await until_readers(server.node, 1)
        yield answer.aiter_lines()


async def read(lines: AsyncIterator[str], count: int) -> list[dict[str, Any]]:
    """Return so many events."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            line = await anext(lines)
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
    return found


async def test_events_come_as_they_happen_and_resume(server: Served) -> None:
    """http.md: SSE with `id:`, so that `Last-Event-ID` resumes without a gap; `after` does the same."""
    async with following(server, params={"types": "run.*"}) as lines:
        run = await server.node.start("report")
        await run.wait()
        started, ended = await read(lines, 2)
    assert [one["type"] for one in (started, ended)] == ["run.started", "run.ended"]
    assert (ended["run"], ended["workflow"], ended["state"], ended["tenant"]) == (run.id, "report", "success", "public")
    for options in ({"headers": {"last-event-id": started["id"]}}, {"params": {"after": started["id"]}}):
        async with following(server, **options) as lines:
            *tasks, last = await read(lines, 5)
        assert {one["type"] for one in tasks} == {"task.state"}
        assert (last["type"], last["run"]) == ("run.ended", run.id)


async def test_changes_of_others_are_events(server: Served) -> None:
    """S-9: a page follows what other people change; those of the instance concern every tenant."""
    async with following(server, params={"types": "change.made"}) as lines:
        for path, body in (("/variables/region", {"value": "eu"}), ("/pools/gpu", {"slots": 2})):
            (await server.http.put(path, json=body)).raise_for_status()
        (await server.http.patch("/workflows/report", json={"paused": True})).raise_for_status()
        changes = await read(lines, 3)
    assert [(one["action"], one["target"], one["tenant"]) for one in changes] == [
        ("variable.set", "region", "public"),
        ("pool.set", "gpu", None),
        ("workflow.pause", "report", "public"),
    ]


async def test_changes_are_events_of_their_tenant_only(server: Served) -> None:
    """S-5: no tenant learns what another one has changed."""
    await create_tenant(server)
    async with following(server, params={"types": "change.made"}) as lines:
        for tenant, name in (("acme", "theirs"), ("public", "ours")):
            headers = {"tidemill-tenant": tenant}
            (await server.http.put(f"/variables/{name}", json={"value": 1}, headers=headers)).raise_for_status()
        assert [one["target"] for one in await read(lines, 1)] == ["ours"]


async def test_bad_requests_are_refused_before_the_stream(server: Served) -> None:
    """http.md: unknown names with suggestions."""
    unknown = await server.http.get("/events", params={"types": "run.ende"})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown_event_type")
    assert unknown.json()["suggestions"][0] == "run.ended"
    bad = await server.http.get("/events", headers={"last-event-id": "nonsense"})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_event_id")


async def test_a_reader_that_leaves_is_gone(server: Served) -> None:
    """No connection is leaked: what runs for readers stops with the last one."""
    async with following(server):
        pass
    await until_readers(server.node, 0)


async def test_streams_end_with_the_node() -> None:
    """A client sees an end, and comes back to another server."""
    async with tm.Node(load=flow()) as node, served(node) as server, following(server) as lines:
        node.event_feed.close()
        async with asyncio.timeout(10):
            assert [line async for line in lines if line.startswith("data:")] == []
