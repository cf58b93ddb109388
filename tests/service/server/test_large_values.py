"""Large values in lists: a page is bounded in bytes, and neither the server nor the store reads what it leaves out."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.server.serving_node import Served, served

MEBIBYTE = 1024 * 1024
LARGE = 3 * MEBIBYTE
NUMBER = 8


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server on each store, with a workflow that takes any params."""
    workflow = tm.Workflow("keep")

    @workflow.task
    async def wait() -> None:
        await asyncio.Event().wait()

    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        address = await postgres.fresh_store()
    else:
        address = None if request.param == "memory" else request.getfixturevalue("sqlite")
    async with tm.Node(address) as node:
        await node.load(workflow)
        async with served(node) as running:
            yield running
            for one in (await running.http.get("/runs")).json()["items"]:
                await running.http.post(f"/runs/{one['id']}/cancel")


async def read_at_once(server: Served, path: str) -> tuple[dict[str, Any], int]:
    """Return a list that several clients read at the same time, and the most bytes that this took beyond before."""
    tracemalloc.start()
    try:
        answers = await asyncio.gather(*(server.http.get(path, params={"limit": 500}) for _ in range(4)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert {one.status_code for one in answers} == {200}
    assert max(len(one.content) for one in answers) < MEBIBYTE
    found: dict[str, Any] = answers[0].json()
    return found, peak


async def test_lists_of_runs_leave_out_large_params(server: Served) -> None:
    text = "x" * LARGE
    for _ in range(NUMBER):
        (await server.http.post("/workflows/keep/runs", json={"params": {"text": text}})).raise_for_status()
    small = (await server.http.post("/workflows/keep/runs", json={"params": {"text": "small"}})).json()["id"]
    page, peak = await read_at_once(server, "/runs")
    assert peak < NUMBER * LARGE, "one copy of the params of one page would be more"
    assert (page["total"], len(page["items"])) == (NUMBER + 1, NUMBER + 1)
    assert (page["items"][0]["id"], page["items"][0]["params"]) == (small, {"text": "small"})
    for one in page["items"][1:]:
        assert (one["params"], list(one["omitted"])) == (None, ["params"])
        assert one["omitted"]["params"] > LARGE
    whole = (await server.http.get(f"/runs/{page['items'][1]['id']}")).json()
    assert (whole["params"], whole["omitted"]) == ({"text": text}, {})
    for path in ("/workflows", "/overview", "/workflows/keep/grid"):
        _, peak = await read_at_once(server, path)
        assert peak < NUMBER * LARGE, path


async def test_the_list_of_variables_leaves_out_large_values(server: Served) -> None:
    text = "x" * LARGE
    for number in range(NUMBER):
        (await server.http.put(f"/variables/large{number}", json={"value": text})).raise_for_status()
    await server.http.put("/variables/small", json={"value": {"a": 1}})
    page, peak = await read_at_once(server, "/variables")
    assert peak < NUMBER * LARGE
    assert [one["value"] for one in page["items"]] == [None] * NUMBER + [{"a": 1}]
    assert [one["omitted"] for one in page["items"]] == [{"value": LARGE + 2}] * NUMBER + [{}]
    whole = (await server.http.get("/variables/large0")).json()
    assert (whole["value"], whole["omitted"]) == (text, {})


async def test_a_note_and_a_reason_are_bounded(server: Served) -> None:
    run = (await server.http.post("/workflows/keep/runs", json={"params": {}})).json()["id"]
    for method, path, name in [("PUT", "note", "text"), ("POST", "cancel", "reason")]:
        answer = await server.http.request(method, f"/runs/{run}/{path}", json={name: "x" * 10_001})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_text")


def make_texts() -> list[Any]:
    """Return a graph that returns the text it gets, and its reactor."""

    class Text(tm.Boundary):
        text: str

    @tm.passthrough
    def texts(event: Text) -> Text:
        return event

    reading = tm.Reactor("reading", accumulators=[texts])
    graph = tm.Graph("copy", reactor=reading)

    @graph.node
    def copied(texts: Text) -> str:
        return texts.text

    return [reading, graph]


async def test_lists_of_dead_letters_leave_out_large_events() -> None:
    async with tm.Node(load=make_texts()) as node, served(node) as server:
        for _ in range(NUMBER):
            await server.http.post("/accumulators/texts/events", json={"txt": "x" * LARGE})
        await server.http.post("/accumulators/texts/events", json={"txt": "small"})
        for path in ("/accumulators/texts/dead-letters", "/reactors/reading/dead-letters"):
            page, peak = await read_at_once(server, path)
            assert peak < NUMBER * LARGE, path
            assert [one["event"] for one in page["items"]] == [{"txt": "small"}] + [None] * NUMBER
            assert [list(one["omitted"]) for one in page["items"]] == [[]] + [["event"]] * NUMBER
            whole = (await server.http.get(f"{path}/{page['items'][1]['id']}")).json()
            assert (whole["event"], whole["omitted"]) == ({"txt": "x" * LARGE}, {})


async def test_lists_of_reactors_and_firings_leave_out_large_values() -> None:
    async with tm.Node(load=make_texts()) as node, served(node) as server:
        for text in ("small", "x" * LARGE):
            await server.http.post("/accumulators/texts/events", json={"text": text})
            await node.settle()
        (listed,) = (await server.http.get("/reactors")).json()["items"]
        assert (listed["cache"], list(listed["omitted"])) == ({"texts": None}, ["cache.texts"])
        whole = (await server.http.get("/reactors/reading")).json()
        assert (whole["cache"], whole["omitted"]) == ({"texts": {"text": "x" * LARGE}}, {})
        large, small = (await server.http.get("/reactors/reading/firings")).json()["items"]
        assert sorted(large["omitted"]) == ["inputs.texts", "results.copy.outputs.copied"]
        assert (large["inputs"], large["results"]["copy"]["outputs"]) == ({"texts": None}, {"copied": None})
        assert (small["inputs"], small["omitted"]) == ({"texts": {"text": "small"}}, {})
