"""Limits of connections: clients that are slow, silent or too many make room for those that are not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import websockets

import tidemill as tm
from tests.service.server.serving_node import Served, client_of
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server import requests
from tidemill.server.app import make_app
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.connections import Connections, connections_of, default_limit
from tidemill.server.serving import serving

GET = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /api/v1/session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"
UPGRADE = (
    b"GET /ws/events HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
CLOSE_FRAME = b"\x88\x82\x00\x00\x00\x00\x03\xe8"
ROOM = 16
"""The fewest connections that a server can be limited to: 8 without a key, 14 with one."""


class Client(NamedTuple):
    """A connection of bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ended(self) -> bytes:
        """Return all that comes until the server ends the connection."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def ask(self) -> bytes:
        """Return the status line of a health check."""
        self.writer.write(GET)
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            await self.reader.readuntil(b"}")
        return head.partition(b"\r\n")[0]


class Edge(NamedTuple):
    """A server that asks for keys, with its connections."""

    served: Served
    connections: Connections
    connect: Callable[..., Awaitable[Client]]
    key: str


async def connect_to(url: str, stack: AsyncExitStack, sent: bytes = b"") -> Client:
    """Open a connection until the end of a stack, and send something."""
    client = Client(*await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port))
    stack.callback(client.writer.close)
    client.writer.write(sent)
    return client


@asynccontextmanager
async def edge(**settings: Any) -> AsyncIterator[Edge]:
    """Serve a node with settings."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(tm.Node(settings=settings))
        _, key = await node.access.keys.create(LOCAL_PRINCIPAL, Role.ADMIN)
        app = make_app(node, CredentialAuthentication(node.access))
        connections = connections_of(node)
        url = await stack.enter_async_context(serving(app, "127.0.0.1", 0, connections))
        http = await stack.enter_async_context(client_of(f"{url}/api/v1", {"authorization": f"Bearer {key}"}))
        yield Edge(Served(node, url, http), connections, partial(connect_to, url, stack), key)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nX-Half: ", GET + b"GET / HT"], ids=["none", "half", "second"]
)
async def test_a_head_must_be_complete_in_time(sent: bytes) -> None:
    """A connection that says nothing ends too, and so does one with half a head after a whole request."""
    async with edge(head_timeout="500ms", keep_alive_timeout="1m") as server:
        client = await server.connect(sent[: len(GET)] if sent.startswith(GET) else sent)
        if sent.startswith(GET):
            await client.reader.readuntil(b"}")
            client.writer.write(sent[len(GET) :])
        assert await client.ended() == b""
        assert server.connections.dropped == {"slow_head": 1}
        assert server.connections.count == 0


async def test_a_connection_between_two_requests_ends_after_a_while() -> None:
    """`keep_alive_timeout`; the limit of heads does not hold for it."""
    async with edge(head_timeout="500ms", keep_alive_timeout="1s") as server:
        client = await server.connect()
        began = asyncio.get_running_loop().time()
        assert await client.ask() == b"HTTP/1.1 200 OK"
        assert await client.ended() == b""
        assert asyncio.get_running_loop().time() - began > 0.9
        assert not server.connections.dropped


async def test_a_body_must_keep_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 408, as a problem, and the connection ends."""
    monkeypatch.setattr(requests, "GRACE_SECONDS", 0.1)
    async with edge() as server:
        client = await server.connect(POST + b"{")
        head, _, body = (await client.ended()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408")
        assert b"body_too_slow" in body
        assert server.connections.dropped == {}


async def test_a_slow_body_that_keeps_its_pace_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte buys the time that it may take."""
    monkeypatch.setattr(requests, "GRACE_SECONDS", 0.3)
    async with edge(body_bytes_per_second=1) as server:
        client = await server.connect(POST)
        for byte in b'{"account": "ada", "password": "wrong..."}'[:40]:
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0.015)
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 400")  # not JSON: the last brace is missing


async def test_strangers_make_room_for_each_other_and_for_known_clients() -> None:
    """The oldest goes first; requests, streams and sockets with a key stay."""
    async with edge(max_connections=ROOM) as server, AsyncExitStack() as stack:
        http, headers = server.served.http, {"authorization": f"Bearer {server.key}"}
        url = server.served.url.replace("http", "ws") + "/ws/events"
        socket = await stack.enter_async_context(websockets.connect(url, additional_headers=headers))
        stream = await stack.enter_async_context(http.stream("GET", "/events", headers={"accept": "text/event-stream"}))
        strangers = [await server.connect(POST if number % 2 else b"GET") for number in range(3 * ROOM)]
        assert await (await server.connect()).ask() == b"HTTP/1.1 200 OK"
        assert await strangers[0].ended() == b""
        assert server.connections.count <= ROOM
        assert server.connections.dropped["no_room"] > ROOM
        assert (await http.get("/me")).status_code == 200
        assert stream.status_code == 200
        await (await socket.ping())
        assert not strangers[-1].reader.at_eof()


