"""The processes that `bench_server` measures: a served node, and a bare echo beside it.

python -m benchmarks.served node ADDRESS | echo
"""

import asyncio
import sys
from time import monotonic_ns
from typing import Any

import msgspec
from litestar import Litestar, WebSocket, post
from litestar.handlers import WebsocketRouteHandler

import tidemill as tm
from benchmarks.flows import five
from tidemill.server.app import make_app
from tidemill.server.authentication import NoAuthentication
from tidemill.server.serving import LOOPBACK, serving


class Tick(tm.Boundary):
    """A price, and when it was sent, on the clock that all processes of this machine share."""

    sent_ns: int
    price: float


class Arrived(tm.Boundary):
    """The time from the client's send to the terminal node, in microseconds."""

    latency_us: float


@tm.passthrough
def ticks(event: Tick) -> Tick:
    """Take a tick."""
    return event


feed = tm.Reactor("feed", [ticks])
arrivals = tm.Graph("arrivals", reactor=feed)
latencies: list[float] = []


@arrivals.node
def arrive(ticks: Tick) -> Arrived:
    """Note how long the tick was on its way."""
    latency = (monotonic_ns() - ticks.sent_ns) / 1e3
    latencies.append(latency)
    return Arrived(latency)


collected = tm.Graph("collected")


@collected.node
def take() -> list[float]:
    """Return the latencies since the last call."""
    taken = latencies[:]
    latencies.clear()
    return taken


async def serve_node(address: str | None) -> None:
    """Serve a node until the input ends."""
    async with tm.Node(address, load=[feed, arrivals, collected, five]) as node:
        await _serve(make_app(node, NoAuthentication()))


class Start(msgspec.Struct):
    """The body of the echo, as large as that of a start."""

    params: dict[str, Any]


@post("/echo")
async def echo(data: Start) -> Start:
    """Return the body."""
    return data


async def echo_frames(socket: WebSocket[Any, Any, Any]) -> None:
    """Return each frame, decoded and encoded."""
    await socket.accept()
    while True:
        await socket.send_data(msgspec.json.encode(msgspec.json.decode(await socket.receive_data("text"))).decode())


async def serve_echo() -> None:
    """Serve the echo until the input ends."""
    app = Litestar([echo, WebsocketRouteHandler("/ws")(echo_frames)], logging_config=None, openapi_config=None)
    await _serve(app)


async def _serve(app: Any) -> None:
    async with serving(app, LOOPBACK, 0) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve_node(sys.argv[2]) if sys.argv[1] == "node" else serve_echo())
