"""The Python client of a server: `Client` blocks, `AsyncClient` is the same with `await`."""

from tidemill.client.asynchronous.client import AsyncClient
from tidemill.client.synchronous.client import Client

__all__ = ["AsyncClient", "Client"]
