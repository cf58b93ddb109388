"""The event feed: what happens on the server and in its store, as server-sent events and over a WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from litestar.params import FromQuery, QueryParameter
from litestar.response import ServerSentEvent

from tidemill.engine.event_feed.feed import EventSubscription, TooSlowError
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.server.event_stream import StreamEvent, event_stream
from tidemill.server.live.closing import CloseCode, CloseError, bad_frame
from tidemill.server.live.connection import LiveConnection, LiveSession, LiveSocket, serve_session
from tidemill.server.requests import ApiRequest

HEARTBEAT = {"type": "events.heartbeat"}
SHORTEST_HEARTBEAT = 1.0
"""Seconds between two heartbeats, at least."""

_Types = Annotated[str | None, QueryParameter(description="Types of events, such as run.*,reactor.health.")]
_After = Annotated[str | None, QueryParameter(description="The id of the last event that was received, to continue.")]


async def follow_events(request: ApiRequest, types: _Types = None, after: _After = None) -> ServerSentEvent:
    """Follow what happens: runs, tasks, reactors, accumulators, packages, leadership.

    Each event has an id: `Last-Event-ID` or `after` continues after it, at this server or another one.
    """
    position = request.headers.get("last-event-id") or after or None
    return event_stream(_read(request.node.event_feed.subscribe(types, after=position, tenant=request.caller.tenant)))


async def _read(subscription: EventSubscription) -> AsyncIterator[StreamEvent]:
    async with subscription as events:
        async for event in events:
            yield StreamEvent(event.id, event.type, event.to_json())


async def event_socket(
    socket: LiveSocket,
    types: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
    heartbeat: FromQuery[float | None] = None,
) -> None:
    """Follow the events of a tenant over a WebSocket."""

    async def serve(session: LiveSession, group: FirstErrorGroup) -> None:
        feed = session.context.node.event_feed
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

    await serve_session(socket, serve)


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
