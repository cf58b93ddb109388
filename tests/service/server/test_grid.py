"""The grid of a workflow over HTTP: its runs with the state of every task."""

from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import finish, make_report


@pytest.fixture
async def server(sqlite: str) -> AsyncIterator[Served]:
    """A server with the report."""
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as one:
        yield one


async def test_the_grid_has_every_task_of_the_newest_runs(server: Served) -> None:
    """S-8: newest first; a mapped task is one cell, with its elements by state."""
    good = await finish(server, day="1", rows=4)
    bad = await finish(server, day="2", rows=-2)
    grid = (await server.http.get("/workflows/report/grid")).json()
    assert [(task["name"], task["upstream"], task["current"]) for task in grid["tasks"]] == [
        ("fetch", [], True),
        ("clean", ["fetch"], True),
        ("load", ["clean"], True),
    ]
    assert [(run["id"], run["state"], run["origin"]) for run in grid["items"]] == [
        (bad, "failed", "manual"),
        (good, "success", "manual"),
    ]
    assert (grid["total"], grid["next"]) == (2, None)
    failed, success = (run["cells"] for run in grid["items"])
    assert {name: cell["state"] for name, cell in failed.items()} == {
        "clean": "success",
        "fetch": "success",
        "load": "failed",
    }
    assert success["clean"]["elements"] == {"success": 4}
    assert success["load"]["elements"] is None
    assert success["load"]["attempts"] == 1
    assert success["fetch"]["started_at"] <= success["fetch"]["ended_at"] <= success["load"]["ended_at"]


async def test_the_grid_is_paged_and_an_unknown_workflow_is_not_found(server: Served) -> None:
    """http.md: no run twice, none missed."""
    runs = [await finish(server, day=str(number), rows=1) for number in range(3)]
    first = (await server.http.get("/workflows/report/grid", params={"limit": 2})).json()
    second = (await server.http.get("/workflows/report/grid", params={"limit": 2, "cursor": first["next"]})).json()
    assert [run["id"] for run in first["items"] + second["items"]] == runs[::-1]
    assert (first["total"], second["next"]) == (3, None)
    missing = await server.http.get("/workflows/absent/grid")
    assert (missing.status_code, missing.json()["code"]) == (404, "workflow_not_found")


async def test_tasks_that_only_older_versions_have_are_listed_last(sqlite: str) -> None:
    """S-8: a grid over a change of the code."""
    older = tm.Workflow("report")

    @older.task
    def archive() -> int:
        return 1

    async with tm.Node(sqlite, load=[older]) as node, served(node) as server:
        await finish(server)
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as server:
        await finish(server, day="1")
        grid = (await server.http.get("/workflows/report/grid")).json()
        assert [(task["name"], task["current"]) for task in grid["tasks"]][2:] == [("load", True), ("archive", False)]
        assert [sorted(run["cells"]) for run in grid["items"]] == [["clean", "fetch", "load"], ["archive"]]
