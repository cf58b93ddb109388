"""The body of a request must come at a pace: a client cannot hold a connection with a byte now and then."""

import asyncio
from typing import TYPE_CHECKING, cast

from litestar.enums import ScopeType

from tidemill.kernel.errors import RequestError

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPReceiveMessage, Receive, Scope, Send

GRACE_SECONDS = 20.0
"""Seconds that the server waits for a body however slow it is."""


class BodyPace:
    """Wraps the application: a request whose body comes too slowly is answered with status 408."""

    def __init__(self, app: "ASGIApp", bytes_per_second: int) -> None:
        self._app = app
        self._bytes_per_second = bytes_per_second

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        is_request = scope["type"] == ScopeType.HTTP
        await self._app(scope, _PacedBody(receive, self._bytes_per_second) if is_request else receive, send)


class _PacedBody:
    """Receives a body. Only the time counts in which the server waits for the client."""

    def __init__(self, receive: "Receive", bytes_per_second: int) -> None:
        self._receive = receive
        self._bytes_per_second = bytes_per_second
        self._seconds_left = GRACE_SECONDS
        self._is_whole = False

    async def __call__(self) -> "HTTPReceiveMessage":
        """Return the next message; RequestError if it takes too long, or if the client leaves before the end.

        After the body, it waits for the client to leave.
        """
        if self._is_whole:
            return cast("HTTPReceiveMessage", await self._receive())
        time = asyncio.get_running_loop().time
        began = time()
        try:
            async with asyncio.timeout(self._seconds_left):
                message = cast("HTTPReceiveMessage", await self._receive())
        except TimeoutError as error:
            reason = f"the body comes too slowly: send at least {self._bytes_per_second} bytes per second"
            raise RequestError(reason, code="body_too_slow", status=408) from error
        if message["type"] == "http.disconnect":
            raise RequestError("the client closed the connection", code="malformed_body")
        self._is_whole = not message["more_body"]
        self._seconds_left += len(message["body"]) / self._bytes_per_second - (time() - began)
        return message
