"""The application of a node inside another ASGI application: below a path, next to what else that one serves.

Frameworks tell an inner application where it is mounted in three ways: the path keeps the prefix, and `root_path` names
it (Starlette, FastAPI); the path has lost it (Litestar); nothing is said at all (a dispatcher of one's own).
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from tidemill.node import Node
from tidemill.server.app import make_app, make_server_app
from tidemill.server.authentication import OuterAuthentication
from tidemill.server.requests import MOUNTED_AT
from tidemill.server.static_site import STATIC_FOLDER

if TYPE_CHECKING:
    from litestar.types import Receive, Scope, Send

_KEPT = frozenset(
    ["type", "asgi", "http_version", "method", "scheme", "query_string", "headers", "client", "server", "subprotocols"]
)
"""The keys of a scope that ASGI defines, and that say nothing about the outer application."""


class MountedApp:
    """The routes of a node. By itself, as the only application of a server, it opens and closes the node too."""

    def __init__(self, node: Node, *, prefix: str | None, auth: bool, static: Path = STATIC_FOLDER) -> None:
        self._node = node
        self._prefix = None if prefix is None else prefix.rstrip("/")
        if auth:
            self._app = make_server_app(node, has_authentication=True)
        else:
            self._app = make_app(node, OuterAuthentication(), static=static)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a connection, or the life of the server."""
        if cast(str, scope["type"]) == "lifespan":
            await self._live(receive, send)
            return
        if self._node.is_running:
            self._node.start_serving()
        inner = self._inner_scope(scope)
        prefix = cast(str, inner["state"][MOUNTED_AT])
        await self._app(inner, receive, partial(_send_below, prefix, send) if prefix else send)

    async def _live(self, receive: "Receive", send: Any) -> None:
        await receive()
        try:
            await self._node.__aenter__()
        except BaseException as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            await asyncio.shield(self._node.__aexit__(None, None, None))
        await send({"type": "lifespan.shutdown.complete"})

    def _inner_scope(self, scope: "Scope") -> "Scope":
        """Return what the routes see: paths without the prefix, and nothing of the outer application."""
        prefix = scope.get("root_path", "").rstrip("/") if self._prefix is None else self._prefix
        path = scope["path"]
        raw = scope.get("raw_path") or quote(path).encode()
        inner = {name: value for name, value in scope.items() if name in _KEPT}
        inner["path"], inner["raw_path"] = _below(path, prefix), _below(raw.decode("latin-1"), quote(prefix)).encode()
        inner |= {"root_path": "", "state": {MOUNTED_AT: prefix}, "extensions": scope.get("extensions") or {}}
        return cast("Scope", inner)


async def _send_below(prefix: str, send: Any, message: Any) -> None:
    """Send a message of the routes: an address that it names is below the prefix."""
    if message["type"] == "http.response.start":
        headers = [
            (name, prefix.encode() + value if name == b"location" and value.startswith(b"/") else value)
            for name, value in message.get("headers", [])
        ]
        message = {**message, "headers": headers}
    await send(message)


def _below(path: str, prefix: str) -> str:
    """Return a path without its prefix, if it has it."""
    return (path[len(prefix) :] or "/") if prefix and f"{path}/".startswith(f"{prefix}/") else path
