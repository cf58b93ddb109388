"""Reactors over WebSocket: commands with typed answers, and states that are sent only when they have changed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.live_client import FixedPrincipal, ask, end_of, live, receive, send
from tests.service.server.serving_node import Served, create_tenant, served
from tidemill.access.principal import Principal, Resource, Role
from tidemill.graphs.views import FiringView
from tidemill.server.authentication import NoAuthentication
from tidemill.server.live import connection
from tidemill.storage.tables.access import AuditFilter

SOCKET = "/ws/reactors/market"


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a market."""
    async with tm.Node(load=market()) as node, served(node) as one:
        yield one


async def test_every_command_has_a_typed_answer(server: Served) -> None:
    """http.md: `{"id", "command"}` is answered with `{"id", "result"}`; the result is that of HTTP."""
    async with live(server, SOCKET) as socket:
        fired = await ask(socket, {"id": 1, "command": "fire_with", "inputs": {"orderbook": {"bid": 2}}})
        assert (fired["id"], fired["result"]["firing"]["results"]["maker"]["outputs"]) == (1, {"price": 2.0})
        paused = await ask(socket, {"id": "two", "command": "pause"})
        assert (paused["id"], paused["result"]["firing"], paused["result"]["state"]["paused"]) == ("two", None, True)
        assert (await ask(socket, {"id": 3, "command": "force_fire"}))["result"]["firing"]["manual"]
        assert (await ask(socket, {"id": 4, "command": "resume"}))["result"]["state"]["paused"] is False
        assert (await ask(socket, {"id": 5, "command": "restart"}))["result"]["state"]["health"] == "live"
        state = await ask(socket, {"id": 6, "command": "state"})
        assert tuple(state["result"]["state"]) == tm.ReactorState.__struct_fields__
    entries, _ = await server.node.access.audit.find(AuditFilter(tenant="public"))
    assert [one.action for one in entries] == [
        "reactor.restart",
        "reactor.resume",
        "reactor.force_fire",
        "reactor.pause",
        "reactor.fire_with",
    ]


async def test_without_authentication_a_ticket_stands_for_the_chosen_tenant() -> None:
    """S-5: a page that acts for another tenant sees nothing of this one."""
    async with tm.Node(load=market()) as node, served(node, NoAuthentication(node.access.tickets)) as server:
        await create_tenant(server)
        for tenant, expected in (("public", None), ("acme", 4404)):
            headers = {"tidemill-tenant": tenant}
            answer = await server.http.post("/tickets", json={"endpoint": SOCKET}, headers=headers)
            async with live(server, f"{SOCKET}?ticket={answer.json()['ticket']}") as socket:
                if expected is None:
                    assert (await ask(socket, {"id": 1, "command": "state"}))["result"]["state"]["name"] == "market"
                else:
                    assert (await end_of(socket))[0] == expected


PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    ({"command": "pasue"}, "unknown_command", "did you mean 'pause'"),
    ({"command": "fire_with", "inputs": {"orderbook": {"bid": "x"}}}, "invalid_input", "$.bid"),
    ({"command": "fire_with", "inputs": {"ordrbook": 1}}, "accumulator_not_found", "'orderbook'"),
    ({"command": "fire_with"}, "empty_inputs", "at least one"),
    ({"command": "force_fire"}, "incomplete_inputs", "no value yet"),
    ({"command": "pause", "inputs": {"orderbook": {}}}, "invalid_request", "only 'fire_with'"),
    ({"command": "pause", "every": 1}, "invalid_request", "only 'watch'"),
    ({"command": "watch", "every": -1}, "invalid_request", "every"),
    ({"command": "unwatch"}, "watch_not_found", "no watch"),
]


async def test_a_command_that_cannot_be_carried_out_is_a_problem_and_the_connection_goes_on(server: Served) -> None:
    """http.md: `{"id", "error": {problem}}`, with the codes of HTTP."""
    async with live(server, SOCKET) as socket:
        for number, (frame, code, said) in enumerate(PROBLEMS):
            answer = await ask(socket, {"id": number, **frame})
            assert (answer["id"], answer["error"]["code"], said in answer["error"]["detail"]) == (number, code, True)
        assert (await ask(socket, {"id": 1, "command": "pasue"}))["error"]["suggestions"][0] == "pause"
        assert (await ask(socket, {"command": "state"}))["id"] is None


