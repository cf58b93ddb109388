"""How a server accepts connections, and how it stops: at once if nothing is open, and after a while in any case."""

import asyncio
import errno
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.server.serving_node import client_of
from tests.service.server.test_connections import CLOSE_FRAME, UPGRADE
from tidemill.server import serving as module
from tidemill.server.connections import Connections
from tidemill.server.serving import LOOPBACK, bind, bind_preferring, serving, serving_on


class SlowApp:
    """Answers when a test allows it."""

    def __init__(self) -> None:
        self.is_asked, self.go = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.is_asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})


async def seconds_to_stop(app: SlowApp, client: httpx.AsyncClient | None = None) -> float:
    """Serve an application, with a request to it if there is a client; return how long the server took to stop."""
    app.go.set()
    async with serving(app, "127.0.0.1", 0) as url:
        if client is not None:
            assert (await client.get(url)).text == "done"
        begin = asyncio.get_running_loop().time()
    return asyncio.get_running_loop().time() - begin


async def test_a_server_without_requests_stops_at_once() -> None:
    """A connection that is kept for later requests does not count."""
    assert min([await seconds_to_stop(SlowApp()) for _ in range(5)]) < 0.05
    async with client_of("") as client:
        assert min([await seconds_to_stop(SlowApp(), client) for _ in range(5)]) < 0.05


async def test_an_open_request_is_answered_while_the_server_stops() -> None:
    """A client has asked in time, and there are some seconds for its answer."""
    app = SlowApp()
    async with client_of("") as client, asyncio.TaskGroup() as group, serving(app, "127.0.0.1", 0) as url:
        answer = group.create_task(client.get(url))
        await app.is_asked.wait()
        asyncio.get_running_loop().call_later(0.1, app.go.set)
    assert answer.result().text == "done"


async def test_a_request_that_does_not_end_is_cancelled_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No request keeps a server from its end."""
    monkeypatch.setattr(module, "DRAIN_SECONDS", 0.1)
    app = SlowApp()
    async with client_of("") as client, asyncio.TaskGroup() as group:
        async with serving(app, "127.0.0.1", 0) as url:
            answer = group.create_task(client.get(url))
            await app.is_asked.wait()
        assert answer.cancel()
    assert app.was_cancelled
    assert "1 requests had not ended" in caplog.text


async def test_a_connection_that_cannot_say_goodbye_does_not_keep_a_server_from_its_end() -> None:
    """Its client has closed a WebSocket, and does not take what was sent before: there is no other close frame."""
    is_closed = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(64 * 1024 * 1024)})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        is_closed.set()

    async with serving(app, "127.0.0.1", 0) as url:
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port, limit=1)
        writer.write(UPGRADE + b"\r\n")
        async with asyncio.timeout(10):
            await reader.read(1)  # the upgrade is accepted
            writer.write(CLOSE_FRAME)
            await is_closed.wait()
    writer.close()


class RefusingListener(socket.socket):
    """A socket on which one connection fails while it is accepted."""

    failures = 1

    def accept(self) -> tuple[socket.socket, Any]:
        """Fail once."""
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EPROTO, "Protocol error")
        return super().accept()


async def test_a_connection_that_fails_costs_no_other_its_place() -> None:
    """Only a system that is out of descriptors or memory makes strangers leave."""
    app, connections = SlowApp(), Connections()
    app.go.set()
    with RefusingListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((LOOPBACK, 0))
        async with serving_on(app, listener, connections) as url, client_of("") as client:
            assert (await client.get(url)).text == "done"
            assert (connections.accept_errors, connections.dropped) == (0, {})


async def test_a_proxy_is_known_by_its_ipv4_address_on_a_socket_for_both_families() -> None:
    """The socket names it as an IPv6 address."""
    clients = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clients.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        async with serving_on(app, listener, Connections()), client_of("") as client:
            url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
            await client.get(url, headers={"x-forwarded-for": "203.0.113.7"})
    assert clients == ["203.0.113.7"]


def test_a_preferred_port_is_taken_if_it_is_free() -> None:
    """D26: the first has it, the second has another one, and after the first it is free again."""
    with bind(LOOPBACK, 0) as finder:
        port = finder.getsockname()[1]
    with bind_preferring(LOOPBACK, port) as first, bind_preferring(LOOPBACK, port) as second:
        assert first.getsockname() == (LOOPBACK, port)
        assert second.getsockname()[1] not in (0, port)
    with bind_preferring(LOOPBACK, port) as third:
        assert third.getsockname() == (LOOPBACK, port)
