"""Two servers on one store: each answers for the reactors that the other one runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.live_client import ask, live, receive, send
from tests.service.server.serving_node import Served, served
from tidemill.engine.graphs.audit.report import audit_store

SOCKET = "/ws/accumulators/orderbook"
COMMANDS = "/reactors/market/commands"


class Pair(NamedTuple):
    """The server that runs the market, and one that does not."""

    owner: Served
    other: Served


PATIENCE = 20.0  # seconds until a test gives up


@pytest.fixture(params=["mailbox", "link"])
async def servers(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Two servers on one store, with the same packages; the owner can be reached through the store, or directly."""
    address = f"sqlite:///{tmp_path}/store.db"
    options: dict[str, Any] = {"strategy": "sequential", "durability": "boundary", "capacity": 2, "overflow": "reject"}
    async with (
        tm.Node(address, load=market(**options)) as first,
        tm.Node(address, load=market(**options)) as second,
        served(first) as owner,
        served(second) as other,
    ):
        if request.param == "link":
            await link(owner, other)
        yield Pair(owner, other)


async def link(owner: Served, other: Served) -> None:
    """Wait until the other server has a link to the owner."""
    assert owner.node.forwarding is not None
    assert other.node.forwarding is not None
    await owner.node.forwarding.take_links_at(owner.url)
    async with asyncio.timeout(PATIENCE):
        while other.node.forwarding.links.open_count == 0:
            await other.http.get("/accumulators")


async def test_pushes_at_any_server_give_the_receipts_of_the_owner(servers: Pair) -> None:
    """G-31: over HTTP and WebSocket, one event or many, accepted or rejected."""
    await servers.other.http.post(COMMANDS, json={"command": "pause"})
    first = await servers.other.http.post("/accumulators/orderbook/events", json={"bid": 1.0})
    assert first.json() == {"accepted": True, "sequence": 1, "outcome": "emitted", "reason": None}
    async with live(servers.other, SOCKET) as socket:
        for seq in range(3):
            await send(socket, {"seq": seq, "event": {"bid": seq}})
        answers = [await receive(socket) for _ in range(3)]
        assert [one["seq"] for one in answers] == [0, 1, 2]
        assert [one["receipt"]["outcome"] for one in answers] == ["emitted", "rejected", "rejected"]
        assert answers[2]["receipt"]["code"] == "queue_full"
    full = await servers.other.http.post("/accumulators/orderbook/events", json={"bid": 5.0})
    assert (full.status_code, full.json()["code"]) == (429, "queue_full")
    resumed = (await servers.other.http.post(COMMANDS, json={"command": "resume"})).json()
    assert resumed["state"]["paused"] is False
    await servers.owner.node.settle()
    firings = (await servers.other.http.get("/reactors/market/firings")).json()["items"]
    assert [one["inputs"]["orderbook"]["bid"] for one in firings] == [0.0, 1.0]


async def test_every_server_lists_and_watches_the_reactors_of_the_other(servers: Pair) -> None:
    """http.md: lists, states, dead letters and watches are the same at every server."""
    await servers.other.http.post("/accumulators/orderbook/events", json={"bid": "x"})
    for server in servers:
        reactors = (await server.http.get("/reactors")).json()
        assert [(one["name"], one["health"]) for one in reactors["items"]] == [("market", "live")]
        accumulators = (await server.http.get("/accumulators")).json()
        assert [(one["name"], one["dead_letters"]) for one in accumulators["items"]] == [("orderbook", 1)]
        letters = (await server.http.get("/reactors/market/dead-letters")).json()
        assert [one["event"] for one in letters["items"]] == [{"bid": "x"}]
    async with live(servers.other, "/ws/reactors/market") as socket:
        state = await ask(socket, {"id": 1, "command": "watch", "every": 0.05})
        assert state["state"]["fires"] == 0
        await servers.owner.node.push("orderbook", {"bid": 1.0})
        await servers.owner.node.settle()
        while state["state"]["fires"] == 0:
            state = await receive(socket)


async def test_the_doctor_and_home_count_the_same_in_a_cluster(tmp_path: Path) -> None:
    """D18: reactors, not their partitions; and the dead letters of all nodes, also after one has left."""

    def shop() -> list[Any]:
        @tm.passthrough
        def sales(event: dict[str, int]) -> int:
            return event["amount"]

        return [tm.Reactor("shop", [sales], key=lambda event: event["customer"], partitions=4)]

    address = f"sqlite:///{tmp_path}/store.db"

    async def counted(server: Served) -> tuple[int, int]:
        overview = (await server.http.get("/overview")).json()
        return overview["reactors"], overview["dead_letters"]

    async def examined() -> tuple[int, int, int]:
        async with tm.Node(address) as reader:
            found = await audit_store(reader.store, reader.access.clock.now())
        return found.reactors, found.accumulators, found.dead_letters

    async with tm.Node(address, load=shop()) as first, served(first) as one:
        async with tm.Node(address, load=shop()) as second, served(second) as two:
            for customer in range(8):
                await one.http.post("/accumulators/sales/events", json={"customer": customer, "amount": 1})
                await two.http.post("/accumulators/sales/events", json={"customer": customer})
            assert await counted(one) == await counted(two) == (1, 8)
            assert await examined() == (1, 1, 8)
        async with asyncio.timeout(20):
            while (await counted(one)) != (1, 8):  # noqa: ASYNC110 - partitions move, without an event here
                await asyncio.sleep(0.05)
        assert await examined() == (1, 1, 8)