async def test_clients_with_a_key_leave_room_for_health_checks() -> None:
    """One beyond the limit gets status 503 for its request."""
    async with edge(max_connections=ROOM) as server:
        me = b"GET /api/v1/me HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n" % server.key.encode()
        answers = []
        for _ in range(ROOM):
            client = await server.connect(me)
            answers.append((await client.reader.readuntil(b"}")).partition(b"\r\n")[0])
        assert answers == [b"HTTP/1.1 200 OK"] * 14 + [b"HTTP/1.1 503 Service Unavailable"] * 2
        assert await (await server.connect()).ask() == b"HTTP/1.1 200 OK"


async def test_one_key_leaves_room_for_other_keys() -> None:
    """Its streams and sockets get half of the places for clients with a key, whatever `connections_per_key` is."""
    async with edge(max_connections=ROOM) as server:
        head = GET.replace(b"/health/live", b"/api/v1/events").removesuffix(b"\r\n")
        head += b"Accept: text/event-stream\r\nAuthorization: Bearer %s\r\n\r\n" % server.key.encode()
        answers = []
        for _ in range(ROOM // 2):
            client = await server.connect(head)
            answers.append((await client.reader.readline()).strip())
        assert answers == [b"HTTP/1.1 200 OK"] * 7 + [b"HTTP/1.1 429 Too Many Requests"]


@pytest.mark.parametrize("sent", [GET, UPGRADE + b"\r\n"], ids=["request", "socket"])
async def test_a_client_that_does_not_take_its_answer_is_dropped(sent: bytes) -> None:
    """Otherwise a connection that the server has closed would stay open until all is sent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "bytes": bytes(64 * 1024 * 1024)})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(64 * 1024 * 1024)})

    connections = Connections(tm.Settings(head_timeout=0.5, keep_alive_timeout=0.1))
    async with serving(app, "127.0.0.1", 0, connections) as url:
        _, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port, limit=1)
        writer.write(sent)
        for _ in range(1000):
            if connections.dropped:
                break
            await asyncio.sleep(0.01)
        assert connections.dropped == {"slow_reader": 1}
        writer.close()


@pytest.mark.parametrize(
    "headers",
    [b"Content-Length: 5\r\n", b"".join(b"X-%d: a\r\n" % one for one in range(130)), b"X: %s\r\n" % (b"a" * 9000)],
    ids=["body", "many headers", "long header"],
)
async def test_an_upgrade_that_is_malformed_ends_the_connection(headers: bytes) -> None:
    """The parser of WebSocket gives it no answer; it must not keep a place."""
    async with edge(head_timeout="1m") as server:
        client = await server.connect(UPGRADE + headers + b"\r\n")
        assert await client.ended() == b""
        assert server.connections.count == 0


async def test_a_socket_stays_open_beyond_the_limit_of_heads() -> None:
    """Its client owes nothing."""
    async with edge(head_timeout="100ms") as server:
        url = server.served.url.replace("http", "ws") + "/ws/events"
        async with websockets.connect(url, additional_headers={"authorization": f"Bearer {server.key}"}) as socket:
            await asyncio.sleep(0.5)
            await (await socket.ping())


async def test_a_pipelined_request_is_not_dropped_while_it_is_answered() -> None:
    """Strangers whose requests are not complete make room first."""
    is_asked, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/second":
            is_asked.set()
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"}"})

    connections = Connections(tm.Settings(max_connections=ROOM))
    async with serving(app, "127.0.0.1", 0, connections) as url, AsyncExitStack() as stack:
        connect = partial(connect_to, url, stack)
        client = await connect(GET + GET.replace(b"/health/live", b"/second"))
        await is_asked.wait()
        for _ in range(2 * ROOM):
            await connect(b"GET")
        assert await (await connect()).ask() == b"HTTP/1.1 200 OK"
        go.set()
        async with asyncio.timeout(10):
            for _ in range(2):
                await client.reader.readuntil(b"}")


async def test_a_body_with_two_lengths_is_refused() -> None:
    """A proxy may read it in another way, and take the rest for another request."""
    async with edge() as server:
        both = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        client = await server.connect(POST.partition(b"Content-Length")[0] + both + GET)
        answer = await client.ended()
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"connection: close" in answer
        assert answer.count(b"HTTP/1.1") == 1


def test_connections_leave_descriptors_for_the_store_and_tasks() -> None:
    """At least 128 of them, and a quarter of many."""
    assert [default_limit(one) for one in (64, 256, 1024, 65_536, 1_048_576, -1)] == [
        16,
        128,
        768,
        49_152,
        49_152,
        49_152,
    ]
