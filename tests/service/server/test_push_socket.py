"""Pushes over WebSocket: frames, acknowledgements, back-pressure, resumption and close codes."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.live_client import PATIENCE, FixedPrincipal, ask, end_of, live, receive, send, until
from tests.service.server.serving_node import Served, served
from tidemill.access.principal import Principal, Resource, Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.kernel.errors import StoreError
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.live import connection, push_socket
from tidemill.server.pushes import NOT_STORED
from tidemill.server.serving import ServerNode

SOCKET = "/ws/accumulators/orderbook"
COMMANDS = "/reactors/market/commands"
EMITTED = {"accepted": True, "sequence": 1, "outcome": "emitted", "reason": None}


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A served node with a market."""
    async with tm.Node(load=market()) as node, served(node) as one:
        yield one


async def test_every_frame_is_acknowledged_with_its_number(server: Served) -> None:
    """http.md: one event or a batch per frame, seq and acknowledgement in order."""
    async with live(server, SOCKET) as socket:
        assert await ask(socket, {"seq": 7, "event": {"bid": 1.0}}) == {"seq": 7, "receipt": EMITTED}
        assert await ask(socket, {"event": {"bid": 2.0}}) == {"seq": None, "receipt": EMITTED | {"sequence": 2}}
        batch = [{"bid": 3.0}, {"bid": -1.0}, {"bid": "x"}, {"bid": 4.0}]
        answer = await ask(socket, {"seq": 8, "events": batch})
        assert answer["seq"] == 8
        assert answer["receipts"] == {"emitted": 2, "suppressed": 1, "dead_lettered": 1}
        [problem] = answer["problems"]
        assert (problem["index"], problem["outcome"], "$.bid" in problem["reason"]) == (2, "dead_lettered", True)
        assert await ask(socket, {"seq": 9, "events": []}) == {"seq": 9, "receipts": {}, "problems": []}


async def test_frames_are_msgpack_with_the_subprotocol(server: Served) -> None:
    """http.md: subprotocol `tidemill.msgpack` for binary frames."""
    async with live(server, SOCKET, subprotocols=["tidemill.msgpack"]) as socket:
        assert socket.subprotocol == "tidemill.msgpack"
        await socket.send(msgspec.msgpack.encode({"seq": 1, "event": {"bid": 1.0}}))
        assert msgspec.msgpack.decode(await socket.recv()) == {"seq": 1, "receipt": EMITTED}
        await socket.send(msgspec.msgpack.encode({"seq": 2, "events": [{"bid": 2.0}, {"bid": 3.0}]}))
        assert msgspec.msgpack.decode(await socket.recv())["receipts"] == {"emitted": 2}


async def test_ack_none_answers_problems_only(server: Served) -> None:
    """http.md: `?ack=none`."""
    async with live(server, f"{SOCKET}?ack=none") as socket:
        await send(socket, {"seq": 1, "event": {"bid": 1.0}})
        await send(socket, {"seq": 2, "events": [{"bid": 1.0}]})
        await send(socket, {"seq": 3, "event": {"bid": "x"}})
        await send(socket, {"seq": 4, "events": [{"bid": 1.0}, {"bid": "x"}]})
        assert (await receive(socket))["seq"] == 3
        assert (await receive(socket))["receipts"] == {"emitted": 1, "dead_lettered": 1}


