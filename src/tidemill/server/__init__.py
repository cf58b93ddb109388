"""The server: HTTP API, WebSocket and metrics of a running node.

`tidemill.server.asgi(node)` is all of it as an application to mount inside another one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litestar.types import ASGIApp

    from tidemill.node import Node

__all__ = ["asgi"]


def asgi(node: "Node", *, prefix: str | None = None, auth: bool = True) -> "ASGIApp":
    """Return the API, the web UI and the documentation of a node as an ASGI application, to mount in another one.

    `prefix` is the path at which it is mounted, for frameworks that do not say so in `root_path`. Requests need a key
    or a session, as at a server; `auth=False` admits everyone who reaches it, for an outer application that asks first.
    """
    from tidemill.server.mounted import MountedApp  # on use: a package that is imported for less needs no routes

    return MountedApp(node, prefix=prefix, auth=auth)
