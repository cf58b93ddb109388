"""The client: everything that a server can do, as methods."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from tidemill.api.port import AsyncApi
from tidemill.api.system import Identity, ServerInfo
from tidemill.client import calls
from tidemill.client.asynchronous.graph_calls import AsyncGraphCalls
from tidemill.client.asynchronous.operations import AsyncOperations
from tidemill.client.asynchronous.package_calls import AsyncPackageCalls
from tidemill.client.asynchronous.remote_api import AsyncRemoteApi
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.asynchronous.workflow_calls import AsyncWorkflowCalls
from tidemill.client.connection import DEFAULT_RETRY, DEFAULT_TIMEOUT, Connection
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration


class AsyncClient(AsyncWorkflowCalls, AsyncGraphCalls, AsyncPackageCalls, AsyncOperations):
    """A client of a Tidemill server.

    `key` is an API key; `tenant` names the tenant that an admin of the instance acts for. `timeout` is that of one
    request. `retry` says how often a request is repeated that did not reach the server, or that the server asks to
    repeat; starts and pushes keep their idempotency key, so that they happen once.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self._transport = AsyncTransport(Connection(url, key=key, tenant=tenant, timeout=timeout, retry=retry))
        self._api = AsyncRemoteApi(self._transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._transport.connection.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._transport.aclose()

    @property
    def api(self) -> AsyncApi:
        """Carries any operation out at the server: for code that does not name one."""
        return self._api

    async def version(self) -> ServerInfo:
        """Return the version of the server."""
        return await self._transport.send(calls.get("/version", ServerInfo))

    async def me(self) -> Identity:
        """Return who the server takes this client for."""
        return await self._transport.send(calls.get("/me", Identity))

    async def events(self, types: str | None = None, *, after: str = "") -> AsyncIterator[dict[str, Any]]:
        """Yield what happens on the server as it happens, across reconnects: `types` such as "run.*,reactor.health".

        `after` is the `id` of the last event that was received: the feed continues after it.
        """
        call = calls.get("/events", dict[str, Any], types=types)
        async with aclosing(self._transport.follow(call, ends=False, after=after)) as events:
            async for event in events:
                yield call.read(event.data)
