# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""The client: everything that a server can do, as methods."""

from collections.abc import Iterator
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from tidemill.api.port import Api
from tidemill.api.system import Identity, ServerInfo
from tidemill.client import calls
from tidemill.client.connection import DEFAULT_RETRY, DEFAULT_TIMEOUT, Connection
from tidemill.client.synchronous.graph_calls import GraphCalls
from tidemill.client.synchronous.operations import Operations
from tidemill.client.synchronous.package_calls import PackageCalls
from tidemill.client.synchronous.remote_api import RemoteApi
from tidemill.client.synchronous.transport import Transport
from tidemill.client.synchronous.workflow_calls import WorkflowCalls
from tidemill.kernel.backoff import Retry
from tidemill.kernel.durations import Duration


class Client(WorkflowCalls, GraphCalls, PackageCalls, Operations):
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
        self._transport = Transport(Connection(url, key=key, tenant=tenant, timeout=timeout, retry=retry))
        self._api = RemoteApi(self._transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._transport.connection.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    @property
    def api(self) -> Api:
        """Carries any operation out at the server: for code that does not name one."""
        return self._api

    def version(self) -> ServerInfo:
        """Return the version of the server."""
        return self._transport.send(calls.get("/version", ServerInfo))

    def me(self) -> Identity:
        """Return who the server takes this client for."""
        return self._transport.send(calls.get("/me", Identity))

    def events(self, types: str | None = None, *, after: str = "") -> Iterator[dict[str, Any]]:
        """Yield what happens on the server as it happens, across reconnects: `types` such as "run.*,reactor.health".

        `after` is the `id` of the last event that was received: the feed continues after it.
        """
        call = calls.get("/events", dict[str, Any], types=types)
        with closing(self._transport.follow(call, ends=False, after=after)) as events:
            for event in events:
                yield call.read(event.data)