@pytest.mark.parametrize("options", [{}, {"durability": "boundary"}])
async def test_acknowledgements_come_in_order_and_events_are_applied_in_order(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """S-3, G-31: frames are pipelined, and neither events nor acknowledgements change their order."""
    load = market(strategy="sequential", **options)
    async with tm.Node(f"sqlite:///{tmp_path}/store.db", load=load) as node, served(node) as server:
        async with live(server, SOCKET) as socket:
            for seq in range(150):
                events = [{"bid": seq + part / 10} for part in range(seq % 3 + 1)]
                await send(socket, {"seq": seq, "events": events} if seq % 2 else {"seq": seq, "event": events[0]})
            answers = [await receive(socket) for _ in range(150)]
        assert [one["seq"] for one in answers] == list(range(150))
        await node.settle()
        firings = node.reactor("market").firings(200)
    bids = [one.inputs["orderbook"].bid for one in reversed(firings)]
    assert bids == sorted(bids)
    assert len(bids) == 200  # of 249: the log keeps the newest


async def test_frames_before_an_orderly_close_are_pushed(server: Served) -> None:
    """S-3: a client may send, and leave without waiting for acknowledgements."""
    async with live(server, f"{SOCKET}?ack=none") as socket:
        for bid in range(100):
            await send(socket, {"event": {"bid": bid}})
    await until(lambda: server.node.reactor("market").state().fires == 100)


# -- back-pressure


async def test_a_full_queue_stops_the_reading_and_loses_nothing() -> None:
    """S-3: back-pressure stops reading; what was not pushed was not acknowledged, and is pushed later."""
    async with tm.Node(load=market(strategy="sequential", capacity=10)) as node, served(node) as server:
        await server.http.post(COMMANDS, json={"command": "pause"})
        async with live(server, SOCKET) as socket:
            for seq in range(2000):
                await send(socket, {"seq": seq, "event": {"bid": seq}})
            acknowledged = [(await receive(socket))["seq"] for _ in range(10)]
            assert acknowledged == list(range(10))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(socket.recv(), 0.1)
            assert node.reactor("market").state().queued == 10
            await server.http.post(COMMANDS, json={"command": "resume"})
            rest = [(await receive(socket))["seq"] for _ in range(1990)]
            assert rest == list(range(10, 2000))
        await node.settle()
        assert node.reactor("market").state().fires == 2000


async def test_rejected_events_are_problems_and_the_connection_goes_on() -> None:
    """G-14: overflow="reject" is no back-pressure."""
    load = market(strategy="sequential", capacity=1, overflow="reject")
    async with tm.Node(load=load) as node, served(node) as server:
        await server.http.post(COMMANDS, json={"command": "pause"})
        async with live(server, SOCKET) as socket:
            answer = await ask(socket, {"seq": 1, "events": [{"bid": 1.0}, {"bid": 2.0}]})
            assert (answer["receipts"], answer["problems"][0]["index"]) == ({"emitted": 1, "rejected": 1}, 1)
            single = await ask(socket, {"seq": 2, "event": {"bid": 3.0}})
            assert (single["receipt"]["accepted"], single["receipt"]["code"]) == (False, "queue_full")


async def test_no_frame_overtakes_a_numbered_one_that_was_rejected(tmp_path: Path) -> None:
    """S-3: the client repeats it, or leaves it out, when it knows; otherwise it would be told to continue behind it."""
    load = market(strategy="sequential", durability="boundary")
    async with tm.Node(f"sqlite:///{tmp_path}/store.db", load=load) as node, served(node) as server:
        store = node._run_store.checkpoints
        append = store.append

        async def refuse(*_: Any) -> None:
            store.append = append
            raise StoreError("refused on purpose")

        async with live(server, f"{SOCKET}?client=c") as socket:
            assert await receive(socket) == {"resume_after": None}
            assert (await ask(socket, {"seq": 6, "event": {"bid": 6}}))["receipt"]["accepted"]
            store.append = refuse
            for seq in (7, 8, 9):
                await send(socket, {"seq": seq, "event": {"bid": seq}})
            rejected = await receive(socket)
            assert (rejected["seq"], rejected["receipt"]["outcome"]) == (7, "rejected")
            assert await end_of(socket) == (1013, NOT_STORED)
        async with live(server, f"{SOCKET}?client=c") as socket:
            assert await receive(socket) == {"resume_after": 6}
            for seq in (7, 8, 9):
                assert (await ask(socket, {"seq": seq, "event": {"bid": seq}}))["receipt"]["accepted"]
        await node.settle()
        bids = [one.inputs["orderbook"].bid for one in reversed(node.reactor("market").firings())]
    assert bids == [6, 7, 8, 9]


async def test_a_client_that_leaves_while_its_push_waits_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-3: a blocked reactor keeps no connections of clients that have gone."""
    monkeypatch.setattr(push_socket, "DRAIN_SECONDS", 0.1)
    async with tm.Node(load=market(strategy="sequential", capacity=1)) as node, served(node) as server:
        await server.http.post(COMMANDS, json={"command": "pause"})
        for _ in range(3):
            async with live(server, SOCKET) as socket:
                await send(socket, {"event": {"bid": 1.0}})
                await send(socket, {"event": {"bid": 2.0}})
        await until(lambda: node.metrics()["websocket_connections"] == 0)
        await server.http.post(COMMANDS, json={"command": "resume"})
        async with live(server, SOCKET) as socket:
            assert (await ask(socket, {"event": {"bid": 5.0}}))["receipt"]["accepted"]


async def test_a_client_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S-3: 4408, with bounded memory for what was not read."""
    caplog.set_level(logging.ERROR)  # the warnings about dead letters are long here
    monkeypatch.setattr(connection, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(connection, "CHECK_INTERVAL", 0.05)

    @tm.passthrough
    def loud(event: int) -> int:
        raise ValueError("x" * 100_000)

    async with (
        tm.Node(load=tm.Reactor("market", [loud])) as node,
        served(node) as server,
        live(server, "/ws/accumulators/loud", max_queue=1, max_size=None) as socket,
    ):
        for _ in range(100):
            await send(socket, {"events": [1] * 20})
        await until_steady(lambda: node.metrics()["websocket_frames_total"])
        assert (await end_of(socket))[0] == 4408


async def until_steady(read: Callable[[], float]) -> None:
    """Wait until a number has not changed for a while, longer than the limit for slow clients."""
    before, same = read(), 0
    async with asyncio.timeout(PATIENCE):
        while same < 50:
            await asyncio.sleep(0.01)
            before, same = read(), same + 1 if read() == before else 0


# -- closing


BAD_FRAMES = [
    ("not json", "malformed"),
    ('{"seq": 1', "truncated"),
    ("[]", "Expected `object`"),
    ('{"seq": 1}', "either"),
    ('{"seq": 1, "event": 1, "events": []}', "either"),
    ('{"seq": "one", "event": {}}', "$.seq"),
    ('{"seq": 1, "evnt": {}}', "unknown field `evnt`"),
    ('{"events": {"bid": 1}}', "$.events"),
    ('{"event": ' + "[" * 100_000, "nested"),
    (b'{"event": {"bid": 1}}', "text frames"),
    (json.dumps({"events": [1] * 10_001}), "at most 10,000"),
]


async def test_a_bad_frame_closes_the_connection_and_nothing_else(server: Served) -> None:
    """S-3, S-7: 4400 with the reason; what came before it is acknowledged, and the node goes on."""
    for number, (frame, said) in enumerate(BAD_FRAMES, 1):
        async with live(server, SOCKET) as socket:
            await send(socket, {"seq": 1, "event": {"bid": 1.0}})
            await socket.send(frame)
            assert (await receive(socket))["receipt"]["sequence"] == number
            code, reason = await end_of(socket)
            assert (code, said in reason) == (4400, True), (frame[:30], reason)


async def test_an_oversized_frame_closes_the_connection(server: Served) -> None:
    """S-7: the limit of a frame; 1009 is the protocol's own code for it."""
    async with live(server, SOCKET) as socket:
        with suppress(ConnectionClosed):
            await socket.send('{"event": "' + "x" * (5 * 1024 * 1024) + '"}')
        assert (await end_of(socket))[0] == 1009
    async with live(server, SOCKET) as socket:
        assert (await ask(socket, {"event": {"bid": 1.0}}))["receipt"]["accepted"]


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("/ws/accumulators/orderbok", {}, (4404, "did you mean 'orderbook'")),
        ("/ws/accumulators/orderbook?ack=some", {}, (4400, "ack is")),
        ("/ws/accumulators/orderbook?client=%00", {}, (4400, "client")),
        ("/ws/accumulators/orderbook", {"subprotocols": ["graphql-ws"]}, (4426, "tidemill.msgpack")),
    ],
)
async def test_connections_that_cannot_be_served_say_why(
    server: Served, path: str, options: dict[str, Any], expected: tuple[int, str]
) -> None:
    """http.md: close codes; the reason is for people."""
    async with live(server, path, **options) as socket:
        code, reason = await end_of(socket)
        assert (code, expected[1] in reason) == (expected[0], True), reason


