# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Pushes of the client, and its handles on reactors and accumulators."""

from collections.abc import Iterable
from typing import Any

from tidemill.api.port import Api
from tidemill.client.calls import NDJSON, encode, make, name_in_path
from tidemill.client.push_window import PusherOptions
from tidemill.client.pusher import EventPusher
from tidemill.client.synchronous.handles import AccumulatorHandle, ReactorHandle, name_of
from tidemill.client.synchronous.transport import Transport
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import list_events
from tidemill.kernel.durations import Duration


class GraphCalls:
    """Pushes, and handles on reactors and accumulators."""

    _api: Api
    _transport: Transport

    def push(self, accumulator: str | Accumulator, event: Any) -> Receipt:
        """Push an event, once even if the request is repeated; bytes are JSON already.

        An event that does not fit is a dead letter, and the receipt says so; one that is rejected raises RequestError.
        """
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        return self._transport.send(make(path, Receipt, event))

    def push_many(self, accumulator: str | Accumulator, events: Iterable[Any]) -> list[Receipt]:
        """Push events in one request, in order; return their receipts."""
        path = f"/accumulators/{name_in_path(name_of(accumulator))}/events"
        body = b"\n".join(encode(event) for event in list_events(events))
        return (self._transport.send(make(path, dict[str, list[Receipt]], body, content_type=NDJSON)))["receipts"]

    def pusher(
        self,
        accumulator: str | Accumulator,
        *,
        batch: int = 256,
        window: int = 32,
        linger: Duration = "20ms",
        raises: bool = True,
    ) -> EventPusher:
        """Return a pusher for many events: over one WebSocket, in order, continued after a reconnect.

        It sends `batch` events together, or fewer after `linger`. A push waits while `window` batches are not
        acknowledged, and the end of the block waits for all. If events were not accepted, the end raises a RequestError
        (`events_not_accepted`), or with `raises=False` leaves them in `problems`.
        """
        options = PusherOptions(batch=batch, window=window, linger=linger, raises=raises)
        return EventPusher(self._transport.connection, name_of(accumulator), options)

    def accumulator(self, accumulator: str | Accumulator) -> AccumulatorHandle:
        """Return a handle on an accumulator."""
        return AccumulatorHandle(self._api, name_of(accumulator))

    def reactor(self, name: str) -> ReactorHandle:
        """Return a handle on a reactor; one that another tenant shares is named `tenant/name`."""
        return ReactorHandle(self._api, name)
