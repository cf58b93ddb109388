"""`/ws/events`: the live event feed."""

from litestar.params import FromQuery

from tidemill.engine.event_feed.feed import TooSlowError
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.server.injection import InjectedContext
from tidemill.server.live.closing import CloseCode, CloseError, bad_frame
from tidemill.server.live.connection import LiveConnection, LiveSession, LiveSocket, serve_session


async def event_socket(
    socket: LiveSocket,
    context: InjectedContext,
    types: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
) -> None:
    """Follow the events of a tenant over a WebSocket."""

    async def serve(session: LiveSession, group: FirstErrorGroup) -> None:
        feed = context.node.event_feed
        group.start("connection: listen", _listen(session.connection))
        try:
            async with feed.subscribe(types, after=after, tenant=session.caller.tenant) as events:
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