READER = Principal(tenant="public", role=Role.READ, actor="reader")
ELSEWHERE = Principal(tenant="acme", role=Role.ADMIN, actor="other")
RESTRICTED = Principal(
    tenant="public", role=Role.WRITE, actor="producer", only=frozenset([Resource("accumulators", "pricing")])
)


@pytest.mark.parametrize(("principal", "code"), [(None, 4401), (READER, 4403), (RESTRICTED, 4403), (ELSEWHERE, 4404)])
async def test_only_who_may_push_is_served(principal: Principal | None, code: int) -> None:
    """S-3, S-4: permissions per accumulator, as over HTTP."""
    async with (
        tm.Node(load=market()) as node,
        served(node, FixedPrincipal(principal)) as server,
        live(server, SOCKET) as socket,
    ):
        assert (await end_of(socket))[0] == code


@pytest.fixture
async def guarded() -> AsyncIterator[Served]:
    """A served node with a market, which wants keys."""
    async with ServerNode(load=market()) as node, served(node, CredentialAuthentication(node.access)) as one:
        yield one


async def test_a_revoked_key_ends_its_open_connections(guarded: Served) -> None:
    """S-4: revocation at once; the connection of another key goes on."""
    keys = guarded.node.access.keys
    made = [await keys.create(LOCAL_PRINCIPAL, role=Role.WRITE) for _ in range(2)]
    headers = [{"authorization": f"Bearer {secret}"} for _, secret in made]
    async with (
        live(guarded, SOCKET, additional_headers=headers[0]) as revoked,
        live(guarded, SOCKET, additional_headers=headers[1]) as kept,
    ):
        assert (await ask(revoked, {"event": {"bid": 1.0}}))["receipt"]["accepted"]
        await keys.revoke(LOCAL_PRINCIPAL, made[0][0].id)
        assert (await end_of(revoked))[0] == 4401
        assert (await ask(kept, {"event": {"bid": 1.0}}))["receipt"]["accepted"]


