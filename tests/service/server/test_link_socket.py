"""`/ws/links`: other nodes on the store open links there, and no others do."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect

import tidemill as tm
from tests.service.server.graph_samples import market
from tests.service.server.serving_node import Served, served
from tidemill.engine.forwarding.wire import LINK_PATH, Challenge, LinkIdentity, Welcome
from tidemill.server.live.closing import CloseCode
from tidemill.server.serving import own_url
from tidemill.storage.tables.peers import Peer

PATIENCE = 20.0  # seconds until a test gives up


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    """A server on a store."""
    async with (
        asyncio.timeout(PATIENCE),
        tm.Node(f"sqlite:///{tmp_path}/store.db", load=market()) as node,
        served(node) as server,
    ):
        yield server


def id_of(server: Served) -> str:
    """Return the id of its node."""
    assert server.node.forwarding is not None
    return server.node.forwarding.node.id


def link_to(server: Served) -> connect:
    """Connect as a node does."""
    return connect(server.url.replace("http:", "ws:") + LINK_PATH)


async def closed_with(socket: ClientConnection) -> int:
    """Return the code with which a connection is closed."""
    await socket.wait_closed()
    assert socket.close_code is not None
    return socket.close_code


async def hello(server: Served, socket: ClientConnection, sender: LinkIdentity, node: str) -> Welcome:
    """Say who is there; return the answer."""
    challenge = msgspec.msgpack.decode(await socket.recv(), type=Challenge)
    await socket.send(msgspec.msgpack.encode(sender.hello(challenge, node, "link")))
    return msgspec.msgpack.decode(await socket.recv(), type=Welcome)


async def test_a_stranger_is_closed_out(server: Served) -> None:
    """S-4: a node that the store does not know, one with another key, and what is no handshake at all."""
    node = id_of(server)
    known = LinkIdentity("known")
    await server.node.store.peers.put(
        Peer(node="known", url=None, public_key=known.public_key, at=server.node.event_feed.clock.now())
    )
    for sender, wanted in ((LinkIdentity("unknown"), node), (LinkIdentity("known"), node), (known, "another")):
        async with link_to(server) as socket:
            assert (await hello(server, socket, sender, wanted)).refusal is not None
            assert await closed_with(socket) == CloseCode.NO_KEY
    async with link_to(server) as socket:
        await socket.send(os.urandom(64))
        assert await closed_with(socket) == CloseCode.NO_KEY
    async with link_to(server) as socket:
        assert (await hello(server, socket, known, node)).refusal is None
        assert server.node.forwarding is not None
        assert server.node.forwarding.gate.count == 1
        await socket.send(b"nonsense")
        assert await closed_with(socket) == CloseCode.NORMAL


async def test_an_overheard_handshake_opens_no_link(server: Served) -> None:
    """S-4: every link has another challenge."""
    node = id_of(server)
    known = LinkIdentity("known")
    await server.node.store.peers.put(
        Peer(node="known", url=None, public_key=known.public_key, at=server.node.event_feed.clock.now())
    )
    async with link_to(server) as first:
        challenge = msgspec.msgpack.decode(await first.recv(), type=Challenge)
        overheard = msgspec.msgpack.encode(known.hello(challenge, node, "link"))
    async with link_to(server) as second:
        await second.recv()
        await second.send(overheard)
        assert await closed_with(second) == CloseCode.NO_KEY


async def test_a_node_without_a_store_takes_no_links() -> None:
    """No other node can use what it keeps in memory."""
    async with tm.Node(load=market()) as node, served(node) as server, link_to(server) as socket:
        assert await closed_with(socket) == CloseCode.UNKNOWN


def test_a_server_that_listens_on_all_addresses_has_one_of_its_own() -> None:
    """Others on the network reach it there; one that listens on an address of its own keeps that."""
    assert own_url("http://127.0.0.1:8080") == "http://127.0.0.1:8080"
    assert own_url("http://10.1.2.3:8080") == "http://10.1.2.3:8080"
    for everywhere in ("http://0.0.0.0:8080", "http://[::]:8080"):
        assert own_url(everywhere) != everywhere
        assert own_url(everywhere).endswith(":8080")