async def test_a_watch_sends_a_state_only_when_it_has_changed(server: Served) -> None:
    """http.md: at most that often, only when something changed, until `unwatch`."""
    async with live(server, SOCKET) as socket:
        first = await ask(socket, {"id": 2, "command": "watch", "every": 0.05})
        assert (first["id"], first["state"]["fires"], first["last_firing"]) == (2, 0, None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.recv(), 0.3)
        for bid in range(50):
            await server.node.push("orderbook", {"bid": bid})
        second = await receive(socket)
        assert second["state"]["fires"] == 50
        assert 0 < second["state"]["p50"] <= second["state"]["p99"]
        last = second["last_firing"]
        assert (last["inputs"]["orderbook"]["bid"], last["results"]["maker"]["ran"]) == (49, ["price"])
        assert (await ask(socket, {"id": 2, "command": "watch"}))["error"]["code"] == "watch_exists"
        assert (await ask(socket, {"id": 2, "command": "unwatch"}))["result"]["state"]["fires"] == 50
        await server.node.push("orderbook", {"bid": 1.0})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.recv(), 0.2)


async def test_a_watch_converts_a_firing_once_and_repeats_it_with_later_states(
    server: Served, monkeypatch: Any
) -> None:
    """S-9: many people look at a reactor that rests, or whose windows are long."""
    converted: list[str] = []
    convert = FiringView.of

    def count(firing: tm.Firing) -> FiringView:
        converted.append(firing.id)
        return convert(firing)

    monkeypatch.setattr(FiringView, "of", count)
    await server.node.push("orderbook", {"bid": 1})
    async with live(server, SOCKET) as socket:
        first = await ask(socket, {"id": 1, "command": "watch", "every": 0.05})
        assert first["last_firing"]["inputs"]["orderbook"]["bid"] == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(socket.recv(), 0.3)
        await server.node.reactor("market").pause()
        paused = await receive(socket)
        assert (paused["state"]["paused"], paused["last_firing"]) == (True, first["last_firing"])
        assert converted == [first["last_firing"]["id"]]


async def test_a_slow_command_does_not_hold_up_others(server: Served) -> None:
    """S-3: answers carry ids, so they need not come in order."""
    gate = asyncio.Event()

    @tm.passthrough
    def tick(event: int) -> int:
        return event

    slow = tm.Reactor("slow", [tick])
    graph = tm.Graph("waits", reactor=slow)

    @graph.node
    async def wait(tick: int) -> int:
        await gate.wait()
        return tick

    await server.node.load(slow)
    await server.node.load(graph)
    async with live(server, "/ws/reactors/slow") as socket:
        await send(socket, {"id": 1, "command": "fire_with", "inputs": {"tick": 1}})
        assert (await ask(socket, {"id": 2, "command": "pause"}))["id"] == 2
        gate.set()
        assert (await receive(socket))["result"]["firing"]["ok"]


BAD_FRAMES = ["not json", '{"id": 1}', '{"id": 1, "command": 5}', '{"id": 1, "command": "state", "more": 1}', b"{}"]


async def test_bad_frames_close_the_connection(server: Served) -> None:
    """http.md: 4400 with the reason."""
    for frame in BAD_FRAMES:
        async with live(server, SOCKET) as socket:
            await socket.send(frame)
            assert (await end_of(socket))[0] == 4400
    async with live(server, "/ws/reactors/markt") as socket:
        code, reason = await end_of(socket)
        assert (code, "did you mean 'market'" in reason) == (4404, True)


async def test_who_may_only_read_watches_and_does_not_command() -> None:
    """S-4: the connection needs the permission to read, and commands that to write, on this reactor."""
    reader = Principal(tenant="public", role=Role.READ, actor="reader")
    async with (
        tm.Node(load=market()) as node,
        served(node, FixedPrincipal(reader)) as server,
        live(server, SOCKET) as socket,
    ):
        assert (await ask(socket, {"id": 1, "command": "pause"}))["error"]["status"] == 403
        assert (await ask(socket, {"id": 2, "command": "watch"}))["state"]["paused"] is False
    one = Principal(
        tenant="public", role=Role.WRITE, actor="operator", only=frozenset([Resource("reactors", "market")])
    )
    async with tm.Node(load=market()) as node, served(node, FixedPrincipal(one)) as server:
        async with live(server, SOCKET) as socket:
            assert (await ask(socket, {"id": 1, "command": "pause"}))["result"]["state"]["paused"]
        async with live(server, "/ws/accumulators/orderbook") as socket:
            assert (await end_of(socket))[0] == 4403


async def test_unloading_a_reactor_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """http.md: 4409."""
    monkeypatch.setattr(connection, "CHECK_INTERVAL", 0.05)
    async with tm.Node() as node, served(node) as server:
        name = await node.load(market()[0])
        async with live(server, SOCKET) as idle, live(server, SOCKET) as watching:
            await ask(watching, {"id": 1, "command": "watch"})
            await node.unload(name)
            assert (await end_of(idle))[0] == 4409
            assert (await end_of(watching))[0] == 4409