async def test_a_ticket_opens_one_connection_to_its_endpoint(guarded: Served, caplog: pytest.LogCaptureFixture) -> None:
    """S-3: single use; 4401 for a used one, and for one of another endpoint. S-6: the log has no tickets."""
    caplog.set_level(logging.INFO)
    _, secret = await guarded.node.access.keys.create(LOCAL_PRINCIPAL, role=Role.WRITE)

    async def ticket(endpoint: str) -> str:
        headers = {"authorization": f"Bearer {secret}"}
        answer = await guarded.http.post("/tickets", json={"endpoint": endpoint}, headers=headers)
        return str(answer.json()["ticket"])

    used = await ticket(SOCKET)
    async with live(guarded, f"{SOCKET}?ticket={used}") as socket:
        assert (await ask(socket, {"event": {"bid": 1.0}}))["receipt"]["accepted"]
    for refused in (used, await ticket("/ws/reactors/market"), "invented"):
        async with live(guarded, f"{SOCKET}?ticket={refused}") as socket:
            assert (await end_of(socket))[0] == 4401
    assert used not in caplog.text


async def test_unloading_an_accumulator_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """http.md: 4409, also for a connection on which nothing is sent."""
    monkeypatch.setattr(connection, "CHECK_INTERVAL", 0.05)
    async with tm.Node() as node, served(node) as server:
        name = await node.load(market()[0])
        async with live(server, SOCKET) as idle, live(server, SOCKET) as busy:
            assert (await ask(busy, {"seq": 1, "event": {"bid": 1.0}}))["receipt"]["accepted"]
            await node.unload(name)
            await send(busy, {"seq": 2, "event": {"bid": 2.0}})
            assert (await end_of(idle))[0] == 4409
            assert (await end_of(busy))[0] == 4409


async def test_a_reload_keeps_connections_open() -> None:
    """G-21: a hot swap loses no pusher."""
    async with tm.Node(load=market()) as node, served(node) as server, live(server, SOCKET) as socket:
        assert (await ask(socket, {"event": {"bid": 1.0}}))["receipt"]["accepted"]
        await node.load(market()[0])
        assert (await ask(socket, {"event": {"bid": 2.0}}))["receipt"]["accepted"]


async def test_a_server_that_stops_says_that_it_restarts() -> None:
    """http.md: 1012, and everything that was acknowledged is done."""
    async with tm.Node(load=market()) as node:
        async with served(node) as server:
            context = live(server, SOCKET)
            socket = await context.__aenter__()
            assert (await ask(socket, {"event": {"bid": 1.0}}))["receipt"]["accepted"]
        assert (await end_of(socket))[0] == 1012
        await context.__aexit__(None, None, None)
        assert node.reactor("market").state().fires == 1


# -- many


async def test_a_hundred_connections_push_at_once(server: Served) -> None:
    """S-3: each connection has its own order and its own acknowledgements."""

    async def push(socket: ClientConnection) -> None:
        for seq in range(5):
            await send(socket, {"seq": seq, "events": [{"bid": seq}] * 4})
        assert [(await receive(socket))["seq"] for _ in range(5)] == list(range(5))

    async def one() -> None:
        async with live(server, SOCKET) as socket:
            await push(socket)

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(one())
    assert server.node.reactor("market").state().accumulators["orderbook"].emitted == 2000
