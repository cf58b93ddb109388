# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Methods of the client for graphs, reactors and accumulators."""

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.api.paging import Page
from tidemill.client.calls import NDJSON, command, delete, encode, get, make, name_in_path
from tidemill.client.push_window import PusherOptions
from tidemill.client.pusher import EventPusher
from tidemill.client.synchronous.reactor import RemoteReactor
from tidemill.client.synchronous.transport import Transport
from tidemill.client.values import PushAnswer
from tidemill.engine.graphs.client.values import (
    AccumulatorDetails,
    GraphDetails,
    GraphResultView,
    GraphSummary,
    ReplayResult,
)
from tidemill.graphs.pushes import list_events
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.graphs.state import AccumulatorState, ReactorState
from tidemill.kernel.durations import Duration


class GraphCalls:
    """Methods for graphs, reactors and accumulators."""

    _transport: Transport

    # -- accumulators

    def push(self, accumulator: str, event: Any) -> Receipt:
        """Push an event, once, also if the request is repeated; bytes are JSON already.

        An event that does not fit is a dead letter, and the receipt says so; one that is rejected raises RequestError.
        """
        path = f"/accumulators/{name_in_path(accumulator)}/events"
        return self._transport.send(make(path, Receipt, event))

    def push_many(self, accumulator: str, events: Iterable[Any]) -> list[Receipt]:
        """Push events in one request, in order; return their receipts."""
        path = f"/accumulators/{name_in_path(accumulator)}/events"
        body = b"\n".join(encode(event) for event in list_events(events))
        return (self._transport.send(make(path, PushAnswer, body, content_type=NDJSON))).receipts

    def pusher(
        self, accumulator: str, *, batch: int = 256, window: int = 32, linger: Duration = "20ms", raises: bool = True
    ) -> EventPusher:
        """Return a pusher for many events: over one WebSocket, in order, continued after a reconnect.

        It sends `batch` events together, or fewer after `linger`. A push waits while `window` batches are not
        acknowledged, and the end of the block waits for all. If events were not accepted, the end raises a RequestError
        (`events_not_accepted`), or with `raises=False` leaves them in `problems`.
        """
        options = PusherOptions(batch=batch, window=window, linger=linger, raises=raises)
        return EventPusher(self._transport.connection, accumulator, options)

    def accumulators(self) -> list[AccumulatorState]:
        """Return the state of every accumulator by name."""
        return self._transport.collect(get("/accumulators", Page[AccumulatorState]))

    def accumulator(self, name: str) -> AccumulatorDetails:
        """Return the state of an accumulator, and the JSON Schema of its events."""
        return self._transport.send(get(f"/accumulators/{name_in_path(name)}", AccumulatorDetails))

    def restart_accumulator(self, name: str) -> AccumulatorDetails:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        return self._transport.send(command(f"/accumulators/{name_in_path(name)}/restart", AccumulatorDetails))

    def dead_letters(self, accumulator: str, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of an accumulator, newest first; `client.reactor(name)` has those of a reactor."""
        path = f"/accumulators/{name_in_path(accumulator)}/dead-letters"
        return self._transport.collect(get(path, Page[DeadLetter]), limit)

    def dead_letter(self, accumulator: str, dead_letter: str) -> DeadLetter:
        """Return a dead letter of an accumulator, with values that are too large for a list."""
        path = f"/accumulators/{name_in_path(accumulator)}/dead-letters/{name_in_path(dead_letter)}"
        return self._transport.send(get(path, DeadLetter))

    def replay(self, accumulator: str, dead_letter: str) -> ReplayResult:
        """Process a dead letter of an accumulator again."""
        path = f"/accumulators/{name_in_path(accumulator)}/dead-letters/{name_in_path(dead_letter)}/replay"
        return self._transport.send(command(path, ReplayResult))

    def drop(self, accumulator: str, dead_letter: str) -> None:
        """Delete a dead letter of an accumulator."""
        path = f"/accumulators/{name_in_path(accumulator)}/dead-letters/{name_in_path(dead_letter)}"
        self._transport.send(delete(path))

    # -- reactors and graphs

    def reactor(self, name: str) -> RemoteReactor:
        """Return a handle on a reactor."""
        return RemoteReactor(self._transport, name)

    def reactors(self) -> list[ReactorState]:
        """Return the state of every reactor by name."""
        return self._transport.collect(get("/reactors", Page[ReactorState]))

    def graphs(self) -> list[GraphSummary]:
        """Return the loaded graphs by name."""
        return self._transport.collect(get("/graphs", Page[GraphSummary]))

    def graph(self, name: str) -> GraphDetails:
        """Return a loaded graph with its nodes, its edges and its generated source."""
        return self._transport.send(get(f"/graphs/{name_in_path(name)}", GraphDetails))

    def call_graph(self, name: str, given: Mapping[str, Any] | None = None, /, **inputs: Any) -> GraphResultView:
        """Call a graph without a reactor; inputs are keywords or a mapping."""
        body = {"inputs": {**(given or {}), **inputs}}
        return self._transport.send(command(f"/graphs/{name_in_path(name)}/call", GraphResultView, body))
