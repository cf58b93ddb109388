"""Workflows over HTTP: lists, declarations, versions, pauses."""

import inspect
from collections.abc import AsyncIterator

import msgspec
import pytest

import tidemill as tm
from tests.service.server import workflow_samples
from tests.service.server.serving_node import Served, create_tenant, served
from tests.service.server.workflow_samples import finish, make_report, start


class Region(msgspec.Struct):
    """A nested param."""

    name: str


class SalesParams(tm.Params):
    """Params with a nested class."""

    region: Region


def make_sales() -> tm.Workflow:
    """Return a workflow with every option."""

    @tm.trigger(every="1h")
    def new_file() -> tm.Fire | None:
        return None

    sales = tm.Workflow(
        "sales",
        params=SalesParams,
        schedule=[
            tm.Cron(
                "0 6 * * *", timezone="Europe/Berlin", params=lambda slot: {"region": {"name": "eu"}}, key="morning"
            ),
            tm.Every("15m", params=lambda slot: {"region": {"name": "us"}}, key="quarter"),
        ],
        triggers=[new_file],
        max_active_runs=2,
    )

    @sales.task(retry=tm.Retry(2, delay="5s"), timeout="1m", pool="gpu", priority=3)
    async def read(params: SalesParams) -> int:
        return 1

    @sales.task(after=[read], rule="all_done", executor="worker", labels=("eu",))
    async def tidy() -> None:
        return None

    return sales


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with two workflows."""
    async with tm.Node(load=[make_report(), make_sales()], pools={"gpu": 2}) as node, served(node) as one:
        yield one


async def test_workflows_are_listed_by_name(server: Served) -> None:
    """S-1: with what they do, in pages."""
    run = await finish(server, day="x")
    page = (await server.http.get("/workflows")).json()
    report, sales = page["items"]
    assert (page["total"], report["name"], sales["name"]) == (2, "report", "sales")
    assert (report["last_run"]["id"], report["last_run"]["state"], report["active_runs"]) == (run, "success", 0)
    assert report["recent_runs"] == []
    asked = (await server.http.get("/workflows", params={"recent": 5})).json()["items"]
    assert [one["recent_runs"] for one in asked if one["name"] == "report"] == [[report["last_run"]]]
    assert (sales["last_run"], sales["paused"], sales["loaded"]) == (None, False, True)
    first = (await server.http.get("/workflows", params={"limit": 1})).json()
    second = (await server.http.get("/workflows", params={"limit": 1, "cursor": first["next"]})).json()
    assert ([one["name"] for one in first["items"] + second["items"]], second["next"]) == (["report", "sales"], None)


async def test_workflows_are_filtered(server: Served) -> None:
    """http.md: q, tag, paused; another tenant has none."""
    await server.node.pause("sales")

    async def found(**query: str) -> list[str]:
        page = (await server.http.get("/workflows", params=query)).json()
        assert page["total"] == len(page["items"])
        return [one["name"] for one in page["items"]]

    assert await found(q="REP") == ["report"]
    assert await found(q="GRÖSSE") == ["report"]
    assert await found(tag="daily") == ["report"]
    assert await found(tag="dail") == []
    assert await found(paused="true") == ["sales"]
    assert await found(paused="false", q="s") == ["report"]
    assert (await server.http.get("/workflows", headers=await create_tenant(server))).json()["total"] == 0


async def test_a_workflow_has_everything_that_is_declared(server: Served) -> None:
    """http.md: tasks, edges, schedule, triggers, params as JSON Schema, versions."""
    sales = (await server.http.get("/workflows/sales")).json()
    read, tidy = sales["tasks"]
    assert (read["name"], read["tries"], read["timeout"], read["pool"], read["priority"]) == ("read", 3, 60, "gpu", 3)
    assert (read["retry"]["times"], read["retry"]["delay"]) == (2, 5)
    assert (tidy["rule"], tidy["executor"], tidy["labels"], tidy["upstream"]) == (
        "all_done",
        "worker",
        ["eu"],
        ["read"],
    )
    assert sales["edges"] == [{"source": "read", "target": "tidy", "parameter": None, "takes": None, "optional": False}]
    assert (sales["schedule"]["key"], sales["schedule"]["timezone"]) == ("morning", "Europe/Berlin")
    assert (len(sales["schedule"]["next"]), len(sales["schedules"])) == (5, 2)
    (trigger,) = sales["triggers"]
    assert (trigger["name"], trigger["kind"], trigger["every"], trigger["workflows"]) == (
        "new_file",
        "poll",
        3600,
        ["sales"],
    )
    (version,) = sales["versions"]
    assert (version["version"], version["current"], version["nodes"]) == (sales["version"], True, 1)
    assert (sales["max_active_runs"], sales["unfinished"]) == (2, "pin")


async def test_params_are_a_json_schema(server: Served) -> None:
    """http.md: the fields are at the top, nested classes are definitions."""
    report = (await server.http.get("/workflows/report")).json()["params"]
    assert report["properties"] == {"day": {"type": "string"}, "rows": {"type": "integer", "default": 3}}
    assert (report["required"], "$defs" in report) == (["day"], False)
    sales = (await server.http.get("/workflows/sales")).json()["params"]
    assert sales["properties"]["region"] == {"$ref": "#/$defs/Region"}
    assert sales["$defs"]["Region"]["required"] == ["name"]


async def test_an_unknown_workflow_or_version_is_not_found(server: Served) -> None:
    acme = await create_tenant(server)
    unknown = await server.http.get("/workflows/reprot")
    assert (unknown.status_code, unknown.json()["code"], unknown.json()["suggestions"]) == (
        404,
        "workflow_not_found",
        ["report"],
    )
    assert (await server.http.get("/workflows/report", headers=acme)).status_code == 404
    assert (await server.http.patch("/workflows/report", json={"paused": True}, headers=acme)).status_code == 404
    version = await server.http.get("/workflows/report/versions/0%00")
    assert (version.status_code, version.json()["code"]) == (404, "version_not_found")


async def test_a_version_has_its_structure_and_its_source(server: Served) -> None:
    """http.md: spec and source, as it was loaded."""
    name = (await server.http.get("/workflows/report")).json()["version"]
    version = (await server.http.get(f"/workflows/report/versions/{name}")).json()
    assert [task["name"] for task in version["spec"]["tasks"]] == ["fetch", "clean", "load"]
    assert [task["name"] for task in version["tasks"]] == ["fetch", "clean", "load"]
    assert [(edge["source"], edge["target"]) for edge in version["edges"]] == [("fetch", "clean"), ("clean", "load")]
    assert version["source"] == inspect.getsource(workflow_samples)


async def test_a_workflow_is_paused_and_resumed(server: Served) -> None:
    """http.md: PATCH with paused."""
    paused = await server.http.patch("/workflows/report", json={"paused": True})
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    refused = await server.http.post("/workflows/report/runs", json={"params": {"day": "x"}})
    assert (refused.status_code, refused.json()["code"]) == (409, "workflow_paused")
    assert (await server.http.patch("/workflows/report", json={"paused": False})).json()["paused"] is False
    await start(server, day="x")
    for body in ({}, {"paused": "yes"}, {"paused": True, "name": "x"}):
        answer = await server.http.patch("/workflows/report", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
