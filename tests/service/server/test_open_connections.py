"""Open connections: they end with their keys, and a key has a limited number of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
import websockets

from tests.service.server.serving_node import Served, served
from tidemill.access.principal import Role
from tidemill.engine.access.keys import NewKey
from tidemill.engine.access.services import LOCAL_PRINCIPAL
from tidemill.server.authentication import CredentialAuthentication
from tidemill.server.serving import ServerNode

PATIENCE = 20.0  # seconds until a test gives up
STREAM = {"accept": "text/event-stream"}


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A server whose keys may have two connections open."""
    node = ServerNode(settings={"connections_per_key": 2})
    async with node, served(node, CredentialAuthentication(node.access)) as server:
        yield server


async def new_key(server: Served, **options: float) -> NewKey:
    """Return a key that may read."""
    return await server.node.access.keys.create(LOCAL_PRINCIPAL, Role.READ, **options)


def bearer(key: NewKey) -> dict[str, str]:
    """Return the header of a key."""
    return {"authorization": f"Bearer {key.token}"}


def socket_of(server: Served, key: NewKey) -> websockets.connect:
    """Return a connection to the event feed."""
    url = f"{server.url.replace('http:', 'ws:')}/ws/events"
    return websockets.connect(url, additional_headers=bearer(key))


async def close_code(socket: websockets.ClientConnection) -> int | None:
    """Wait for the end of a connection, and return its close code."""
    async with asyncio.timeout(PATIENCE):
        await socket.wait_closed()
    return socket.close_code


async def test_a_socket_ends_with_its_key(server: Served) -> None:
    """S-4: 4401 within seconds of the revocation or the expiry; other keys go on."""
    revoked, kept = await new_key(server), await new_key(server)
    expiring = await new_key(server, lifetime=2.0)
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(socket_of(server, key)) for key in (revoked, expiring, kept)]
        for socket in sockets:
            await (await socket.ping())
        await server.node.access.keys.revoke(LOCAL_PRINCIPAL, revoked.key.id)
        assert [await close_code(socket) for socket in sockets[:2]] == [4401, 4401]
        await (await sockets[2].ping())


async def test_a_stream_ends_with_its_key(server: Served) -> None:
    """S-4: an event stream is complete when it ends, as HTTP demands."""
    key = await new_key(server)
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(headers=bearer(key) | STREAM) as client,
        client.stream("GET", f"{server.url}/api/v1/events") as answer,
    ):
        assert answer.status_code == 200
        await server.node.access.keys.revoke(LOCAL_PRINCIPAL, key.key.id)
        async for _ in answer.aiter_bytes():
            pass


async def test_a_key_has_a_limited_number_of_connections(server: Served) -> None:
    """S-7, fault 85: of sockets and streams together; a closed one makes room."""
    key, other = await new_key(server), await new_key(server)
    stream = httpx.AsyncClient(headers=bearer(key) | STREAM)
    async with stream, stream.stream("GET", f"{server.url}/api/v1/events"), socket_of(server, key) as first:
        await (await first.ping())
        async with socket_of(server, key) as second, socket_of(server, other) as free:
            assert await close_code(second) == 4429
            await (await free.ping())
        refused = await stream.get(f"{server.url}/api/v1/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_connections")
    async with asyncio.timeout(PATIENCE):
        while True:
            async with socket_of(server, key) as again:
                try:
                    await asyncio.wait_for(again.recv(), 0.2)
                except TimeoutError:
                    return
                except websockets.ConnectionClosed:
                    continue
