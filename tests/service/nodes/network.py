"""A network in memory between the nodes of a test: links are wires of it, which a test holds, cuts and silences."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import tidemill as tm
from tests.service.samples import Sample
from tidemill.engine.forwarding.router import OwnerRouter
from tidemill.engine.forwarding.wire import LinkRefusedError, Wire, WireLostError

PATIENCE = 20.0  # seconds until a test gives up


class MemoryWire(Wire):
    """One end of a wire. What the other end sends is held back while `is_held`, and lost while `is_mute`."""

    def __init__(self, before_frame: "Callable[[MemoryWire], None]") -> None:
        self.other: MemoryWire = self
        self._before_frame = before_frame
        self.is_held = self.is_mute = self._is_closed = False
        self.received = 0
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._held: list[bytes | None] = []

    async def send(self, frame: bytes) -> None:
        if self._is_closed:
            raise WireLostError("the wire was cut")
        self._before_frame(self.other)
        self.other._take(frame)

    def _take(self, frame: bytes | None) -> None:
        if self.is_held:
            self._held.append(frame)
        elif not self.is_mute or frame is None:
            self._frames.put_nowait(frame)

    def release(self) -> None:
        """Let through what was held back."""
        self.is_held = False
        held, self._held = self._held, []
        for frame in held:
            self._take(frame)

    async def receive(self) -> bytes:
        frame = await self._frames.get()
        if frame is None:
            raise WireLostError("the wire was cut")
        self.received += 1
        return frame

    async def close(self) -> None:
        self.cut()

    def end(self) -> None:
        """End this end only: the other one does not learn so before what is held back for it."""
        self._is_closed = True
        self._frames.put_nowait(None)

    def cut(self) -> None:
        """End both ends. An end that is held back learns so after what was held back."""
        for end in (self, self.other):
            if not end._is_closed:
                end._is_closed = True
                end._take(None)


class Network:
    """The wires between the nodes of a test."""

    def __init__(self) -> None:
        self.wires: list[tuple[MemoryWire, MemoryWire]] = []
        """Both ends of each wire: of the node that opened it, and of the one that took it."""
        self.is_down = False
        self.before_frame: Callable[[MemoryWire], None] = lambda _: None
        """Called before a frame arrives at an end."""
        self._nodes: dict[str, LinkedNode] = {}

    async def attach(self, node: "LinkedNode") -> None:
        """Give a node an address."""
        url = f"memory://{node.router.node.id}"
        self._nodes[url] = node
        await node.router.take_links_at(url)

    async def open(self, url: str) -> Wire:
        """Open a wire to a node."""
        if self.is_down:
            raise WireLostError("connection refused")
        near, far = (MemoryWire(lambda end: self.before_frame(end)) for _ in range(2))
        near.other, far.other = far, near
        self.wires.append((near, far))
        self._nodes[url]._graph_runtime.tasks.start("test: link", self._serve(self._nodes[url], far))
        return near

    async def _serve(self, node: "LinkedNode", wire: MemoryWire) -> None:
        try:
            await node.router.gate.serve(await node.router.gate.admit(wire))
        except (LinkRefusedError, WireLostError):
            wire.cut()

    @property
    def newest(self) -> tuple[MemoryWire, MemoryWire]:
        """Both ends of the wire that was opened last."""
        return self.wires[-1]


class LinkedNode(tm.testing.TestNode):
    """A test node that has a network."""

    def __init__(self, network: Network, store: str, load: Any) -> None:
        super().__init__(store, load=load, _profile={"open_wire": network.open})

    @property
    def router(self) -> OwnerRouter:
        """The router of a node with a store."""
        assert self.forwarding is not None
        return self.forwarding

    @property
    def sent(self) -> dict[str, int]:
        """The requests to other nodes, by the way that they took."""
        return dict(self.router._sender.sent)

    async def link_to(self, accumulator: str = "a") -> None:
        """Wait until a link leads to the owner of an accumulator."""
        async with asyncio.timeout(PATIENCE):
            while self.router.links.open_count == 0:
                await self.graph_client.check_accumulator(self._caller(None), accumulator)
                await self.advance("1s")
        self.router._sender.sent.clear()


@asynccontextmanager
async def linked_nodes(address: str, *samples: Sample | None) -> AsyncIterator[tuple[Network, list[LinkedNode]]]:
    """Run nodes with a network; each loads its sample, if it has one, and has an address."""
    network = Network()
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        nodes = []
        for sample in samples:
            node = LinkedNode(network, address, [] if sample is None else sample.load)
            nodes.append(await stack.enter_async_context(node))
            await network.attach(node)
        yield network, nodes


async def until(is_true: Callable[[], bool]) -> None:
    """Let the nodes go on until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not is_true():  # noqa: ASYNC110 - several nodes may bring it about
            await asyncio.sleep(0)
