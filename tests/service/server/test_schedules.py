"""Schedules, triggers and backfills over HTTP."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.serving_node import Served, create_tenant, served
from tidemill.access.principal import Caller
from tidemill.kernel.clock import SystemClock

HOUR = timedelta(hours=1)


def make_hourly() -> tm.Workflow:
    """Return a workflow that runs every hour."""
    hourly = tm.Workflow("hourly", schedule=tm.Every("1h"))

    @hourly.task
    async def work() -> None:
        return None

    return hourly


def make_watching() -> list[tm.Workflow]:
    """Return two workflows that a trigger starts, one of them also firings of a reactor."""

    @tm.trigger(every="1h", timeout="5s")
    def new_file() -> tm.Fire | None:
        return None

    one = tm.Workflow("one", triggers=[new_file])
    two = tm.Workflow("two", triggers=[new_file, tm.on_firing("market", when="payload.book.bid > 1.0")])
    for workflow in (one, two):

        @workflow.task
        async def work() -> None:
            return None

    return [one, two]


class Book(tm.Boundary):
    """A boundary."""

    bid: float


@tm.passthrough
def book(event: Book) -> Book:
    """Emit what is pushed."""
    return event


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with schedules and triggers."""
    market = tm.Reactor("market", [book])
    async with tm.Node(load=[market, make_hourly(), *make_watching()]) as node, served(node) as one:
        yield one


def time_of(text: str) -> datetime:
    """Return a time of an answer."""
    return datetime.fromisoformat(text)


# -- schedules


async def test_schedules_are_listed_with_their_next_slots(server: Served) -> None:
    page = (await server.http.get("/schedules")).json()
    (hourly,) = page["items"]
    assert (page["total"], hourly["workflow"], hourly["key"], hourly["paused"]) == (1, "hourly", "default", False)
    slots = [time_of(slot) for slot in hourly["next"]]
    assert [after - before for before, after in pairwise(slots)] == [HOUR] * 4
    assert (await server.http.get("/schedules", headers=await create_tenant(server))).json()["total"] == 0


async def test_a_schedule_is_previewed(server: Served) -> None:
    """http.md: `?count=`."""
    page = (await server.http.get("/workflows/hourly/schedule/preview", params={"count": 3})).json()
    slots = [time_of(one["slot"]) for one in page["items"]]
    assert (len(slots), slots[2] - slots[0], page["next"]) == (3, 2 * HOUR, None)
    assert (await server.http.get("/workflows/one/schedule/preview")).json()["items"] == []
    assert (await server.http.get("/workflows/hourli/schedule/preview")).json()["suggestions"] == ["hourly"]
    refused = await server.http.get("/workflows/hourly/schedule/preview", params={"count": 0})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "count")


async def test_the_calendar_has_past_slots_with_their_runs_and_those_to_come() -> None:
    """S-8: schedules as a calendar; a slot that got no run on purpose is dropped."""
    async with tm.testing.node(load=[make_hourly()]) as node, served(node) as server:
        began = node.clock.now()
        await node.advance("3h")
        await node.pause("hourly")
        await node.advance("2h")
        await node.resume("hourly")
        await node.advance("1h")
        query = {"from": began.isoformat(), "to": (began + 8 * HOUR).isoformat()}
        calendar = (await server.http.get("/schedules/calendar", params=query)).json()
        slots = calendar["slots"]
        assert [one["status"] for one in slots] == ["started"] * 3 + ["dropped"] * 2 + ["started"] + ["coming"] * 2
        assert [one["run_state"] for one in slots[:4]] == ["success"] * 3 + [None]
        assert (await server.http.get(f"/runs/{slots[0]['run']}")).json()["slot"] == slots[0]["slot"]
        assert [after - before for before, after in pairwise(time_of(one["slot"]) for one in slots)] == [HOUR] * 7
        assert (calendar["dense"], calendar["more"]) == ([], False)
        by_default = (await server.http.get("/schedules/calendar")).json()
        assert time_of(by_default["end"]) - time_of(by_default["start"]) == timedelta(days=7)


