"""Compression: JSON answers to reads are sent as gzip if they are large enough, and if the client takes that.

A small answer costs one look at its length. Streams, files of the web UI, which are compressed when they are built, and
answers in msgpack go out as they are.
"""

import asyncio
import gzip
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

LEAST_SIZE = 2048
"""Bytes; a smaller answer fits into few packets anyway."""
LARGE_SIZE = 128 * 1024
"""Bytes; a larger answer is compressed on a thread, so that it delays no other request."""
LEVEL = 4
_JSON = (b"application/json", b"application/problem+json")


class Compression:
    """Wraps a route that reads: compresses its answers."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection."""
        if _takes_gzip(cast("HTTPScope", scope)):
            send = cast("Send", _Compressed(send))
        await self._app(scope, receive, send)


def _takes_gzip(scope: "HTTPScope") -> bool:
    for name, value in scope["headers"]:
        if name == b"accept-encoding":
            return any(_accepts(one) for one in value.lower().split(b","))
    return False


def _accepts(coding: bytes) -> bool:
    name, _, quality = coding.partition(b";")
    return name.strip() == b"gzip" and quality.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")


class _Compressed:
    """Sends one answer: its head waits for its body."""

    def __init__(self, send: "Send") -> None:
        self._send = send
        self._start: Any = None

    async def __call__(self, message: "Message") -> None:
        """Send a message of the answer."""
        if message["type"] == "http.response.start":
            if _is_large_json(message["headers"]):
                self._start = message
                return
        elif self._start is not None:
            start, self._start = self._start, None
            if message["type"] == "http.response.body" and not message.get("more_body"):
                start, message = await _compress(start, message)
            await self._send(start)
        await self._send(message)


def _is_large_json(headers: Any) -> bool:
    found = {name.lower(): value for name, value in headers}
    media_type = found.get(b"content-type", b"").partition(b";")[0]
    is_large = int(found.get(b"content-length", LEAST_SIZE)) >= LEAST_SIZE
    return is_large and media_type in _JSON and b"content-encoding" not in found


async def _compress(start: Any, body: Any) -> tuple[Any, Any]:
    content: bytes = body.get("body", b"")
    if len(content) < LEAST_SIZE:
        return start, body
    if len(content) < LARGE_SIZE:
        packed = gzip.compress(content, LEVEL, mtime=0)
    else:
        packed = await asyncio.to_thread(gzip.compress, content, LEVEL, mtime=0)
    kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    headers = [
        *kept,
        (b"content-encoding", b"gzip"),
        (b"content-length", str(len(packed)).encode()),
        (b"vary", b"accept-encoding"),
    ]
    return {**start, "headers": headers}, {**body, "body": packed}
