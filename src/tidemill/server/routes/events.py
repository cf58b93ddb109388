"""The event feed over HTTP: what happens on the server and in its store, as server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from litestar.params import QueryParameter
from litestar.response import ServerSentEvent

from tidemill.engine.event_feed.feed import EventSubscription
from tidemill.server.event_stream import StreamEvent, event_stream
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.requests import ApiRequest

_Types = Annotated[str | None, QueryParameter(description="Types of events, such as run.*,reactor.health.")]
_After = Annotated[str | None, QueryParameter(description="The id of the last event that was received, to continue.")]


async def follow_events(
    request: ApiRequest, context: InjectedContext, caller: InjectedCaller, types: _Types = None, after: _After = None
) -> ServerSentEvent:
    """Follow what happens: runs, tasks, reactors, accumulators, packages, leadership.

    Each event has an id: `Last-Event-ID` or `after` continues after it, at this server or another one.
    """
    position = request.headers.get("last-event-id") or after or None
    return event_stream(_read(context.node.event_feed.subscribe(types, after=position, tenant=caller.tenant)))


async def _read(subscription: EventSubscription) -> AsyncIterator[StreamEvent]:
    async with subscription as events:
        async for event in events:
            yield StreamEvent(event.id, event.type, event.to_json())
