"""A WebSocket client for tests: JSON frames in and out, and the code of the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.service.server.serving_node import Served
from tidemill.access.principal import Principal

PATIENCE = 10.0
"""Seconds after which a test gives up waiting for a frame."""


@asynccontextmanager
async def live(server: Served, path: str, **options: Any) -> AsyncIterator[ClientConnection]:
    """Open a WebSocket to a served node."""
    url = server.url.replace("http", "ws", 1) + path
    async with connect(url, compression=None, ping_interval=None, close_timeout=1, **options) as socket:
        yield socket


async def send(socket: ClientConnection, frame: Any) -> None:
    """Send a frame as JSON."""
    await socket.send(json.dumps(frame))


async def receive(socket: ClientConnection) -> Any:
    """Return the next frame."""
    async with asyncio.timeout(PATIENCE):
        return json.loads(await socket.recv())


async def ask(socket: ClientConnection, frame: Any) -> Any:
    """Send a frame, and return the next one that comes back."""
    await send(socket, frame)
    return await receive(socket)


async def end_of(socket: ClientConnection) -> tuple[int, str]:
    """Read to the end of a connection, and return its close code and reason."""
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()
    assert socket.close_code is not None
    return socket.close_code, socket.close_reason or ""


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is the case."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110, what is awaited has no event
            await asyncio.sleep(0.005)


class FixedPrincipal:
    """Takes every connection as one of a principal."""

    def __init__(self, principal: Principal | None) -> None:
        self._principal = principal

    async def authenticate(self, _: Any, /) -> Principal | None:
        """Return the principal."""
        return self._principal
