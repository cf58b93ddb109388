"""`/ws/events`: the live event feed."""

import asyncio

from litestar.params import FromQuery

from tidemill.engine.event_feed.feed import TooSlowError
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.server.injection import InjectedContext
from tidemill.server.live.closing import CloseCode, CloseError, bad_frame
from tidemill.server.live.connection import LiveConnection, LiveSession, LiveSocket, serve_session

HEARTBEAT = {"type": "events.heartbeat"}
SHORTEST_HEARTBEAT = 1.0
"""Seconds between two heartbeats, at least."""


async def event_socket(
    socket: LiveSocket,
    context: InjectedContext,
    types: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
    heartbeat: FromQuery[float | None] = None,
) -> None:
    """Follow the events of a tenant over a WebSocket."""

    async def serve(session: LiveSession, group: FirstErrorGroup) -> None:
        feed = context.node.event_feed
        group.start("connection: listen", _listen(session.connection))
        if heartbeat is not None:
            group.start("connection: heartbeat", _beat(session.connection, heartbeat))
        try:
            async with feed.subscribe(types, after=after or None, tenant=session.caller.tenant) as events:
                async for event in events:
                    await session.connection.send(event.to_json())
        except TooSlowError as error:
            raise CloseError(CloseCode.TOO_SLOW, str(error)) from error
        raise CloseError(CloseCode.RESTART, "the server stops")

    await serve_session(socket, context, serve)


async def _listen(connection: LiveConnection) -> None:
    """Notice the end of the connection; a client of the feed only reads."""
    await connection.receive()
    raise bad_frame("this connection takes no frames: events only go to the client")


async def _beat(connection: LiveConnection, seconds: float) -> None:
    """Send signs of life: a script in a browser sees no pings, and learns of a lost network only by silence."""
    if not seconds >= SHORTEST_HEARTBEAT:
        raise bad_frame(f"heartbeat is a number of seconds, at least {SHORTEST_HEARTBEAT:g}, not {seconds:g}")
    while True:
        await asyncio.sleep(seconds)  # real time: networks are lost in real time
        await connection.send(HEARTBEAT)
