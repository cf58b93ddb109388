"""Hostile parameters: names, filters, times and cursors that no store can hold are errors of the caller, never ours."""

import inspect
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args

import msgspec
import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.server.serving_node import Served, served
from tidemill.api.paging import encode_cursor
from tidemill.server.route_table import ROUTES
from tidemill.server.routing import Route

HTTP_ROUTES = [route for route in ROUTES if route.method != "WEBSOCKET" and not route.is_page]
OUTSIDE = ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00"]


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A server without authentication on each database, with a workflow that has a schedule."""
    hourly = tm.Workflow("hourly", schedule=tm.Every("1h"))

    @hourly.task
    async def work() -> None:
        return None

    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        address = await postgres.fresh_store()
    else:
        address = request.getfixturevalue("sqlite")
    async with tm.Node(address) as node:
        await node.load(hourly)
        async with served(node) as running:
            yield running


def _texts_of(route: Route) -> Iterator[str]:
    """Yield the names that the texts of a route's query have."""
    for name, parameter in inspect.signature(route.handler).parameters.items():
        annotation = str(parameter.annotation)
        if "QueryParameter" in annotation and "str" in annotation:
            declared = next((getattr(one, "name", None) for one in get_args(parameter.annotation)[1:]), None)
            yield declared or name


async def test_nul_in_a_path_or_a_query_is_an_error_of_the_caller(server: Served) -> None:
    asked = 0
    for route in HTTP_ROUTES:
        absent = re.sub(r"\{\w+:str\}", "absent", route.path)
        targets = [re.sub(r"\{\w+:str\}", "a%00b", route.path)] if "{" in route.path else []
        targets += [f"{absent}?{name}=a%00b" for name in _texts_of(route)]
        for target in targets:
            answer = await server.http.request(route.method, f"{server.url}{target}", json={})
            assert answer.status_code in (400, 404), (route.method, target, answer.text)
            asked += 1
    assert asked > 80


@pytest.mark.parametrize("actor", ["actor", "action", "target"])
async def test_a_filter_with_nul_is_named_in_the_answer(server: Served, actor: str) -> None:
    answer = await server.http.get("/audit", params={actor: "a\0b"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert [one["path"] for one in answer.json()["errors"]] == [actor]


async def test_a_reactor_or_accumulator_that_no_store_can_name_is_unknown(server: Served) -> None:
    for kind in ("reactor", "accumulator"):
        answer = await server.http.get(f"/{kind}s/%00")
        assert (answer.status_code, answer.json()["code"]) == (404, f"{kind}_not_found")


async def test_a_cursor_with_nul_is_one_of_no_list(server: Served) -> None:
    for path, key in [("/audit", "\0"), ("/runs", ("2026-01-01T00:00:00Z", "\0")), ("/backfills", "\0")]:
        answer = await server.http.get(path, params={"cursor": encode_cursor(key)})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), path


async def test_a_ticket_is_for_a_path_without_nul(server: Served) -> None:
    answer = await server.http.post("/tickets", json={"endpoint": "/ws/reactors/\0"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, "endpoint")


@pytest.mark.parametrize("time", OUTSIDE)
async def test_runs_can_be_listed_from_and_to_every_time(server: Served, time: str) -> None:
    for name in ("from", "to"):
        assert (await server.http.get("/runs", params={name: time})).json()["items"] == []
    cursor = encode_cursor((time, "a"))
    assert (await server.http.get("/runs", params={"cursor": cursor})).json()["items"] == []


@pytest.mark.parametrize("time", OUTSIDE)
async def test_a_backfill_at_an_end_of_the_calendar_is_refused(server: Served, time: str) -> None:
    for change in ({"from": time}, {"to": time}, {"from": time, "to": time}):
        body = {"workflow": "hourly", "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"} | change
        answer = await server.http.post("/backfills", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_range"), change


@pytest.mark.parametrize("names", [{1: 2}, {None: 1}, {b"a": 1}, {(1, 2): 3}, {1.5: 1}, {True: 1}])
async def test_a_map_whose_names_are_not_text_is_refused(server: Served, names: dict[Any, Any]) -> None:
    value: list[Any] = [{"nested": names}]
    for method, path, body in [
        ("PUT", "/variables/region", {"value": value}),
        ("POST", "/workflows/hourly/runs", {"params": {"day": value}}),
        ("POST", "/reactors/absent/commands", {"command": "fire_with", "inputs": {"a": value}}),
    ]:
        content = msgspec.msgpack.encode(body)
        headers = {"content-type": "application/msgpack"}
        answer = await server.http.request(method, path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), (path, answer.text)


@pytest.mark.parametrize(
    ("method", "path", "body", "missing"),
    [
        ("PUT", "/pools/api", {}, "slots"),
        ("PUT", "/variables/region", {}, "value"),
        ("POST", "/keys", {}, "role"),
        ("POST", "/backfills", {"workflow": "hourly"}, "from"),
    ],
)
async def test_an_answer_names_the_missing_field(
    server: Served, method: str, path: str, body: dict[str, Any], missing: str
) -> None:
    answer = await server.http.request(method, path, json=body)
    assert [one["path"] for one in answer.json()["errors"]] == [missing]
