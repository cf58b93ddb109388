"""The protocols of a connection: HTTP/1.1 and WebSocket of uvicorn, with limits for clients that are too slow."""

import asyncio
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tidemill.server.connections import CONNECTION_STATE, Connections

_FRAMING = frozenset([b"content-length", b"transfer-encoding"])


class StrictParser(h11.Connection):
    """A parser that refuses what a proxy may read in another way: a body with a length that is also chunked."""

    def next_event(self) -> Any:
        """Return the next event; h11.RemoteProtocolError for a request that is refused."""
        event = super().next_event()
        if type(event) is h11.Request and _FRAMING.issubset([name for name, _ in event.headers]):
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding exclude each other")
        return event


class HttpConnection(H11Protocol):
    """A connection that must complete the head of a request in time, and take its answers.

    One timer looks at it from time to time. So a request costs no timer, only a note of what the client owes.
    """

    def __init__(
        self, connections: Connections, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION_STATE: self})
        self.conn = StrictParser(h11.SERVER)
        self._connections = connections
        self._timeout = connections.settings.head_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._owes_since: float | None = None  # when the client began to owe the rest of a head
        self._unsent = 0  # bytes that the client had not taken at the last look, after the connection was closed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the first head is owed from now."""
        super().connection_made(transport)
        self._connections.add(self)
        self._owes_since = self.loop.time()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        super().data_received(data)
        if self._note_request() or self.transport.get_protocol() is not self:
            self._owes_since = None
        elif self._owes_since is None:  # a part of the next head, or of a body after its answer
            self._owes_since = self.loop.time()

    def on_response_complete(self) -> None:
        """Go on with the next request if it has come already; otherwise wait for it."""
        self._connections.set_busy(self, is_busy=False)
        super().on_response_complete()
        self._note_request()

    def _note_request(self) -> bool:
        """Note whether the request that is being answered is complete; return whether there is one."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        self._connections.set_busy(self, is_busy=not cycle.more_body)
        return True

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to the protocol of WebSocket; its client must still take what is sent at the end."""
        self._owes_since = None
        self._connections.set_busy(self, is_busy=True)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self.on_ended()

    def on_ended(self) -> None:
        """Forget the connection."""
        self._stop_looking()
        self._connections.remove(self)
        self.app_state.clear()  # it refers to this connection

    def drop(self) -> None:
        """Close the connection without waiting for what has not been sent."""
        self.transport.abort()

    def admit(self) -> None:
        """Note that the connection has presented a valid key."""
        self._connections.admit(self)

    def _look(self) -> None:
        """Drop the connection if its client is too slow; otherwise look again when it may be."""
        now = self.loop.time()
        if self.transport.is_closing():
            unsent = self.transport.get_write_buffer_size()
            if unsent and unsent == self._unsent:
                self._connections.drop(self, "slow_reader")
                return
            self._unsent = unsent
        elif self._owes_since is not None and now >= self._owes_since + self._timeout:
            self._connections.drop(self, "slow_head")
            return
        owes_since = now if self._owes_since is None or self.transport.is_closing() else self._owes_since
        self._timer = self.loop.call_at(owes_since + self._timeout, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self._origin: HttpConnection = app_state[CONNECTION_STATE]

    def data_received(self, data: bytes) -> None:
        """Take what the client sent: first a whole head, which may be malformed and then gets no answer."""
        super().data_received(data)
        if not self.handshake_initiated:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._origin.on_ended()
