"""How a server stops: at once if nothing is open, and after a while in any case."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.service.server.serving_node import client_of
from tidemill.server import serving as module
from tidemill.server.serving import serving


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
