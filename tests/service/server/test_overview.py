"""The overview over HTTP: what runs, fails, is late and degraded, and what the next hour brings."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import Served, served
from tests.service.server.workflow_samples import finish, make_report
from tidemill.engine.workflows.client import overview as engine_overview
from tidemill.engine.workflows.client import waiting as engine_waiting
from tidemill.storage.tables.schedules import ScheduleCursor

PATIENCE = 20.0  # seconds until a test gives up
LATER = datetime(2026, 1, 2, tzinfo=UTC)


async def read(server: Served) -> dict[str, Any]:
    """Return the overview."""
    answer = await server.http.get("/overview")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def make_gated(name: str, gate: asyncio.Event, **options: Any) -> tm.Workflow:
    """Return a workflow whose task waits for a gate."""
    workflow = tm.Workflow(name, **options)

    @workflow.task
    async def wait() -> None:
        await gate.wait()

    return workflow


async def test_a_node_without_anything_has_an_overview() -> None:
    """S-8: the home page of the first minute."""
    async with tm.Node() as node, served(node) as server:
        found = await read(server)
    assert found["active"] == {"queued": 0, "running": 0}
    assert (found["oldest"], found["failing"], found["degraded"], found["dead_letters"]) == ([], [], [], 0)
    assert (found["late"], found["upcoming"]) == ({"slots": [], "runs": []}, {"items": [], "more": False})
    assert len(found["ended"]) == 24
    assert sum(hour["success"] + hour["failed"] + hour["cancelled"] for hour in found["ended"]) == 0
    assert (found["nodes"]["alive"], found["nodes"]["leader"] is not None) == (1, True)


async def test_failed_runs_need_a_person_until_they_are_retried_or_dismissed(sqlite: str) -> None:
    """S-8: each run stands for itself, whatever ran later; the list with the same filter has what is counted."""
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as server:
        await finish(server, day="1", rows=-1)
        await finish(server, day="2")
        last = await finish(server, day="3", rows=-1)
        found = await read(server)
        (failing,) = found["failing"]
        assert (failing["workflow"], failing["run"], failing["failures"], found["failed_runs"]) == (
            "report",
            last,
            2,
            2,
        )
        assert (failing["task"], failing["reason"]) == ("load", "ValueError: negative rows")
        assert found["ended"][-1]["failed"] + found["ended"][-2]["failed"] == 2
        assert await unresolved(server) == 2

        dismissed = (await server.http.post(f"/runs/{last}/dismiss")).json()
        assert dismissed["dismissed_at"] is not None
        assert (await read(server))["failed_runs"] == await unresolved(server) == 1
        (await server.http.post(f"/runs/{last}/retry", json={})).raise_for_status()
        async with asyncio.timeout(PATIENCE):
            while await unresolved(server) < 2:
                pass
        assert (await read(server))["failed_runs"] == 2, "it has failed once more"

        answer = await server.http.post("/runs/dismiss", json={"workflow": "report", "q": "none"})
        assert answer.json() == {"number": 0}
        answer = await server.http.post("/runs/dismiss", json={"workflow": "report"})
        assert (answer.json(), await unresolved(server)) == ({"number": 2}, 0)
        assert (await read(server))["failing"] == []
        entries = (await server.http.get("/audit", params={"action": "run.dismiss"})).json()["items"]
        assert [(one["target"], one["details"]) for one in entries] == [
            ("runs", {"workflow": "report", "number": 2}),
            ("runs", {"workflow": "report", "q": "none", "number": 0}),
            (last, {}),
        ]


async def test_only_a_failed_run_can_be_dismissed(sqlite: str) -> None:
    async with tm.Node(sqlite, load=[make_report()]) as node, served(node) as server:
        run = await finish(server, day="1")
        answer = await server.http.post(f"/runs/{run}/dismiss")
        assert (answer.status_code, answer.json()["code"]) == (409, "run_not_failed")


async def unresolved(server: Served) -> int:
    """Return the number of runs that the list of unresolved ones has."""
    page = (await server.http.get("/runs", params={"unresolved": "true"})).json()
    assert {one["state"] for one in page["items"]} <= {"failed"}
    return int(page["total"])


async def test_a_run_that_is_queued_for_long_is_late_and_says_why(sqlite: str, monkeypatch: Any) -> None:
    """S-8: what is late, with the sentence that `why` has."""
    gate = asyncio.Event()
    async with tm.Node(sqlite, load=[make_gated("slow", gate, max_active_runs=1)]) as node, served(node) as server:
        first, second = await node.start("slow"), await node.start("slow")
        async with asyncio.timeout(PATIENCE):
            while (await read(server))["active"] != {"queued": 1, "running": 1}:
                pass
        found = await read(server)
        assert [(one["id"], one["state"]) for one in found["oldest"]] == [(first.id, "running"), (second.id, "queued")]
        assert found["late"]["runs"] == []
        monkeypatch.setattr(engine_overview, "LATE_RUN", timedelta(0))
        (late,) = (await read(server))["late"]["runs"]
        assert (late["run"], late["workflow"]) == (second.id, "slow")
        assert late["reasons"] == ["the run is queued: 1 other run of 'slow' is running, at most 1 may"]
        gate.set()
        await second.wait(timeout=PATIENCE)


async def test_the_next_hour_lists_the_slots_of_all_schedules_in_order(sqlite: str, monkeypatch: Any) -> None:
    """S-8: bounded, and it says if there are more; a paused workflow shows that its slots get no run."""
    gate = asyncio.Event()
    often = make_gated("often", gate, schedule=tm.Every("20m"))
    rarely = make_gated("rarely", gate, schedule=tm.Every("30m"))
    async with tm.Node(sqlite, load=[often, rarely]) as node, served(node) as server:
        await node.pause("rarely")
        upcoming = (await read(server))["upcoming"]
        slots = [datetime.fromisoformat(one["slot"]) for one in upcoming["items"]]
        assert slots == sorted(slots)
        assert [one["paused"] for one in upcoming["items"] if one["workflow"] == "rarely"] == [True, True]
        assert (len(slots), upcoming["more"]) == (5, False)
        monkeypatch.setattr(engine_overview, "UPCOMING_LIMIT", 2)
        upcoming = (await read(server))["upcoming"]
        assert (len(upcoming["items"]), upcoming["more"]) == (2, True)
        gate.set()


async def test_a_slot_that_passed_without_a_run_is_late() -> None:
    """S-8: no leader looks at the schedule; a paused workflow is not late."""
    hourly = make_gated("hourly", asyncio.Event(), schedule=tm.Every("1h"))
    async with tm.testing.node(load=[hourly]) as node:
        client, caller = node.workflow_client, node._caller(None)
        now = client.catalog.now()
        (watched,) = await client.catalog.schedules(caller)
        assert watched.cursor is not None
        behind = ScheduleCursor(tenant="public", workflow="hourly", key="default", rule="other", last=now)
        await node.store.schedules.advance_cursor(behind)
        assert (await client.overview(caller)).late == []
        past = ScheduleCursor(
            tenant="public", workflow="hourly", key="default", rule="another", last=now - timedelta(hours=3)
        )
        await node.store.schedules.advance_cursor(past)
        (late,) = (await client.overview(caller)).late
        assert (late.watched.workflow, late.slots) == ("hourly", 3)
        assert past.last < late.first <= past.last + timedelta(hours=1)
        since = past.last.isoformat(sep=" ", timespec="seconds")
        assert late.reason == f"no leader has evaluated its slots since {since}"
        await node.store.schedules.pause("public", "hourly")
        assert (await client.overview(caller)).late == []


async def test_what_is_not_live_is_listed_with_its_reason_and_since_when(sqlite: str) -> None:
    """S-8: what is degraded; and the dead letters."""
    async with tm.testing.node(sqlite, load=market()) as node, served(node) as server:
        assert (await read(server))["degraded"] == []
        await node.push("orderbook", {"bid": "not a number"})
        await node.disconnect("orderbook")
        found = await read(server)
        parts = {part["kind"]: part for part in found["degraded"]}
        assert (parts["reactor"]["name"], parts["reactor"]["health"]) == ("market", "degraded")
        assert parts["reactor"]["reason"] == "it waits for accumulator 'orderbook'"
        assert parts["accumulator"]["health"] == "disconnected"
        assert parts["accumulator"]["since"] is not None
        assert (found["reactors"], found["dead_letters"]) == (1, 1)
        source = {"kind": "accumulator", "name": "orderbook", "reactor": "market", "number": 1}
        assert found["dead_letter_sources"] == [source]


async def test_dead_letters_are_counted_the_same_everywhere_whichever_node_has_the_reactor(sqlite: str) -> None:
    """S-8: failed events and firings; the next node counts what is stored, and says since when it counts events."""

    async def counted(server: Served) -> set[int]:
        reactor = (await server.http.get("/reactors/market")).json()
        return {
            (await read(server))["dead_letters"],
            reactor["dead_letters"],
            (await server.http.get("/dead-letters")).json()["total"],
            (await server.http.get("/reactors/market/dead-letters")).json()["total"],
        }

    async with tm.testing.node(sqlite, load=market()) as node, served(node) as server:
        await node.push("orderbook", {"bid": 13})
        await node.push("orderbook", {"bid": "not a number"})
        await node.advance("2s")
        assert await counted(server) == {2}
        first = (await server.http.get("/reactors/market")).json()
        assert first["accumulators"]["orderbook"]["dead_letters"] == 1
    async with tm.testing.node(sqlite, load=market(), start=LATER) as node, served(node) as server:
        assert await counted(server) == {2}
        (accumulator,) = (await server.http.get("/accumulators")).json()["items"]
        assert accumulator["dead_letters"] == 1
        assert accumulator["counted_since"] == "2026-01-02T00:00:00Z"


async def test_tasks_that_wait_for_code_a_pool_or_an_answer_are_listed_with_the_reason(
    sqlite: str, monkeypatch: Any
) -> None:
    """S-8: grouped by workflow; the run that has waited longest is named."""
    gate = asyncio.Event()
    holder = tm.Workflow("holder")

    @holder.task(pool="one")
    async def hold() -> None:
        await gate.wait()

    asking = tm.Workflow("asking")

    @asking.task
    def ask(ctx: tm.Context) -> None:
        ctx.defer(poll=gate.is_set, every="10ms")

    async with tm.Node(sqlite, load=[holder, asking], pools={"one": 1}) as node, served(node) as server:
        runs = [await node.start("holder") for _ in range(3)] + [await node.start("asking")]
        assert (await read(server))["waiting"] == []
        monkeypatch.setattr(engine_waiting, "PATIENCE", dict.fromkeys(engine_waiting.PATIENCE, timedelta(0)))
        async with asyncio.timeout(PATIENCE):
            while len(found := (await read(server))["waiting"]) < 2:
                pass
        waits = {one["workflow"]: one for one in found}
        assert (waits["holder"]["waits_for"], waits["holder"]["runs"]) == ("pool", 2)
        assert waits["holder"]["run"] in {run.id for run in runs[:3]}
        assert waits["holder"]["reasons"] == ["it is scheduled, but pool 'one' is full (1 of 1)"]
        assert (waits["asking"]["waits_for"], waits["asking"]["task"]) == ("answer", "ask")
        assert waits["asking"]["reasons"][0].startswith("it is deferred since")
    async with tm.Node(sqlite) as node, served(node) as server, asyncio.timeout(PATIENCE):
        while not (found := [one for one in (await read(server))["waiting"] if one["waits_for"] == "code"]):
            pass
        holders = next(one for one in found if one["workflow"] == "holder")
        assert "no node here has version" in " ".join(holders["reasons"])
