"""Properties of pushes over WebSocket: no event is lost or applied twice, and no frame brings the server down."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

import tidemill as tm
from tests.service.server.live_client import ask, live, receive, send
from tests.service.server.serving_node import Served, served

SOCKET = "/ws/accumulators/tick"

SLOW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ledger(seen: list[int], **options: Any) -> list[Any]:
    """Return reactor `book` over accumulator `tick`, whose graph records every event."""

    @tm.passthrough
    def tick(event: int) -> int:
        return event

    reactor = tm.Reactor("book", [tick], strategy="sequential", **options)
    graph = tm.Graph("record", reactor=reactor)

    @graph.node
    def record(tick: int) -> None:
        seen.append(tick)

    return [reactor, graph]


class Producer:
    """Sends numbered frames, and continues where the server says after each lost connection."""

    def __init__(self, server: Served, frames: Sequence[Sequence[int]]) -> None:
        self._server = server
        self._frames = dict(enumerate(frames, 1))
        self.acknowledged = 0

    @property
    def is_done(self) -> bool:
        """Whether every frame was acknowledged."""
        return self.acknowledged == len(self._frames)

    async def push(self, sends: int, reads: int) -> None:
        """Connect, send some frames, read some acknowledgements, and lose the connection."""
        async with live(self._server, f"{SOCKET}?client=producer") as socket:
            resume_after = (await receive(socket))["resume_after"] or 0
            assert resume_after >= self.acknowledged
            self.acknowledged = resume_after
            with suppress(ConnectionClosed):
                await self._exchange(socket, sends, reads)
            socket.transport.abort()

    async def _exchange(self, socket: ClientConnection, sends: int, reads: int) -> None:
        waiting = [seq for seq in self._frames if seq > self.acknowledged][:sends]
        for seq in waiting:
            await send(socket, {"seq": seq, "events": list(self._frames[seq])})
        for seq in waiting[:reads]:
            ack = await receive(socket)
            assert (ack["seq"], ack["problems"]) == (seq, [])
            self.acknowledged = seq


@SLOW
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    losses=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6),
)
def test_a_producer_that_reconnects_loses_nothing_and_repeats_nothing(
    sizes: list[int], losses: list[tuple[int, int]]
) -> None:
    """S-3, G-31: `?client=ID` under durability="boundary", with connections that are lost at any moment."""
    numbers = count()
    frames = [[next(numbers) for _ in range(size)] for size in sizes]

    async def scenario() -> list[int]:
        seen: list[int] = []
        async with (
            tm.testing.node("memory://", load=ledger(seen, durability="boundary")) as node,
            served(node) as server,
        ):
            producer = Producer(server, frames)
            for sends, reads in losses:
                await producer.push(sends, reads)
            while not producer.is_done:
                await producer.push(len(frames), len(frames))
            await node.settle()
        return seen

    assert asyncio.run(scenario()) == [number for frame in frames for number in frame]


frames = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["seq", "event", "events", "id", "x"]), inner, max_size=4)
        ),
        max_leaves=8,
    ).map(lambda value: msgspec.json.encode(value).decode()),
)


@settings(max_examples=4, deadline=None)
@given(batch=st.lists(frames, min_size=20, max_size=20))
def test_no_frame_brings_the_server_down(batch: list[str | bytes]) -> None:
    """S-7: whatever a client sends is acknowledged, or closes its own connection with a code."""

    async def scenario() -> None:
        async with tm.Node(load=ledger([])) as node, served(node) as server:
            for frame in batch:
                async with live(server, SOCKET) as socket:
                    await socket.send(frame)
                    with suppress(ConnectionClosed):
                        await receive(socket)
                    assert socket.close_code in (None, 4400), (frame, socket.close_code)
            async with live(server, SOCKET) as socket:
                assert (await ask(socket, {"event": 1}))["receipt"]["accepted"]

    asyncio.run(scenario())
