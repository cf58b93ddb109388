"""`/ws/links`: takes the links of other nodes on the store, which forward requests to the reactors of this one.

The nodes make sure of each other by the keys that the store has of both, so a link needs no key of the server.
"""

from typing import Any

from litestar.exceptions import WebSocketDisconnect

from tidemill.engine.forwarding.wire import Wire, WireLostError
from tidemill.kernel.errors import RequestError
from tidemill.server.connections import admit
from tidemill.server.live.closing import CloseCode, close_for
from tidemill.server.live.connection import LiveSocket
from tidemill.server.rate_limits import address_of
from tidemill.server.requests import context_of


async def link_socket(socket: LiveSocket) -> None:
    """Take a link of another node on the store."""
    context, wire = context_of(socket.scope), _SocketWire(socket)
    await socket.accept()
    forwarding = context.node.forwarding
    try:
        if forwarding is None:
            await wire.close(CloseCode.UNKNOWN, "this node has no store that others use")
            return
        with context.limits.counting_failures(address_of(socket)):
            link = await forwarding.gate.admit(wire)
        admit(socket.scope)
        await forwarding.gate.serve(link)
        await wire.close()
    except RequestError as error:
        ending = close_for(error)
        await wire.close(ending.code, ending.reason)
    except WireLostError:
        return


class _SocketWire(Wire):
    """A WebSocket connection that another node has opened."""

    def __init__(self, socket: LiveSocket) -> None:
        self._socket = socket
        self._is_closed = False

    async def send(self, frame: bytes) -> None:
        await self._guarded(self._socket.send({"type": "websocket.send", "bytes": frame, "text": None}))

    async def receive(self) -> bytes:
        message = await self._guarded(self._socket.receive())
        if message["type"] != "websocket.receive" or not message.get("bytes"):
            raise WireLostError("the connection was closed")
        frame: bytes = message["bytes"]
        return frame

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._guarded(self._socket.close(code, reason))

    async def _guarded(self, work: Any) -> Any:
        try:
            return await work
        except (OSError, WebSocketDisconnect, RuntimeError) as error:  # it may be closed from both sides at once
            raise WireLostError(str(error) or "the connection was closed") from error