async def test_a_schedule_with_many_slots_is_counted_and_a_long_range_is_refused() -> None:
    """S-8: an answer of bounded size."""
    often = tm.Workflow("often", schedule=tm.Every("1s"))

    @often.task
    async def work() -> None:
        return None

    async with tm.Node(load=[often]) as node, served(node) as server:
        await node.pause("often")
        calendar = (await server.http.get("/schedules/calendar")).json()
        (dense,) = calendar["dense"]
        assert (dense["workflow"], dense["slots"], calendar["slots"]) == ("often", 7 * 86400, [])
        for query in (
            {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
            {"from": "2026-01-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"},
            {"from": "2026-01-01T00:00:00", "to": "2026-01-02T00:00:00Z"},
            {"from": "9999-12-31T00:00:00Z"},
            {"from": "0001-01-01T00:00:00+10:00"},
        ):
            refused = await server.http.get("/schedules/calendar", params=query)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request"), query


# -- triggers


async def test_triggers_are_listed_with_the_workflows_that_they_start(server: Served) -> None:
    page = (await server.http.get("/triggers")).json()
    polled, firing = page["items"]
    assert (polled["name"], polled["kind"], polled["workflows"]) == ("new_file", "poll", ["one", "two"])
    assert (polled["every"], polled["timeout"], polled["paused"]) == (3600, 5, False)
    assert (firing["name"], firing["kind"]) == ("two:on_firing:market", "on_firing")
    assert (firing["reactor"], firing["when"]) == ("market", "payload.book.bid > 1.0")


async def test_a_trigger_is_paused_and_resumed(server: Served) -> None:
    paused = await server.http.patch("/triggers/new_file", json={"paused": True})
    assert (paused.status_code, paused.json()["paused"]) == (200, True)
    assert (await server.http.get("/workflows/one")).json()["triggers"][0]["paused"] is True
    assert (await server.http.patch("/triggers/new_file", json={"paused": False})).json()["paused"] is False
    assert (await server.http.get("/triggers")).json()["items"][0]["paused"] is False


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("new_fil", {"paused": True}, 404, "trigger_not_found"),
        ("two:on_firing:market", {"paused": True}, 409, "not_pausable"),
        ("new_file", {}, 400, "invalid_request"),
    ],
)
async def test_what_is_no_polled_trigger_is_not_paused(
    server: Served, name: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await server.http.patch(f"/triggers/{name}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    acme = await create_tenant(server)
    other = await server.http.patch("/triggers/new_file", json={"paused": True}, headers=acme)
    assert (other.status_code, other.json()["code"]) == (404, "trigger_not_found")


async def test_a_paused_trigger_is_not_polled() -> None:
    """It is polled again after it was resumed; on the leader, at its next tick."""
    polls: list[int] = []

    @tm.trigger(every="10s")
    def new_file() -> tm.Fire | None:
        polls.append(1)
        return None

    flow = tm.Workflow("flow", triggers=[new_file])

    @flow.task
    async def work() -> None:
        return None

    async with tm.testing.node(load=[flow]) as node:
        caller = Caller("public", "tester")
        catalog = node.workflow_client.catalog
        await node.advance("25s")
        assert len(polls) == 3
        await catalog.set_trigger_paused(caller, "new_file", paused=True)
        await node.advance("60s")
        assert len(polls) == 3
        await catalog.set_trigger_paused(caller, "new_file", paused=False)
        await node.advance("25s")
        assert len(polls) in (5, 6)


# -- backfills


def past(hours: int) -> str:
    """Return a time so many whole hours ago."""
    return (SystemClock().now().replace(minute=0, second=0, microsecond=0) - hours * HOUR).isoformat()


async def test_a_backfill_is_previewed_started_listed_and_cancelled(server: Served) -> None:
    """http.md: POST with preview, GET, POST cancel."""
    body = {"workflow": "hourly", "from": past(3), "to": past(1)}
    preview = await server.http.post("/backfills", json=body | {"preview": True})
    assert (preview.status_code, preview.json()["id"], len(preview.json()["slots"])) == (200, None, 3)
    assert (await server.http.get("/backfills")).json()["total"] == 0
    started = await server.http.post("/backfills", json=body | {"limit": 2})
    plan = started.json()
    assert (started.status_code, len(plan["runs"])) == (201, 3)
    for run in plan["runs"]:
        await server.node.run_handle(run).wait(timeout="10s")
    there = (await server.http.get(server.url + started.headers["location"])).json()
    assert (there["state"], there["runs"], there["limit"]) == ("ended", {"success": 3}, 2)
    assert (time_of(there["from"]), time_of(there["to"])) == (time_of(body["from"]), time_of(body["to"]))
    assert (await server.http.get("/backfills")).json()["items"] == [there]
    again = await server.http.post("/backfills", json=body)
    assert (again.status_code, again.json()["id"], len(again.json()["present"])) == (200, None, 3)
    cancelled = (await server.http.post(f"/backfills/{plan['id']}/cancel")).json()
    assert (cancelled["state"], cancelled["runs"]) == ("cancelled", {"success": 3})


async def test_backfills_are_listed_in_pages_newest_first(server: Served) -> None:
    ids = []
    for hours in (9, 8, 7):
        body = {"workflow": "hourly", "from": past(hours), "to": past(hours)}
        ids.append((await server.http.post("/backfills", json=body)).json()["id"])
    first = (await server.http.get("/backfills", params={"limit": 2})).json()
    rest = (await server.http.get("/backfills", params={"limit": 2, "cursor": first["next"]})).json()
    assert [one["id"] for one in first["items"] + rest["items"]] == ids[::-1]
    assert (rest["next"], rest["total"]) == (None, 3)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"workflow": "hourli"}, 404, "workflow_not_found"),
        ({"workflow": "one"}, 409, "no_schedule"),
        ({"from": "2026-01-01T00:00:00"}, 400, "invalid_request"),
        ({"to": "2001-01-01T00:00:00Z"}, 400, "invalid_range"),
        ({"limit": 0}, 400, "invalid_request"),
        ({"key": "other"}, 409, "no_schedule"),
    ],
)
async def test_a_wrong_backfill_is_refused(server: Served, change: dict[str, Any], status: int, code: str) -> None:
    body = {"workflow": "hourly", "from": past(3), "to": past(1)}
    answer = await server.http.post("/backfills", json=body | change)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_backfill_of_another_tenant_is_unknown(server: Served) -> None:
    body = {"workflow": "hourly", "from": past(1), "to": past(1)}
    made = (await server.http.post("/backfills", json=body)).json()["id"]
    acme = await create_tenant(server)
    assert (await server.http.get("/backfills", headers=acme)).json()["items"] == []
    for answer in [
        await server.http.get(f"/backfills/{made}", headers=acme),
        await server.http.post(f"/backfills/{made}/cancel", headers=acme),
        await server.http.get("/backfills/%00"),
    ]:
        assert (answer.status_code, answer.json()["code"]) == (404, "backfill_not_found")
