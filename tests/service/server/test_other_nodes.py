"""The workflow API on a server that does not lead: on SQLite and PostgreSQL, it answers as the leader does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import make_report, read_stream, start

SETTINGS = {"tick_interval": "50ms"}


@pytest.fixture(params=["sqlite", "postgres"])
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tidemill.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return await server.fresh_store()


@pytest.fixture
async def server(address: str) -> AsyncIterator[Served]:
    """A served node that does not lead, beside one that does and has the same workflow."""
    schedule = tm.Every("1d", params=lambda slot: {"day": f"{slot:%Y-%m-%d}"})

    def loads() -> list[Any]:
        return [make_report(schedule)]

    async with (
        tm.Node(address, load=loads(), pools={"gpu": 1}, settings=SETTINGS),
        tm.Node(address, load=loads(), settings=SETTINGS) as follower,
        served(follower) as one,
    ):
        yield one


async def test_a_server_that_does_not_lead_answers_every_route(server: Served) -> None:
    """S-1: its changes reach the leader through the store."""
    http = server.http
    nodes = (await http.get("/nodes")).json()["items"]
    assert sorted(node["leads"] for node in nodes) == [False, True]
    run = (await start(server, day="naïve", rows=-2))["id"]
    events = await read_stream(server, f"/runs/{run}/events")
    assert (events[-1][2]["task"], events[-1][2]["after"]) == (None, "failed")
    assert (await http.get(f"/runs/{run}", params={"outputs": "true"})).json()["tasks"]["fetch"]["output"] == [0, 1]
    assert (await http.get("/runs", params={"q": "naïve", "state": "failed"})).json()["total"] == 1
    logs = await read_stream(server, f"/runs/{run}/tasks/clean/logs")
    assert sorted(data["index"] for _, _, data in logs) == [0, 1]
    assert "ValueError" in (await http.get(f"/runs/{run}/tasks/load/why")).json()["reasons"][0]
    assert (await http.get(f"/runs/{run}/tasks/load/attempts")).json()["total"] == 1
    assert (await http.post(f"/runs/{run}/retry", json={"preview": True})).json()["reruns"] == ["load"]
    assert (await http.post(f"/runs/{run}/retry")).status_code == 200
    assert (await read_stream(server, f"/runs/{run}/events"))[-1][2]["after"] == "failed"


async def test_a_server_that_does_not_lead_pauses_and_backfills(server: Served) -> None:
    http = server.http
    assert (await http.patch("/workflows/report", json={"paused": True})).json()["paused"] is True
    assert (await http.post("/workflows/report/runs", json={"params": {"day": "x"}})).status_code == 409
    assert (await http.patch("/workflows/report", json={"paused": False})).json()["paused"] is False
    details = (await http.get("/workflows/report")).json()
    assert (details["versions"][0]["nodes"], details["schedule"]["workflow"]) == (2, "report")
    body = {"workflow": "report", "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
    plan = (await http.post("/backfills", json=body)).json()
    for run in plan["runs"]:
        await server.node.run_handle(run).wait(timeout="10s")
    assert (await http.get(f"/backfills/{plan['id']}")).json()["runs"] == {"success": 2}
    assert (await http.put("/pools/gpu", json={"slots": 3})).json()["slots"] == 3
    assert (await http.delete("/pools/gpu")).status_code == 204


async def test_a_workflow_that_is_not_loaded_here_is_shown_as_the_store_knows_it(address: str) -> None:
    """Its structure and versions are known, its declaration is not; it starts no run here."""
    async with tm.Node(address, load=[make_report()]):
        pass
    async with tm.Node(address) as node, served(node) as server:
        http = server.http
        (item,) = (await http.get("/workflows")).json()["items"]
        assert (item["name"], item["loaded"], item["tags"]) == ("report", False, ["daily", "größe"])
        details = (await http.get("/workflows/report")).json()
        assert [task["name"] for task in details["tasks"]] == ["fetch", "clean", "load"]
        assert (details["params"], details["schedules"], details["versions"][0]["nodes"]) == (None, [], 0)
        version = (await http.get(f"/workflows/report/versions/{item['version']}")).json()
        assert "make_report" in version["source"]
        assert (await http.patch("/workflows/report", json={"paused": True})).json()["paused"] is True
        refused = await http.post("/workflows/report/runs", json={"params": {"day": "x"}})
        assert (refused.status_code, refused.json()["code"]) == (404, "workflow_not_found")
