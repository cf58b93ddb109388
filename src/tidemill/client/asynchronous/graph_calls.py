"""Pushes of the client, and its handles on reactors and accumulators."""

from collections.abc import Iterable
from typing import Any

from tidemill.api.handles import AsyncAccumulatorHandle, AsyncReactorHandle, name_of
from tidemill.api.port import AsyncApi
from tidemill.client.async_pusher import AsyncEventPusher
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import NDJSON, encode, make, name_in_path
from tidemill.client.push_window import PusherOptions
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import list_events
from tidemill.kernel.durations import Duration


class AsyncGraphCalls:
    """Pushes, and handles on reactors and accumulators."""

    _api: AsyncApi
    _transport: AsyncTransport

    async def push(self, accumulator: str | Accumulator, event: Any) -> Receipt:
        """Push an event, once even if the request is repeated; bytes are JSON already.

        An event that does not fit is a dead letter, and the receipt says so; one that is rejected raises RequestError.
        """
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        return await self._transport.send(make(path, Receipt, event))

    async def push_many(self, accumulator: str | Accumulator, events: Iterable[Any]) -> list[Receipt]:
        """Push events in one request, in order; return their receipts."""
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        body = b"\n".join(encode(event) for event in list_events(events))
        return (await self._transport.send(make(path, dict[str, list[Receipt]], body, content_type=NDJSON)))["receipts"]

    def pusher(
        self,
        accumulator: str | Accumulator,
        *,
        batch: int = 256,
        window: int = 32,
        linger: Duration = "20ms",
        raises: bool = True,
    ) -> AsyncEventPusher:
        """Return a pusher for many events: over one WebSocket, in order, continued after a reconnect.

        It sends `batch` events together, or fewer after `linger`. A push waits while `window` batches are not
        acknowledged, and the end of the block waits for all. If events were not accepted, the end raises a RequestError
        (`events_not_accepted`), or with `raises=False` leaves them in `problems`.
        """
        options = PusherOptions(batch=batch, window=window, linger=linger, raises=raises)
        return AsyncEventPusher(self._transport.connection, name_of(accumulator), options)

    def accumulator(self, accumulator: str | Accumulator) -> AsyncAccumulatorHandle:
        """Return a handle on an accumulator."""
        return AsyncAccumulatorHandle(self._api, name_of(accumulator))

    def reactor(self, name: str) -> AsyncReactorHandle:
        """Return a handle on a reactor; one that another tenant shares is named `tenant/name`."""
        return AsyncReactorHandle(self._api, name)
