"""A served node for tests: a real server on a free port of loopback, and an HTTP client for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tidemill.client.connection import tls_context
from tidemill.node import Node
from tidemill.server.app import make_app
from tidemill.server.authentication import NoAuthentication
from tidemill.server.connections import Connections
from tidemill.server.requests import Authenticator
from tidemill.server.serving import serving
from tidemill.server.static_site import STATIC_FOLDER


class Served(NamedTuple):
    """A node with its server."""

    node: Node
    url: str
    http: httpx.AsyncClient
    """A client whose paths begin below /api/v1."""


@asynccontextmanager
async def served(
    node: Node, authenticator: Authenticator | None = None, static: Path = STATIC_FOLDER, port: int = 0
) -> AsyncIterator[Served]:
    """Serve a running node, with the pages of a folder."""
    async with served_app(node, make_app(node, authenticator or NoAuthentication(), static=static), port) as server:
        yield server


@asynccontextmanager
async def served_app(node: Node, app: Any, port: int = 0) -> AsyncIterator[Served]:
    """Serve an application of a running node."""
    connections = Connections(node.settings)
    async with serving(app, "127.0.0.1", port, connections) as url, client_of(f"{url}/api/v1") as http:
        yield Served(node, url, http)


def client_of(url: Any, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """Return an HTTP client whose paths begin below a URL."""
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=10, verify=tls_context())


async def create_tenant(server: Served, name: str = "acme") -> dict[str, str]:
    """Create a tenant; return the header of requests that act for it."""
    (await server.http.post("/tenants", json={"name": name})).raise_for_status()
    return {"tidemill-tenant": name}
