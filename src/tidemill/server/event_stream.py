"""Server-sent events: how lists that grow are followed over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from litestar import Request
from litestar.response import ServerSentEvent, ServerSentEventMessage

from tidemill.api.errors import code_and_status, detail_of
from tidemill.kernel.errors import RequestError, TidemillError

if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.response.base import ASGIResponse

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection open."""


class StreamEvent(NamedTuple):
    """One event of a stream."""

    id: int | str | None
    """The id that a client sends back as Last-Event-ID to continue after this event; None: it has none."""
    type: str
    data: Any


def wants_stream(request: Request[Any, Any, Any]) -> bool:
    """Return whether a client asks for events instead of a list."""
    return EVENT_STREAM in request.headers.get("accept", "")


def last_event_number(request: Request[Any, Any, Any]) -> int | None:
    """Return the numeric id of the last event that a client has received; None if it has received none."""
    text = request.headers.get("last-event-id", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal():
        raise RequestError("Last-Event-ID is not an id of this stream", code="invalid_event_id")
    return int(text)


def event_stream(events: AsyncIterator[StreamEvent]) -> ServerSentEvent:
    """Return an answer that sends events as they come, and ends with them; an error is the last event."""
    return _EventStream(_messages(events))


class _EventStream(ServerSentEvent):
    """An answer whose type is that of a stream, although its handler also answers with lists."""

    def to_asgi_response(
        self, app: "Litestar | None", request: Request[Any, Any, Any], **options: Any
    ) -> "ASGIResponse":
        """Begin the answer."""
        return super().to_asgi_response(app, request, **{**options, "media_type": EVENT_STREAM})


async def _messages(events: AsyncIterator[StreamEvent]) -> AsyncIterator[ServerSentEventMessage]:
    following: asyncio.Future[StreamEvent] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events))  # noqa: TID251, awaited or cancelled below
            done, _ = await asyncio.wait([following], timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield ServerSentEventMessage(comment="keep-alive")
                continue
            event = following.result()
            following = None
            yield ServerSentEventMessage(id=event.id, event=event.type, data=msgspec.json.encode(event.data).decode())
    except StopAsyncIteration:
        return
    except TidemillError as error:  # the answer has started, so its status can no longer say it
        code, status = code_and_status(error)
        problem = {"code": code, "status": status, "detail": detail_of(error)}
        yield ServerSentEventMessage(event="error", data=msgspec.json.encode(problem).decode())
    finally:
        if following is not None:
            following.cancel()
